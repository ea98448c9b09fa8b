/* bound.c: owns the marks in the streams and what work takes. Must never hold its lock across a
 * driver call that may block, nor keep a thread longer than the patience while nothing gets done.
 */
#include "preload/bound.h"

#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/core.h"
#include "preload/gate.h"
#include "preload/lock.h"
#include "preload/quiet.h"
#include "preload/real.h"

#define LANES         64u /* more streams than that share */
#define MARKS         32u
#define GROUPS        4u   /* what may be in flight is looked at in so many parts, ... */
#define GROUP_MAX     64u  /* ... each of so many submissions at most, ... */
#define FLIGHT_MAX    896u /* ... fewer in all than what a queue of the driver's holds: it blocks */
#define KINDS         4096u
#define KIND_WAYS     16u
#define AGAIN_NS      NSEC_PER_SEC /* each kind is measured alone so often at least, ... */
#define LARGE_PART    16u          /* ... always where it takes such a part of the bound, ... */
#define CAREFUL       16u          /* ... and so many, whatever they are, after a surprise */
#define SLACK_NS      (200 * NSEC_PER_USEC)
#define SLACK_PART    16u /* of the bound: beside others the GPU comes and goes */
#define NAP_NS        (50 * NSEC_PER_USEC)
#define PATIENCE_NS   (100 * NSEC_PER_MSEC)
#define PATIENCE_OF   4u           /* ... or so many times what the oldest should take ... */
#define PATIENCE_MAX  NSEC_PER_SEC /* ... but that at most */
#define PATIENCE_MIN  NAP_NS
#define PATIENCE_PART 5u /* not a power of two: holds double, and must not end as before */

/* What came before the bound: nothing is known of it. */
#define WORK_UNKNOWN UINT64_MAX
#define WORK_MIXED   (UINT64_MAX - 1)

/* What is submitted, and what one of it takes: as a program's phases follow each other, the same
 * stream carries the shortest and the longest. */
struct kind {
        uint64_t work;
        uint64_t each_ns;     /* 0: not known */
        uint64_t before[2];   /* what was measured before, the last first; 0: nothing */
        uint64_t again_ns;    /* when it is to be measured alone again */
        uint64_t patience_ns; /* holds behind it end after this; 0: no hold was in vain */
};

/* An event, and what lies between it and the one before. */
struct mark {
        CUevent event; /* stays with the slot */
        CUcontext context;
        uint32_t number; /* submissions before it */
        uint32_t units;  /* of them since the mark before; 0: the stream was idle */
        uint64_t work, cost_ns;
        bool recording; /* by a thread without the lock */
        bool failed;    /* could not be: nothing is known */
};

/* One stream, and what is known of the work on it. */
struct lane {
        CUstream stream;                  /* NULL: the legacy one */
        CUcontext context;                /* of a default stream: each has its own */
        const struct gate_thread *thread; /* of a per-thread default stream */
        bool used;
        uint64_t used_ns;                 /* when it was last submitted to */
        unsigned epoch;                   /* of the bound, since which everything is counted */
        uint32_t submitted, marked, done; /* counts; done: as far as is known */
        bool guessed;
        uint32_t guess;        /* the last whose kind was not known is this one */
        uint64_t cost_ns;      /* of what is in flight */
        uint64_t open_cost_ns; /* of what has no mark behind it */
        uint64_t open_work, open_since_ns;
        unsigned careful; /* so many more get a mark each */
        bool wary;        /* ... because it takes longer than known: two of them at a time */
        bool alone;       /* what has no mark behind it is to be measured as it is */
        uint64_t judged_ns, judged_cost_ns; /* of mixtures: what they took, and should have */
        uint32_t grant, passes;             /* let through because nothing gets done */
        uint64_t held_ns; /* of the sum held_ns, what came before the oldest mark */
        struct mark ring[MARKS];
        unsigned first, count;
};

static struct lock bound_lock;
static struct lane lanes[LANES];
static unsigned lane_count; /* those behind were never used */
static struct kind kinds[KINDS];
static unsigned epoch;
static uint64_t bound_ns; /* of it, a part is left to the drain itself */

/* The sum of all holds that ended because patience ran out. Work that was in flight then may have
 * lasted because of the hold, on any stream: its time is not learned. */
static uint64_t held_ns, held_until_ns;

void bound_set(uint64_t ns)
{
        lock_acquire(&bound_lock);
        if (ns && !bound_ns)
                epoch++;
        bound_ns = ns - ns / 4;
        lock_release(&bound_lock);
        if (ns)
                gate_shut(GATE_BOUND);
        else
                gate_open(GATE_BOUND);
}

void bound_restart(void)
{
        lock_acquire(&bound_lock);
        epoch++;
        lock_release(&bound_lock);
}

/* ---- kinds of work ---- */

static uint64_t slack_ns(void)
{
        return MAX(SLACK_NS, bound_ns / SLACK_PART);
}

/* Where there are too many, the one that was measured longest ago is forgotten. */
static struct kind *kind_of(uint64_t work)
{
        uint64_t hash = work * UINT64_C(0x9e3779b97f4a7c15) >> 32;
        struct kind *set = &kinds[hash % (KINDS / KIND_WAYS) * KIND_WAYS], *oldest = set, *k;

        for (k = set; k < set + KIND_WAYS; k++) {
                if (k->work == work)
                        return k;
                if (k->again_ns < oldest->again_ns)
                        oldest = k;
        }
        *oldest = (struct kind){.work = work};
        return oldest;
}

/* One measurement may be of something else, too: a turn of another program's, a module that is
 * loaded, a thread that is late. So it is the least of two, and of three the one in the middle. */
static void kind_learn(struct kind *k, uint64_t ns)
{
        uint64_t least = MIN(k->before[0], k->before[1]), most = MAX(k->before[0], k->before[1]);

        if (!k->before[0])
                k->each_ns = ns;
        else if (!k->before[1])
                k->each_ns = MIN(k->before[0], ns);
        else
                k->each_ns = MIN(MAX(least, ns), most);
        k->before[1] = k->before[0];
        k->before[0] = ns;
        if (ns > bound_ns)
                k->patience_ns = 0;
}

/* The work took ns, for held of which its program was held back in vain. If what is left fits the
 * bound, the work waited for its program: later holds behind it become short. */
static void kind_outlasted(struct kind *k, uint64_t ns, uint64_t held)
{
        uint64_t before = k->patience_ns;

        if (!before)
                before = MIN(MAX(PATIENCE_NS, PATIENCE_OF * k->each_ns), PATIENCE_MAX);
        k->patience_ns = ns - held > bound_ns ? PATIENCE_OF * (ns - held) : before / PATIENCE_PART;
        k->patience_ns = MAX(k->patience_ns, PATIENCE_MIN);
}

/* Another program's turn may fall into any mixture, and is more than the shortest take: they are
 * judged together. */
static void lane_learn_mixture(struct lane *l, uint64_t cost_ns, uint64_t ns)
{
        bool longer;

        l->judged_ns += ns;
        l->judged_cost_ns += cost_ns;
        longer = l->judged_ns > 2 * l->judged_cost_ns + bound_ns;
        if (longer || cost_ns > 2 * ns + SLACK_NS) {
                l->wary = longer || (l->wary && l->careful);
                l->careful = CAREFUL;
        }
        if (longer || l->judged_cost_ns >= bound_ns / GROUPS)
                l->judged_ns = l->judged_cost_ns = 0;
}

/* Work that took so long, where cost_ns was expected. */
static void lane_learn(struct lane *l, uint64_t work, uint32_t units, uint64_t cost_ns, uint64_t ns)
{
        if (work == WORK_MIXED)
                lane_learn_mixture(l, cost_ns, ns);
        else if (work != WORK_UNKNOWN)
                kind_learn(kind_of(work), MAX(ns / units, 1u));
}

/* ---- lanes ---- */

static bool lane_is_recording(const struct lane *l)
{
        for (unsigned i = 0; i < MARKS; i++)
                if (l->ring[i].recording)
                        return true;
        return false;
}

static void lane_empty(struct lane *l)
{
        l->done = l->marked = l->submitted;
        l->cost_ns = l->open_cost_ns = 0;
        l->guessed = l->alone = false;
        l->grant = l->passes = 0;
        l->held_ns = held_ns;
}

/* There may be more streams than lanes: what was not used for long is no loss. */
static bool lane_is_idle(const struct lane *l, uint64_t now)
{
        return now > l->used_ns + AGAIN_NS && !lane_is_recording(l);
}

static struct lane *lane_new(CUstream stream, CUcontext context, uint64_t now)
{
        struct lane *l = lanes;

        while (l < &lanes[lane_count] && (l->used || lane_is_recording(l)))
                l++;
        if (l == &lanes[LANES])
                for (l = lanes; l < &lanes[LANES] && !lane_is_idle(l, now);)
                        l++;
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
        l->judged_ns = l->judged_cost_ns = 0;
        l->first = l->count = 0; /* its events serve again, where their context lives */
        lane_empty(l);
        return l;
}

/* Lock held. */
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

static uint32_t in_flight(const struct lane *l)
{
        return l->submitted - l->done;
}

static bool lane_is_full(const struct lane *l)
{
        if (in_flight(l) == 0)
                return false;
        return l->cost_ns > bound_ns || in_flight(l) >= FLIGHT_MAX ||
               (l->careful && l->wary && in_flight(l) > 1) || l->guessed;
}

/* What has no mark behind it needs one. */
static bool lane_is_due(const struct lane *l, uint64_t now)
{
        uint32_t open = l->submitted - l->marked;

        return open > 0 &&
               (l->careful || l->alone || open >= GROUP_MAX || lane_is_full(l) ||
                l->open_cost_ns >= bound_ns / GROUPS || now - l->open_since_ns >= bound_ns);
}

/* Not known yet, not measured for long, or taken for so long that a mistake would keep everything
 * else back. */
static bool work_is_measured_alone(uint64_t work, uint64_t now)
{
        struct kind *k = kind_of(work);

        if (k->each_ns != 0 && k->each_ns <= bound_ns / LARGE_PART && now < k->again_ns &&
            !k->patience_ns)
                return false;
        k->again_ns = now + AGAIN_NS;
        return true;
}

static void lane_add(struct lane *l, uint64_t work, uint64_t now, bool alone)
{
        uint64_t each_ns = work == WORK_UNKNOWN ? 0 : kind_of(work)->each_ns;

        if (l->submitted == l->marked) {
                l->open_work = work;
                l->open_since_ns = now;
        } else if (l->open_work != work) {
                l->open_work = WORK_MIXED;
        }
        l->submitted++;
        l->cost_ns += each_ns;
        l->open_cost_ns += each_ns;
        if (!each_ns) {
                l->guessed = true;
                l->guess = l->submitted;
        }
        if (l->careful)
                l->careful--;
        l->alone = alone;
        l->used_ns = now;
}

/* Work took more than was expected: what is in flight of it may, too. */
static void lane_correct(struct lane *l, uint64_t work, double by)
{
        uint64_t pending = 0;

        for (unsigned i = 0; i < l->count; i++) {
                struct mark *m = &l->ring[(l->first + i) % MARKS];

                if (m->work == work)
                        m->cost_ns = (uint64_t)((double)m->cost_ns * by);
                pending += m->cost_ns;
        }
        if (l->open_work == work)
                l->open_cost_ns = (uint64_t)((double)l->open_cost_ns * by);
        l->cost_ns = pending + l->open_cost_ns;
}

/* How long the GPU was at what lies between two marks; false: not known. */
static bool mark_took(const struct mark *before, const struct mark *m, uint64_t *ret_ns)
{
        float ms;

        if (before->failed || before->context != m->context ||
            real.cuEventElapsedTime(&ms, before->event, m->event) != CUDA_SUCCESS || ms < 0)
                return false;
        *ret_ns = (uint64_t)((double)ms * NSEC_PER_MSEC);
        return true;
}

/* Look how far the stream has come. Lock held; the thread's capture mode is relaxed. */
static void lane_look(struct lane *l)
{
        uint64_t held = held_ns - l->held_ns;

        while (l->count > 0) {
                struct mark *m = &l->ring[l->first];
                uint64_t ns, cost_ns;

                if (m->recording ||
                    (!m->failed && real.cuEventQuery(m->event) == CUDA_ERROR_NOT_READY))
                        return;
                if (!m->units || m->failed ||
                    !mark_took(&l->ring[(l->first + MARKS - 1) % MARKS], m, &ns))
                        ns = 0;
                else if (!held)
                        lane_learn(l, m->work, m->units, m->cost_ns, ns);
                else if (ns >= held && m->work < WORK_MIXED)
                        kind_outlasted(kind_of(m->work), ns, held);
                cost_ns = m->cost_ns;
                l->done = m->number;
                l->guessed = l->guessed && (int32_t)(l->guess - l->done) > 0;
                l->cost_ns -= m->cost_ns;
                if (m->units)
                        l->grant = l->passes = 0;
                l->first = (l->first + 1) % MARKS;
                l->count--;
                /* What is short may just have met another's turn: that says nothing of the rest. */
                if (!held && ns > cost_ns + slack_ns() &&
                    cost_ns > (m->work == WORK_MIXED ? slack_ns() : 0))
                        lane_correct(l, m->work, (double)ns / (double)cost_ns);
                held = sub_sat(held, ns);
                l->held_ns = held_ns - held;
        }
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
                if (real.cuEventCreate(&m->event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
                        return false;
                m->context = context;
        }
        return real.cuEventRecord(m->event, stream) == CUDA_SUCCESS;
}

/* For a mark: the last one done is what the first one is measured from. */
static bool lane_has_room(const struct lane *l)
{
        return l->count < MARKS - 1;
}

/* Put a mark after all that the lane has counted. Lock held, given up meanwhile: where the
 * stream's queue is full, recording blocks. */
static void lane_mark(struct lane *l, CUstream stream)
{
        struct mark *m = &l->ring[(l->first + l->count) % MARKS];
        bool ok;

        if (!lane_has_room(l))
                return;
        l->count++;
        m->number = l->submitted;
        m->units = l->submitted - l->marked;
        m->work = l->open_work;
        m->cost_ns = l->open_cost_ns;
        m->recording = true;
        l->marked = l->submitted;
        l->open_cost_ns = 0;
        l->alone = false;
        lock_release(&bound_lock);
        ok = mark_record(m, stream);
        lock_acquire(&bound_lock);
        m->recording = false;
        m->failed = !ok; /* a stream of another context, or one that is gone */
}

/* The bound is new to this stream, or the stream to us. */
static void lane_begin(struct lane *l, CUstream stream, uint64_t now)
{
        if (lane_is_recording(l))
                return;
        l->epoch = epoch;
        l->first = l->count = 0;
        l->careful = 0;
        lane_empty(l);
        if (real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
                lane_add(l, WORK_UNKNOWN, now, true);
}

/* What has no mark behind it may be done already: then a mark would tell when it was put there. */
static void lane_close(struct lane *l, CUstream stream, uint64_t now)
{
        uint32_t open = l->submitted - l->marked;
        uint64_t most;

        if (l->count > 0 || real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
                lane_mark(l, stream);
                return;
        }
        if (l->open_work < WORK_MIXED && l->held_ns == held_ns) {
                struct kind *k = kind_of(l->open_work);

                most = MAX((now - l->open_since_ns) / open, 1u);
                if (!k->each_ns || most < k->each_ns)
                        k->each_ns = most;
        }
        lane_empty(l);
}

bool bound_pass(CUstream stream, uint64_t work)
{
        CUstreamCaptureMode mode;
        struct lane *l;
        uint64_t now;
        bool full;

        /* What is captured does not run now, and an event on the legacy stream may break it. */
        if (quiet_capturing())
                return true;
        mode = core_relax();
        lock_acquire(&bound_lock);
        now = clock_now_ns();
        l = lane_of(stream, now);
        if (l->epoch != epoch)
                lane_begin(l, stream, now);
        if (l->submitted == l->marked || lane_is_due(l, now) || lane_is_full(l))
                lane_look(l);
        if (lane_is_due(l, now))
                lane_close(l, stream, now);
        full = bound_ns && lane_is_full(l);
        if (full && l->passes > 0) {
                l->passes--;
                full = false;
        }
        if (in_flight(l) == 0)
                l->held_ns = held_ns;
        if (!full) {
                bool alone = lane_has_room(l) && work_is_measured_alone(work, now);

                if (in_flight(l) == 0 || (alone && l->submitted != l->marked))
                        lane_mark(l, stream); /* what follows is measured from here */
                lane_add(l, work, now, alone);
        }
        lock_release(&bound_lock);
        core_unrelax(mode);
        return !full;
}

static uint64_t patience_of(const struct lane *l)
{
        const struct mark *m = &l->ring[l->first];
        uint64_t first = m->work < WORK_MIXED ? kind_of(m->work)->patience_ns : 0;

        if (!first)
                first = MAX(PATIENCE_NS, PATIENCE_OF * m->cost_ns);
        return MIN(first * MAX(l->grant, 1u), PATIENCE_MAX);
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
                l = lane_of(stream, now);
                over = quiet_capturing();
                if (!over)
                        lane_look(l);
                if (first || l->done != done)
                        began = now;
                done = l->done;
                first = false;
                over = over || !lane_is_full(l) || l->count == 0 || l->passes > 0 || !bound_ns ||
                       atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_NO_LEASE;
                if (!over && now - began > patience_of(l)) {
                        /* One long kernel, or work that waits for ours: what is held back here may
                         * be what it waits for. */
                        l->grant = l->grant ? MIN(l->grant * 2, FLIGHT_MAX) : 1;
                        l->passes = l->grant;
                        held_ns += sub_sat(now, MAX(began, held_until_ns));
                        held_until_ns = MAX(now, held_until_ns);
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

void bound_forget_thread(const struct gate_thread *t)
{
        lock_acquire(&bound_lock);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++)
                if (l->stream == CU_STREAM_PER_THREAD && l->thread == t)
                        l->used = false;
        lock_release(&bound_lock);
}

void bound_forget(CUcontext context)
{
        lock_acquire(&bound_lock);
        for (struct lane *l = lanes; l < &lanes[lane_count]; l++) {
                if (l->context == context)
                        l->used = false;
                for (unsigned i = 0; i < MARKS; i++)
                        if (l->ring[i].context == context) {
                                l->ring[i].context = NULL; /* the event dies with it */
                                l->used = false;
                        }
        }
        lock_release(&bound_lock);
}
