/* measure_sample.c: owns the pairs of events and the budget. Must never record an event while
 * captures are in progress, nor hold its lock during a driver call.
 * Why: docs/decisions.md, "Measuring times some launches, and takes the rest from counts". */
#include "preload/extra/measure_sample.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/process/lock.h"
#include "preload/state/core.h"
#include "preload/stream/quiesce.h"

#define CONTEXTS      16u
#define PAIRS         64u /* pairs of one context */
#define BUDGET        50u /* samples take at most 1 / BUDGET of the time */
#define BUDGET_MOST   (20 * NSEC_PER_MSEC)
#define GPU_COST_NS   4000u /* how long two events may delay the GPU (estimate) */
#define LEAST_NS      500u  /* the resolution of events */
#define READS_A_TIME  4u
#define ALLOWED_LATER CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

struct pair {
        CUevent start, end;
        struct measure_time *time;
        uint64_t gap_ns; /* time from recording `start` to the return of the launch call */
        bool late;       /* the GPU had reached the first event before the launch was submitted */
};

struct sample_context {
        CUcontext handle; /* NULL: unused */
        struct pair free[PAIRS], pending[PAIRS];
        unsigned made, free_count, first, pending_count;
};

static struct lock lock;
static struct sample_context *contexts[CONTEXTS] GUARDED_BY(lock);
static uint64_t budget_ns GUARDED_BY(lock) = BUDGET_MOST;
static uint64_t budget_at_ns GUARDED_BY(lock);
static uint64_t typical_ns GUARDED_BY(lock) = 10000; /* average cost of a sample */

static bool may_spend(uint64_t now) REQUIRES(lock)
{
        if (budget_at_ns)
                budget_ns = MIN(budget_ns + (now - budget_at_ns) / BUDGET, BUDGET_MOST);
        budget_at_ns = now;
        return budget_ns >= typical_ns + GPU_COST_NS;
}

static void spend(uint64_t ns) REQUIRES(lock)
{
        budget_ns = sub_sat(budget_ns, ns + GPU_COST_NS);
        typical_ns = (typical_ns * 7 + MIN(ns, BUDGET_MOST / 2)) / 8;
}

/* Returns the record of a context. NULL: no memory, or too many contexts. */
static struct sample_context *context_of(CUcontext handle) REQUIRES(lock)
{
        struct sample_context **unused = NULL;

        for (unsigned i = 0; i < CONTEXTS; i++) {
                if (contexts[i] && contexts[i]->handle == handle)
                        return contexts[i];
                if (!unused && (!contexts[i] || !contexts[i]->handle))
                        unused = &contexts[i];
        }
        if (!unused)
                return NULL;
        if (!*unused)
                *unused = calloc(1, sizeof(**unused));
        if (*unused)
                (*unused)->handle = handle;
        return *unused;
}

static bool make_pair(struct pair *p)
{
        *p = (struct pair){0};
        if (real.cuEventCreate(&p->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
                return false;
        if (real.cuEventCreate(&p->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS)
                return true;
        (void)real.cuEventDestroy_v2(p->start);
        return false;
}

/* Takes a pair of events, or room for a new one. */
static bool take_pair(CUcontext handle, uint64_t now, struct sample_context **ret_context,
                      struct pair *ret, bool *ret_make)
{
        struct sample_context *c;
        bool taken = false;

        lock_acquire(&lock);
        c = may_spend(now) ? context_of(handle) : NULL;
        if (c && c->free_count > 0) {
                *ret = c->free[--c->free_count];
                *ret_make = false;
                taken = true;
        } else if (c && c->made < PAIRS) {
                c->made++;
                *ret_make = true;
                taken = true;
        }
        lock_release(&lock);
        *ret_context = c;
        return taken;
}

static void give_pair(struct sample_context *c, CUcontext handle, const struct pair *p)
{
        lock_acquire(&lock);
        if (c->handle == handle && c->free_count < PAIRS)
                c->free[c->free_count++] = *p;
        lock_release(&lock);
}

/* Adds the time between the two events, which the GPU has reached. */
static void add(const struct pair *p)
{
        float ms = 0;
        uint64_t ns;

        if (real.cuEventElapsedTime(&ms, p->start, p->end) != CUDA_SUCCESS || !(ms >= 0))
                return;
        ns = (uint64_t)((double)ms * 1e6);
        if (p->late)
                ns = sub_sat(ns, p->gap_ns);
        ns = MAX(ns, (uint64_t)LEAST_NS);
        atomic_fetch_add_explicit(&p->time->sampled_ns, ns, memory_order_relaxed);
        atomic_fetch_add_explicit(&p->time->samples, 1, memory_order_relaxed);
        if (p->late) {
                atomic_fetch_add_explicit(&p->time->late_ns, ns, memory_order_relaxed);
                atomic_fetch_add_explicit(&p->time->late, 1, memory_order_relaxed);
        }
}

/* Takes the oldest pending pair of the current context. */
static bool take_pending(struct sample_context *c, CUcontext handle, struct pair *ret)
{
        bool taken;

        lock_acquire(&lock);
        taken = c->handle == handle && c->pending_count > 0;
        if (taken) {
                *ret = c->pending[c->first];
                c->first = (c->first + 1) % PAIRS;
                c->pending_count--;
        }
        lock_release(&lock);
        return taken;
}

static void put_pending(struct sample_context *c, CUcontext handle, const struct pair *p)
{
        lock_acquire(&lock);
        if (c->handle == handle && c->pending_count < PAIRS) {
                c->pending[(c->first + c->pending_count) % PAIRS] = *p;
                c->pending_count++;
        }
        lock_release(&lock);
}

/* Reads some pairs that the GPU has reached. Call it with the context current. */
static void read_pending(struct sample_context *c, CUcontext handle)
{
        for (unsigned i = 0; i < READS_A_TIME; i++) {
                struct pair p;
                CUresult r;

                if (!take_pending(c, handle, &p))
                        return;
                r = real.cuEventQuery(p.end);
                if (r == CUDA_ERROR_NOT_READY || r == ALLOWED_LATER) {
                        put_pending(c, handle, &p);
                        return;
                }
                if (r == CUDA_SUCCESS)
                        add(&p);
                give_pair(c, handle, &p);
        }
}

bool sample_begin(struct sample *s, CUstream stream)
{
        const uint64_t now = clock_now_ns();
        CUstreamCaptureMode mode;
        struct pair p = {0};
        CUcontext handle = NULL;
        bool make, ok;

        s->context = NULL;
        if (quiesce_capturing() || real.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle)
                return false;
        mode = core_relax();
        if (!take_pair(handle, now, &s->context, &p, &make)) {
                if (s->context)
                        read_pending(s->context, handle); /* all pairs are in flight */
                core_unrelax(mode);
                s->context = NULL;
                return false;
        }
        ok = !make || make_pair(&p);
        if (!ok) {
                lock_acquire(&lock);
                if (s->context->handle == handle)
                        s->context->made--;
                lock_release(&lock);
        } else if (real.cuEventRecord(p.start, stream) != CUDA_SUCCESS) {
                give_pair(s->context, handle, &p);
                ok = false;
        }
        core_unrelax(mode);
        if (!ok) {
                s->context = NULL;
                return false;
        }
        s->handle = handle;
        s->stream = stream;
        s->start = p.start;
        s->end = p.end;
        s->began_ns = now;
        s->recorded_ns = clock_now_ns();
        return true;
}

uint64_t sample_end(struct sample *s, struct measure_time *time)
{
        const uint64_t launched_ns = clock_now_ns();
        struct pair p = {.start = s->start,
                         .end = s->end,
                         .time = time,
                         .gap_ns = launched_ns - s->recorded_ns};
        CUstreamCaptureMode mode = core_relax();
        CUcontext handle = s->handle;
        uint64_t cost;

        if (real.cuEventRecord(p.end, s->stream) != CUDA_SUCCESS) {
                give_pair(s->context, handle, &p);
        } else {
                p.late = real.cuEventQuery(p.start) == CUDA_SUCCESS;
                put_pending(s->context, handle, &p);
                read_pending(s->context, handle);
        }
        core_unrelax(mode);
        cost = clock_now_ns() - launched_ns + (s->recorded_ns - s->began_ns);
        lock_acquire(&lock);
        spend(cost);
        lock_release(&lock);
        return cost;
}

void sample_drop(struct sample *s)
{
        struct pair p = {.start = s->start, .end = s->end};

        give_pair(s->context, s->handle, &p);
}

void sample_context_dies(CUcontext context)
{
        lock_acquire(&lock);
        for (unsigned i = 0; i < CONTEXTS; i++)
                if (contexts[i] && contexts[i]->handle == context)
                        *contexts[i] = (struct sample_context){0}; /* events end with the context */
        lock_release(&lock);
}

void sample_forget(void) LOCK_UNCHECKED
{
        lock = (struct lock){0};
        for (unsigned i = 0; i < CONTEXTS; i++)
                if (contexts[i])
                        *contexts[i] = (struct sample_context){0};
}
