/* bound.c: owns the ring of events. Must never block in the driver, nor wait longer than
 * BOUND_PATIENCE for one event. */
#include "preload/bound.h"

#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/core.h"
#include "preload/gate.h"
#include "preload/lock.h"
#include "preload/real.h"

#define BOUND_RING        64u
#define BOUND_PATIENCE_NS (100 * NSEC_PER_MSEC)

struct mark {
        CUcontext context;
        CUevent event;
        uint64_t at_ns;
        bool pending;
};

static struct lock bound_lock;
static struct mark bound_ring[BOUND_RING];
static unsigned bound_next;
static uint64_t bound_ns, bound_last_ns;
static _Atomic uint64_t bound_pause_until_ns;

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

/* Age of the oldest mark that is not done; 0: none. */
static uint64_t bound_age(uint64_t now)
{
        uint64_t oldest = UINT64_MAX;

        for (unsigned i = 0; i < BOUND_RING; i++) {
                struct mark *m = &bound_ring[i];

                if (m->pending && real.cuEventQuery(m->event) != CUDA_ERROR_NOT_READY)
                        m->pending = false;
                if (m->pending)
                        oldest = MIN(oldest, m->at_ns);
        }
        return oldest == UINT64_MAX ? 0 : now - oldest;
}

bool bound_exceeded(void)
{
        uint64_t now = clock_now_ns();
        CUstreamCaptureMode mode;
        bool over;

        if (now < atomic_load_explicit(&bound_pause_until_ns, memory_order_relaxed))
                return false;
        mode = core_relax(); /* asking an event breaks a capture of this thread's otherwise */
        lock_acquire(&bound_lock);
        over = bound_ns && bound_age(now) > bound_ns;
        lock_release(&bound_lock);
        core_unrelax(mode);
        return over;
}

void bound_wait(void)
{
        uint64_t begun = clock_now_ns();

        while (bound_exceeded()) {
                const struct timespec nap = {.tv_nsec = 100 * 1000};

                (void)nanosleep(&nap, NULL);
                if (clock_now_ns() - begun > BOUND_PATIENCE_NS) {
                        /* One long kernel, or work that waits for ours: holding back more helps
                         * nobody. */
                        atomic_store_explicit(&bound_pause_until_ns,
                                              clock_now_ns() + BOUND_PATIENCE_NS,
                                              memory_order_relaxed);
                        return;
                }
        }
}

void bound_note(CUstream stream)
{
        uint64_t now = clock_now_ns();
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        CUstreamCaptureMode mode = core_relax();
        CUcontext context = NULL;
        struct mark *m;

        lock_acquire(&bound_lock);
        if (now - bound_last_ns < bound_ns / 4)
                goto out;
        m = &bound_ring[bound_next];
        if (m->pending || real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE ||
            real.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
                goto out;
        if (m->context != context) {
                if (m->context)
                        (void)real.cuEventDestroy_v2(m->event);
                m->context = NULL;
                if (real.cuEventCreate(&m->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
                        goto out;
                m->context = context;
        }
        if (real.cuEventRecord(m->event, stream) != CUDA_SUCCESS)
                goto out; /* a stream of another context: others of its marks will do */
        m->at_ns = bound_last_ns = now;
        m->pending = true;
        bound_next = (bound_next + 1) % BOUND_RING;
out:
        lock_release(&bound_lock);
        core_unrelax(mode);
}

void bound_forget(CUcontext context)
{
        lock_acquire(&bound_lock);
        for (unsigned i = 0; i < BOUND_RING; i++)
                if (bound_ring[i].context == context)
                        bound_ring[i] = (struct mark){0};
        lock_release(&bound_lock);
}
