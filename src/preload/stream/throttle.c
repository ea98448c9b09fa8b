/* throttle.c: owns the marks in the streams, which are events behind groups of submissions. Must
 * never hold its lock across a driver call that may block, nor keep a thread waiting longer than
 * the patience without progress.
 * Why: docs/decisions.md, "The throttle measures groups of submissions". */
#include "preload/stream/throttle.h"

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/process/lock.h"
#include "preload/process/nap.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"

#define QUEUES       64u /* some streams share a queue if there are more streams */
#define MARKS        8u
#define GROUP_MAX    448u /* submitting blocks when one of the driver's own queues is full */
#define IDLE_NS      NSEC_PER_SEC /* after so long an idle stream loses its queue to another */
#define NAP_NS       (50 * NSEC_PER_USEC)
#define PATIENCE_NS  (100 * NSEC_PER_MSEC)
#define PATIENCE_OF  2u                  /* if longer, this many times the oldest group's time */
#define PATIENCE_MAX (60 * NSEC_PER_SEC) /* a measured time may include a stop of the program */

/* An event, and the group of submissions between it and the mark before. */
struct mark {
        CUevent event; /* reused by later marks in this slot */
        CUcontext context;
        uint32_t units; /* submissions in the group; 0: the stream was idle, and the next group is
                           measured from here */
        bool recording; /* a thread is recording the event without the lock */
        bool failed;    /* the event could not be recorded: the group's time is unknown */
};

/* The submitted work of one stream. */
struct stream_queue {
        CUstream stream;   /* NULL: the legacy stream */
        CUcontext context; /* for default streams, of which each context has its own */
        const struct gate_thread *thread; /* the thread of a per-thread default stream */
        bool used;
        uint64_t used_ns; /* time of the last submission */
        unsigned epoch;   /* value of the file's `epoch` when the counts below began */
        uint32_t size;    /* how many submissions make a group */
        bool alone; /* one submission takes longer than bound_ns, so only one group may be in flight
                     */
        uint32_t groups; /* groups in flight, each with a mark behind it */
        uint32_t open;   /* submissions without a mark behind them */
        uint64_t open_since_ns;
        uint64_t each_ns;  /* measured time of one submission in the last group */
        uint64_t stuck_ns; /* threads wait without progress since then; 0: no thread waits */
        uint64_t held_ns;  /* how long the threads had waited when patience ran out; 0: patience did
                              not run out */
        uint32_t grant,    /* submissions that may pass after patience ran out */
                passes;    /* how many submissions of `grant` are left */
        bool doubt;        /* patience is longer by half */
        struct mark ring[MARKS];
        unsigned first, count;
};

static struct lock throttle_lock;
static struct stream_queue queues[QUEUES];
static unsigned queue_count; /* queues from this index on were never used */
/* Written by the agent without throttle_lock: threads hold that lock while they query events. */
static _Atomic unsigned epoch;
static _Atomic uint64_t bound_ns;

void throttle_set(uint64_t ns)
{
        if (ns && !bound_ns)
                epoch++;
        bound_ns = ns;
        if (ns)
                gate_shut(GATE_THROTTLE);
        else
                gate_open(GATE_THROTTLE);
}

/* ---- queues; lock held ---- */

static bool queue_is_recording(const struct stream_queue *q)
{
        for (unsigned i = 0; i < MARKS; i++)
                if (q->ring[i].recording)
                        return true;
        return false;
}

static void queue_progress(struct stream_queue *q)
{
        q->stuck_ns = q->held_ns = 0;
        q->grant = q->passes = 0;
}

/* Forgets the stream's measurements, because its next work may be long. The events are reused. */
static void queue_reset(struct stream_queue *q)
{
        q->size = 1;
        q->alone = true;
        q->doubt = false;
        q->groups = q->open = 0;
        q->each_ns = 0;
        q->first = q->count = 0;
        q->ring[MARKS - 1].failed = true; /* no group is measured from an old event */
        queue_progress(q);
}

/* Returns a queue for the stream: a free one, or one whose stream was idle for long. Otherwise the
 * stream shares the queue of another. */
static struct stream_queue *queue_new(CUstream stream, CUcontext context, uint64_t now)
{
        struct stream_queue *q = queues;

        while (q < &queues[queue_count] && (q->used || queue_is_recording(q)))
                q++;
        if (q == &queues[QUEUES])
                for (q = queues; q < &queues[QUEUES]; q++)
                        if (now > q->used_ns + IDLE_NS && !queue_is_recording(q))
                                break;
        if (q == &queues[QUEUES])
                return &queues[((uintptr_t)stream >> 6) % QUEUES];
        if (q == &queues[queue_count])
                queue_count++;
        q->stream = stream;
        q->context = context;
        q->thread = gate_self;
        q->used = true;
        q->used_ns = now;
        q->epoch = 0;
        queue_reset(q);
        return q;
}

static struct stream_queue *queue_of(CUstream stream, uint64_t now)
{
        CUcontext context = NULL;

        if (stream == CU_STREAM_LEGACY)
                stream = NULL;
        if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD)
                (void)real.cuCtxGetCurrent(&context);
        for (struct stream_queue *q = queues; q < &queues[queue_count]; q++)
                if (q->used && q->stream == stream && q->context == context &&
                    (stream != CU_STREAM_PER_THREAD || q->thread == gate_self))
                        return q;
        return queue_new(stream, context, now);
}

static bool queue_is_full(const struct stream_queue *q)
{
        return q->groups >= (q->alone ? 1u : 2u);
}

/* The open submissions become a group when there are enough of them, or when the oldest is old. */
static bool queue_is_due(const struct stream_queue *q, uint64_t now)
{
        return q->open >= q->size || (q->open > 0 && now - q->open_since_ns >= bound_ns);
}

static void queue_add(struct stream_queue *q, uint64_t now)
{
        if (q->open++ == 0)
                q->open_since_ns = now;
        q->used_ns = now;
}

/* Adapt the size of a group to the time of the last one: two groups should take between half of
 * bound_ns and all of it. */
static void queue_learn(struct stream_queue *q, uint32_t units, uint64_t ns)
{
        q->each_ns = ns / units;
        q->alone = q->each_ns > bound_ns;
        if (units >= q->size && ns < bound_ns / 4)
                q->size = MIN(q->size * 2, GROUP_MAX);
        for (; ns > bound_ns / 2 && q->size > 1; ns /= 2)
                q->size /= 2;
}

/* A group has ended. If patience ran out shortly before, the group may have waited for the
 * submission that was then let through. So its time is ignored once, and patience grows by half; a
 * kernel that really is so slow takes as long the next time. "Shortly" means within a quarter of
 * the wait. Otherwise a program that is slow to let its own work go on would double the patience
 * each time. */
static void queue_end_group(struct stream_queue *q, const struct mark *before, const struct mark *m)
{
        uint64_t ns;
        float ms;

        if (!m->failed && !before->failed && before->context == m->context &&
            real.cuEventElapsedTime(&ms, before->event, m->event) == CUDA_SUCCESS && ms >= 0) {
                ns = (uint64_t)((double)ms * NSEC_PER_MSEC);
                if (q->held_ns && ns < q->held_ns + MAX(bound_ns, q->held_ns / 4))
                        q->doubt = !q->doubt;
                else
                        queue_learn(q, m->units, ns);
        }
        q->groups--;
        queue_progress(q);
}

/* Finds out which groups have ended. The thread's capture mode is relaxed. */
static void queue_look(struct stream_queue *q)
{
        while (q->count > 0) {
                struct mark *m = &q->ring[q->first];

                if (m->recording ||
                    (!m->failed && real.cuEventQuery(m->event) == CUDA_ERROR_NOT_READY))
                        return;
                if (m->units)
                        queue_end_group(q, &q->ring[(q->first + MARKS - 1) % MARKS], m);
                q->first = (q->first + 1) % MARKS;
                q->count--;
        }
}

/* Records an event of the current context in the mark's slot. No lock held. */
static bool mark_record(struct mark *m, CUstream stream)
{
        CUcontext context = NULL;

        if (real.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
                return false;
        if (m->context != context) {
                if (m->context)
                        (void)real.cuEventDestroy_v2(m->event);
                m->context = NULL;
                if (real.cuEventCreate(&m->event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
                        return false;
                m->context = context;
        }
        return real.cuEventRecord(m->event, stream) == CUDA_SUCCESS;
}

/* Puts a mark behind all submissions counted so far. Gives up the lock while it records, because
 * recording blocks if the stream is full. */
static void queue_mark(struct stream_queue *q, CUstream stream) REQUIRES(throttle_lock)
{
        struct mark *m = &q->ring[(q->first + q->count) % MARKS];
        bool ok;

        if (q->count == MARKS - 1) /* keep the last mark that was reached: the first group is
                                      measured from it */
                return;
        q->count++;
        m->units = q->open;
        m->recording = true;
        q->groups += q->open > 0;
        q->open = 0;
        lock_release(&throttle_lock);
        ok = mark_record(m, stream);
        lock_acquire(&throttle_lock);
        m->recording = false;
        m->failed = !ok; /* the stream belongs to another context, or is gone */
}

/* Starts to measure a stream that is new, or was not measured since the throttle was switched on.
 * Work already on the stream is the first group. */
static void queue_begin(struct stream_queue *q, CUstream stream, uint64_t now)
{
        if (queue_is_recording(q))
                return;
        q->epoch = epoch;
        queue_reset(q);
        if (real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
                queue_add(q, now);
}

/* Makes the open submissions a group. An idle stream gets no mark: a mark would show when it was
 * recorded, not when the work ended. */
static void queue_close(struct stream_queue *q, CUstream stream, uint64_t now)
        REQUIRES(throttle_lock)
{
        uint64_t most = now - q->open_since_ns;

        if (q->count > 0 || real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
                queue_mark(q, stream);
                return;
        }
        if (most <= bound_ns / 2)
                queue_learn(q, q->open, most);
        q->open = 0;
}

bool throttle_pass(CUstream stream)
{
        CUstreamCaptureMode mode;
        struct stream_queue *q;
        uint64_t now;
        bool full;

        /* Captured work does not run now, and an event on the legacy stream may break the capture.
         */
        if (quiesce_capturing())
                return true;
        mode = core_relax();
        lock_acquire(&throttle_lock);
        now = clock_now_ns();
        q = queue_of(stream, now);
        if (q->epoch != epoch)
                queue_begin(q, stream, now);
        if (q->open == 0 || queue_is_due(q, now) || queue_is_full(q))
                queue_look(q);
        if (queue_is_due(q, now))
                queue_close(q, stream, now);
        full = bound_ns && queue_is_full(q);
        if (full && q->passes > 0) {
                q->passes--;
                full = false;
        }
        if (!full) {
                if (q->count == 0 && q->open == 0)
                        queue_mark(q, stream);
                queue_add(q, now);
        }
        lock_release(&throttle_lock);
        core_unrelax(mode);
        return !full;
}

/* How long threads wait without progress until one may pass. Each further round lets twice as many
 * submissions pass, and lasts twice as long. If all rounds were equally long, ever more submissions
 * would pass behind kernels that take seconds. */
static uint64_t patience_of(const struct stream_queue *q)
{
        uint64_t ns = MAX(PATIENCE_NS, PATIENCE_OF * q->each_ns * q->ring[q->first].units);

        return MIN(ns + (q->doubt ? ns / 2 : 0), PATIENCE_MAX) * MAX(2 * q->grant, 1u);
}

void throttle_wait(CUstream stream)
{
        CUstreamCaptureMode mode = core_relax();
        bool over = false;

        while (!over) {
                struct stream_queue *q;
                uint64_t now;

                lock_acquire(&throttle_lock);
                now = clock_now_ns(); /* read under the lock, so not earlier than times that other
                                         threads have noted */
                q = queue_of(stream, now);
                over = quiesce_capturing();
                if (!over)
                        queue_look(q);
                over = over || !queue_is_full(q) || q->passes > 0 || !bound_ns ||
                       atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_NO_LEASE;
                if (!over && !q->stuck_ns) {
                        q->stuck_ns = now;
                } else if (!over && now - q->stuck_ns > patience_of(q)) {
                        /* The work in flight is one long kernel, or waits for a submission that is
                         * held back here. */
                        q->held_ns = now - q->stuck_ns;
                        q->passes = q->grant = MAX(MIN(2 * q->grant, 2 * GROUP_MAX), 1u);
                        over = true;
                }
                lock_release(&throttle_lock);
                if (!over)
                        (void)nap(NAP_NS);
        }
        core_unrelax(mode);
}

void throttle_forget_stream(CUstream stream)
{
        lock_acquire(&throttle_lock);
        for (struct stream_queue *q = queues; q < &queues[queue_count]; q++)
                if (q->used && q->stream == stream)
                        q->used = false; /* the next stream reuses the queue's events */
        lock_release(&throttle_lock);
}

void throttle_forget_thread(const struct gate_thread *t)
{
        lock_acquire(&throttle_lock);
        for (struct stream_queue *q = queues; q < &queues[queue_count]; q++)
                if (q->stream == CU_STREAM_PER_THREAD && q->thread == t)
                        q->used = false;
        lock_release(&throttle_lock);
}

void throttle_forget(CUcontext context)
{
        lock_acquire(&throttle_lock);
        for (struct stream_queue *q = queues; q < &queues[queue_count]; q++) {
                if (q->context == context)
                        q->used = false;
                for (unsigned i = 0; i < MARKS; i++)
                        if (q->ring[i].context == context) {
                                q->ring[i].context = NULL; /* the event dies with its context */
                                q->used = false;
                        }
        }
        lock_release(&throttle_lock);
}
