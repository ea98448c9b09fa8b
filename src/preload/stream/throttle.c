/* throttle.c: owns the marks in the streams. Must never hold its lock across a driver call that may
 * block, nor keep a thread waiting longer than the patience without progress. */
#include "preload/stream/throttle.h"

#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/process/lock.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"

#define LANES        64u /* more streams than lanes share one */
#define MARKS        8u
#define GROUP_MAX    448u         /* submission blocks when a queue of the driver's is full */
#define IDLE_NS      NSEC_PER_SEC /* a stream that was idle so long loses its lane to another */
#define NAP_NS       (50 * NSEC_PER_USEC)
#define PATIENCE_NS  (100 * NSEC_PER_MSEC)
#define PATIENCE_OF  2u                  /* ... or twice what the oldest group should take */
#define PATIENCE_MAX (60 * NSEC_PER_SEC) /* the program may have been stopped meanwhile */

/* An event, and the group of submissions before it. */
struct mark {
        CUevent event; /* stays with the slot */
        CUcontext context;
        uint32_t units; /* 0: the stream was idle; the next group is measured from here */
        bool recording; /* a thread without the lock is recording the event */
        bool failed;    /* the event could not be recorded: nothing is known of the group */
};

/* One stream and the work on it. */
struct lane {
        CUstream stream;   /* NULL: the legacy one */
        CUcontext context; /* the context of a default stream: each context has its own */
        const struct gate_thread *thread; /* the thread of a per-thread default stream */
        bool used;
        uint64_t used_ns; /* when it was last submitted to */
        unsigned epoch;   /* all counts are since this epoch of the bound began */
        uint32_t size;    /* submissions a group */
        bool alone;       /* one submission takes longer than the bound: one group in flight */
        uint32_t groups;  /* groups in flight, with a mark behind them */
        uint32_t open;    /* submissions without a mark behind them */
        uint64_t open_since_ns;
        uint64_t each_ns;       /* time of one submission in the last group */
        uint64_t stuck_ns;      /* since when threads wait without progress; 0: none waits */
        uint64_t held_ns;       /* how long they had waited when patience ran out; 0: it has not */
        uint32_t grant, passes; /* then so many may pass, and so many of them are left */
        bool doubt;             /* patience is longer by half */
        struct mark ring[MARKS];
        unsigned first, count;
};

static struct lock throttle_lock;
static struct lane lanes[LANES];
static unsigned lane_count; /* lanes behind it were never used */
/* Written by the agent without the lock: threads hold that one while they query events. */
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

/* ---- lanes; lock held ---- */

static bool lane_is_recording(const struct lane *l)
{
        for (unsigned i = 0; i < MARKS; i++)
                if (l->ring[i].recording)
                        return true;
        return false;
}

static void lane_progress(struct lane *l)
{
        l->stuck_ns = l->held_ns = 0;
        l->grant = l->passes = 0;
}

/* Nothing is known of the stream: its next work may be long. The events are reused. */
static void lane_reset(struct lane *l)
{
        l->size = 1;
        l->alone = true;
        l->doubt = false;
        l->groups = l->open = 0;
        l->each_ns = 0;
        l->first = l->count = 0;
        l->ring[MARKS - 1].failed = true; /* no group is measured from an old event */
        lane_progress(l);
}

/* There may be more streams than lanes: one that was idle for long is replaced. */
static struct lane *lane_new(CUstream stream, CUcontext context, uint64_t now)
{
        struct lane *l = lanes;

        while (l < &lanes[lane_count] && (l->used || lane_is_recording(l)))
                l++;
        if (l == &lanes[LANES])
                for (l = lanes; l < &lanes[LANES]; l++)
                        if (now > l->used_ns + IDLE_NS && !lane_is_recording(l))
                                break;
        if (l == &lanes[LANES])
                return &lanes[((uintptr_t)stream >> 6) % LANES];
        if (l == &lanes[lane_count])
                lane_count++;
        l->stream = stream;
        l->context = context;
        l->thread = gate_self;
        l->used = true;
        l->used_ns = now;
        l->epoch = 0;
        lane_reset(l);
        return l;
}

static struct lane *lane_of(CUstream stream, uint64_t now)
{
        CUcontext context = NULL;

        if (stream == CU_STREAM_LEGACY)
                stream = NULL;
        if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD)
                (void)real.cuCtxGetCurrent(&context);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++)
                if (l->used && l->stream == stream && l->context == context &&
                    (stream != CU_STREAM_PER_THREAD || l->thread == gate_self))
                        return l;
        return lane_new(stream, context, now);
}

static bool lane_is_full(const struct lane *l)
{
        return l->groups >= (l->alone ? 1u : 2u);
}

/* The open submissions become a group when they are enough, or old enough. */
static bool lane_is_due(const struct lane *l, uint64_t now)
{
        return l->open >= l->size || (l->open > 0 && now - l->open_since_ns >= bound_ns);
}

static void lane_add(struct lane *l, uint64_t now)
{
        if (l->open++ == 0)
                l->open_since_ns = now;
        l->used_ns = now;
}

/* Adapt the size of a group to what the last one took: two groups are to take between half of the
 * bound and all of it. */
static void lane_learn(struct lane *l, uint32_t units, uint64_t ns)
{
        l->each_ns = ns / units;
        l->alone = l->each_ns > bound_ns;
        if (units >= l->size && ns < bound_ns / 4)
                l->size = MIN(l->size * 2, GROUP_MAX);
        for (; ns > bound_ns / 2 && l->size > 1; ns /= 2)
                l->size /= 2;
}

/* A group has ended. If patience ran out shortly before, the group may have waited for the work
 * that was let through then, and its time means nothing. A kernel that really takes that long shows
 * when patience is longer by half. The margin grows with the wait: a program may need some time to
 * set its own work free, and each such group would otherwise count as a kernel and double the
 * patience, up to a minute. */
static void lane_end_group(struct lane *l, const struct mark *before, const struct mark *m)
{
        uint64_t ns;
        float ms;

        if (!m->failed && !before->failed && before->context == m->context &&
            real.cuEventElapsedTime(&ms, before->event, m->event) == CUDA_SUCCESS && ms >= 0) {
                ns = (uint64_t)((double)ms * NSEC_PER_MSEC);
                if (l->held_ns && ns < l->held_ns + MAX(bound_ns, l->held_ns / 4))
                        l->doubt = !l->doubt;
                else
                        lane_learn(l, m->units, ns);
        }
        l->groups--;
        lane_progress(l);
}

/* Find out which groups have ended. The thread's capture mode is relaxed. */
static void lane_look(struct lane *l)
{
        while (l->count > 0) {
                struct mark *m = &l->ring[l->first];

                if (m->recording ||
                    (!m->failed && real.cuEventQuery(m->event) == CUDA_ERROR_NOT_READY))
                        return;
                if (m->units)
                        lane_end_group(l, &l->ring[(l->first + MARKS - 1) % MARKS], m);
                l->first = (l->first + 1) % MARKS;
                l->count--;
        }
}

/* Record an event of the current context in the mark's slot. No lock held. */
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

/* Put a mark behind all that the lane has counted. Gives up the lock meanwhile: recording blocks
 * where the stream's queue is full. */
static void lane_mark(struct lane *l, CUstream stream) REQUIRES(throttle_lock)
{
        struct mark *m = &l->ring[(l->first + l->count) % MARKS];
        bool ok;

        if (l->count == MARKS - 1) /* the last mark that was reached has to stay: the first group is
                                      measured from it */
                return;
        l->count++;
        m->units = l->open;
        m->recording = true;
        l->groups += l->open > 0;
        l->open = 0;
        lock_release(&throttle_lock);
        ok = mark_record(m, stream);
        lock_acquire(&throttle_lock);
        m->recording = false;
        m->failed = !ok; /* the stream belongs to another context, or is gone */
}

/* Start to measure a stream that is new, or was not measured since the bound was set. Work already
 * on it is the first group. */
static void lane_begin(struct lane *l, CUstream stream, uint64_t now)
{
        if (lane_is_recording(l))
                return;
        l->epoch = epoch;
        lane_reset(l);
        if (real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
                lane_add(l, now);
}

/* Make the open submissions a group. On an idle stream a mark would tell when it was recorded, not
 * when the work ended. */
static void lane_close(struct lane *l, CUstream stream, uint64_t now) REQUIRES(throttle_lock)
{
        uint64_t most = now - l->open_since_ns;

        if (l->count > 0 || real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
                lane_mark(l, stream);
                return;
        }
        if (most <= bound_ns / 2)
                lane_learn(l, l->open, most);
        l->open = 0;
}

bool throttle_pass(CUstream stream)
{
        CUstreamCaptureMode mode;
        struct lane *l;
        uint64_t now;
        bool full;

        /* Captured work does not run now, and an event on the legacy stream may break the capture.
         */
        if (quiesce_capturing())
                return true;
        mode = core_relax();
        lock_acquire(&throttle_lock);
        now = clock_now_ns();
        l = lane_of(stream, now);
        if (l->epoch != epoch)
                lane_begin(l, stream, now);
        if (l->open == 0 || lane_is_due(l, now) || lane_is_full(l))
                lane_look(l);
        if (lane_is_due(l, now))
                lane_close(l, stream, now);
        full = bound_ns && lane_is_full(l);
        if (full && l->passes > 0) {
                l->passes--;
                full = false;
        }
        if (!full) {
                if (l->count == 0 && l->open == 0)
                        lane_mark(l, stream);
                lane_add(l, now);
        }
        lock_release(&throttle_lock);
        core_unrelax(mode);
        return !full;
}

/* How long threads wait without progress until one may pass; twice as long until two more may, and
 * so on: with equal rounds more and more would pass behind kernels of seconds. */
static uint64_t patience_of(const struct lane *l)
{
        uint64_t ns = MAX(PATIENCE_NS, PATIENCE_OF * l->each_ns * l->ring[l->first].units);

        return MIN(ns + (l->doubt ? ns / 2 : 0), PATIENCE_MAX) * MAX(2 * l->grant, 1u);
}

void throttle_wait(CUstream stream)
{
        const struct timespec nap = {.tv_nsec = NAP_NS};
        CUstreamCaptureMode mode = core_relax();
        bool over = false;

        while (!over) {
                struct lane *l;
                uint64_t now;

                lock_acquire(&throttle_lock);
                now = clock_now_ns(); /* not earlier than times that other threads have noted */
                l = lane_of(stream, now);
                over = quiesce_capturing();
                if (!over)
                        lane_look(l);
                over = over || !lane_is_full(l) || l->passes > 0 || !bound_ns ||
                       atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_NO_LEASE;
                if (!over && !l->stuck_ns) {
                        l->stuck_ns = now;
                } else if (!over && now - l->stuck_ns > patience_of(l)) {
                        /* One long kernel, or work that waits for a submission that is held back
                         * here. */
                        l->held_ns = now - l->stuck_ns;
                        l->passes = l->grant = MAX(MIN(2 * l->grant, 2 * GROUP_MAX), 1u);
                        over = true;
                }
                lock_release(&throttle_lock);
                if (!over)
                        (void)syscall(SYS_nanosleep, &nap, NULL);
        }
        core_unrelax(mode);
}

void throttle_forget_stream(CUstream stream)
{
        lock_acquire(&throttle_lock);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++)
                if (l->used && l->stream == stream)
                        l->used = false; /* the next stream reuses its events */
        lock_release(&throttle_lock);
}

void throttle_forget_thread(const struct gate_thread *t)
{
        lock_acquire(&throttle_lock);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++)
                if (l->stream == CU_STREAM_PER_THREAD && l->thread == t)
                        l->used = false;
        lock_release(&throttle_lock);
}

void throttle_forget(CUcontext context)
{
        lock_acquire(&throttle_lock);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++) {
                if (l->context == context)
                        l->used = false;
                for (unsigned i = 0; i < MARKS; i++)
                        if (l->ring[i].context == context) {
                                l->ring[i].context = NULL; /* the event dies with it */
                                l->used = false;
                        }
        }
        lock_release(&throttle_lock);
}
