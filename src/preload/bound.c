/* bound.c: owns the windows and their events. Must never hold its lock across a driver call that
 * may block, nor keep a thread longer than the patience while nothing gets done. */
#include "preload/bound.h"

#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/core.h"
#include "preload/gate.h"
#include "preload/lock.h"
#include "preload/quiet.h"
#include "preload/real.h"

#define LANES        64u /* more streams than that share */
#define MARKS        8u
#define WINDOW_FIRST 2u
#define WINDOW_MAX   256u /* the shortest kernels keep the GPU busy between two looks */
#define GROWTH       4u   /* at most, from one look to the next */
#define NAP_NS       (50 * NSEC_PER_USEC)
#define PATIENCE_NS  (100 * NSEC_PER_MSEC)
#define PATIENCE_OF  4u           /* ... or so many times what one submission took ... */
#define PATIENCE_MAX NSEC_PER_SEC /* ... but that at most */

struct mark {
        CUevent event; /* stays with the slot */
        CUcontext context;
        uint32_t number;  /* submissions before it */
        uint64_t at_ns;   /* just before it was recorded */
        uint64_t seen_ns; /* when it was last seen pending; 0: never */
        bool recording;   /* by a thread without the lock */
        bool failed;      /* could not be: nothing is known */
};

/* One stream, and what is known of the work on it. */
struct lane {
        CUstream stream;                  /* NULL: the legacy one */
        const struct gate_thread *thread; /* of a per-thread default stream */
        bool used;
        uint32_t submitted, marked, done; /* counts; done: as far as is known */
        uint32_t window;
        uint64_t each_ns; /* what one submission took, at least */
        /* The work after `done` began after from_ns and, where the stream has been busy since,
         * before since_ns. */
        uint64_t from_ns, since_ns;
        struct mark ring[MARKS];
        unsigned first, count;
};

static struct lock bound_lock;
static struct lane lanes[LANES];
static unsigned lane_count; /* those behind were never used */
static uint64_t bound_ns;

void bound_set(uint64_t ns)
{
        lock_acquire(&bound_lock);
        bound_ns = ns;
        lock_release(&bound_lock);
        if (ns)
                gate_shut(GATE_BOUND);
        else
                gate_open(GATE_BOUND);
}

static bool lane_is_recording(const struct lane *l)
{
        for (unsigned i = 0; i < MARKS; i++)
                if (l->ring[i].recording)
                        return true;
        return false;
}

static struct lane *lane_new(CUstream stream)
{
        struct lane *l = lanes;

        while (l < &lanes[lane_count] && (l->used || lane_is_recording(l)))
                l++;
        if (l == &lanes[LANES])
                return &lanes[((uintptr_t)stream >> 6) % LANES];
        if (l == &lanes[lane_count])
                lane_count++;
        l->stream = stream;
        l->thread = gate_self;
        l->used = true;
        l->submitted = l->marked = l->done = 0;
        l->window = WINDOW_FIRST;
        l->each_ns = 0;
        l->first = l->count = 0;
        return l;
}

/* Lock held. */
static struct lane *lane_of(CUstream stream)
{
        if (stream == CU_STREAM_LEGACY)
                stream = NULL;
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++)
                if (l->used && l->stream == stream &&
                    (stream != CU_STREAM_PER_THREAD || l->thread == gate_self))
                        return l;
        return lane_new(stream);
}

static uint32_t in_flight(const struct lane *l)
{
        return l->submitted - l->done;
}

/* So many submissions have got done; the last of them was last seen pending at seen_ns. */
static void lane_learn(struct lane *l, uint32_t units, uint64_t seen_ns, uint64_t now)
{
        uint64_t most = now - l->from_ns, least = sub_sat(seen_ns, l->since_ns);
        uint64_t roomy = 1 + bound_ns * units / MAX(most, 1u);

        /* The window grows by what the work can have taken at most, and shrinks by what it has
         * taken at least: time in which the stream had nothing to do misleads neither. */
        if (roomy > l->window)
                l->window = (uint32_t)MIN(MIN(roomy, l->window * (uint64_t)GROWTH), WINDOW_MAX);
        if (least > 0) {
                l->each_ns = least / units;
                l->window = (uint32_t)MIN(l->window, 1 + bound_ns * units / least);
        }
}

/* Look how far the stream has come. Lock held; the thread's capture mode is relaxed. */
static void lane_look(struct lane *l, uint64_t now)
{
        uint32_t done = l->done;
        uint64_t seen_ns = 0, from_ns = now;
        bool known = true;

        while (l->count > 0) {
                struct mark *m = &l->ring[l->first];

                if (m->recording)
                        break;
                if (m->failed) {
                        known = false;
                } else if (real.cuEventQuery(m->event) == CUDA_ERROR_NOT_READY) {
                        m->seen_ns = now;
                        break;
                }
                /* What comes after one that is pending is pending, too. */
                seen_ns = MAX(seen_ns, m->seen_ns);
                from_ns = MAX(seen_ns, m->at_ns);
                done = m->number;
                l->first = (l->first + 1) % MARKS;
                l->count--;
        }
        if (done == l->done)
                return;
        if (known)
                lane_learn(l, done - l->done, seen_ns, now);
        l->done = done;
        l->from_ns = from_ns;
        l->since_ns = now;
}

/* An event of the current context in the mark's slot. No lock held. */
static bool mark_record(struct mark *m, CUstream stream)
{
        CUcontext context = NULL;

        if (real.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
                return false;
        if (m->context != context) {
                if (m->context)
                        (void)real.cuEventDestroy_v2(m->event);
                m->context = NULL;
                if (real.cuEventCreate(&m->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
                        return false;
                m->context = context;
        }
        return real.cuEventRecord(m->event, stream) == CUDA_SUCCESS;
}

/* Put a mark after all that the lane has counted. Lock held, given up meanwhile: where the
 * stream's queue is full, recording blocks. */
static void lane_mark(struct lane *l, CUstream stream, uint64_t now)
{
        struct mark *m = &l->ring[(l->first + l->count) % MARKS];
        bool ok;

        if (l->count == MARKS || l->marked == l->submitted)
                return;
        l->count++;
        l->marked = m->number = l->submitted;
        m->at_ns = now;
        m->seen_ns = 0;
        m->recording = true;
        lock_release(&bound_lock);
        ok = mark_record(m, stream);
        lock_acquire(&bound_lock);
        m->recording = false;
        m->failed = !ok; /* a stream of another context, or one that is gone */
}

bool bound_pass(CUstream stream)
{
        uint64_t now = clock_now_ns();
        CUstreamCaptureMode mode;
        struct lane *l;
        bool full, marks;

        /* What is captured does not run now, and an event on the legacy stream may break it. */
        if (quiet_capturing())
                return true;
        mode = core_relax();
        lock_acquire(&bound_lock);
        l = lane_of(stream);
        marks = l->submitted - l->marked >= MAX(l->window / 4, 1u);
        if (marks || in_flight(l) >= l->window)
                lane_look(l, now);
        full = bound_ns && in_flight(l) >= l->window;
        if (in_flight(l) == 0)
                l->from_ns = l->since_ns = now;
        else if (marks || (full && l->count == 0))
                lane_mark(l, stream, now);
        if (!full)
                l->submitted++;
        lock_release(&bound_lock);
        core_unrelax(mode);
        return !full;
}

static uint64_t patience_of(const struct lane *l)
{
        return MIN(MAX(PATIENCE_NS, PATIENCE_OF * l->each_ns), PATIENCE_MAX);
}

void bound_wait(CUstream stream)
{
        const struct timespec nap = {.tv_nsec = NAP_NS};
        CUstreamCaptureMode mode = core_relax();
        uint64_t began = clock_now_ns(), now = began;
        uint32_t done = 0;
        bool first = true, over = false;

        while (!over) {
                struct lane *l;

                lock_acquire(&bound_lock);
                l = lane_of(stream);
                if (!quiet_capturing())
                        lane_look(l, now);
                if (first || l->done != done)
                        began = now;
                done = l->done;
                first = false;
                over = in_flight(l) < l->window || l->count == 0 || !bound_ns ||
                       atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_NO_LEASE;
                if (!over && now - began > patience_of(l)) {
                        /* One long kernel, or work that waits for ours: what is held back here may
                         * be what it waits for. */
                        l->window = MAX(MIN(l->window * 2, WINDOW_MAX), in_flight(l) + 1);
                        over = true;
                }
                lock_release(&bound_lock);
                if (!over)
                        (void)syscall(SYS_nanosleep, &nap, NULL);
                now = clock_now_ns();
        }
        core_unrelax(mode);
}

void bound_forget_stream(CUstream stream)
{
        lock_acquire(&bound_lock);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++)
                if (l->used && l->stream == stream)
                        l->used = false; /* its events serve the next one */
        lock_release(&bound_lock);
}

void bound_forget(CUcontext context)
{
        lock_acquire(&bound_lock);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++)
                for (unsigned i = 0; i < MARKS; i++)
                        if (l->ring[i].context == context) {
                                l->ring[i].context = NULL; /* the event dies with it */
                                l->used = false;
                        }
        lock_release(&bound_lock);
}
