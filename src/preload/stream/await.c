/* await.c: owns the waits for work that an interrupt can end. Must never end a wait while the
 * program runs, nor make a call that a capture forbids.
 * Why: docs/decisions.md, "Ctrl-C in Python ends a wait with an error". */
#include "preload/stream/await.h"

#include "base/clock.h"
#include "base/macros.h"
#include "preload/process/nap.h"
#include "preload/rm/rm.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/stream/interrupt.h"
#include "preload/stream/quiesce.h"

/* The thread sleeps between two questions for a small part of the time that it has waited. A
 * shorter wait is too short for a sleep. */
#define SHORT_NS (64 * NSEC_PER_MSEC)
#define PART     1024
#define NAP_NS   (10 * NSEC_PER_MSEC)

struct work {
        CUstream stream; /* of a stream; otherwise event is set */
        CUevent event;
        uint64_t submissions; /* gate_submissions() when the wait began */
};

/* True if the work goes on, and is still what the call waits for. Work that another thread submits
 * meanwhile is not. */
static bool is_busy(const struct work *of)
{
        return !quiesce_capturing() && !core_passive() && gate_submissions() == of->submissions &&
               (of->event ? real.cuEventQuery(of->event) : real.cuStreamQuery(of->stream)) ==
                       CUDA_ERROR_NOT_READY;
}

static bool is_interrupted(struct interrupt_wait *w)
{
        uint64_t timeout_ns;
        bool ends;

        lock_acquire(&core_lock);
        ends = interrupt_ends(w, &timeout_ns);
        lock_release(&core_lock);
        return ends;
}

/* Other threads need libcuda's locks, so there are pauses in short waits, too. */
static void pause_after(uint64_t waited_ns)
{
        const uint64_t until_ns = clock_now_ns() + waited_ns / PART;

        while (clock_now_ns() < until_ns)
                ;
}

static bool await(CUstream stream, CUevent event)
{
        const struct work work = {stream, event, gate_submissions()};
        const uint64_t begin_ns = clock_now_ns();
        struct interrupt_wait w = {0};
        bool listens = false;

        while (is_busy(&work)) {
                const uint64_t waited_ns = clock_now_ns() - begin_ns;

                if (waited_ns < SHORT_NS) {
                        pause_after(waited_ns);
                        continue;
                }
                if (!listens)
                        interrupt_begin(&w);
                listens = true;
                if (rm_stands_still() && is_interrupted(&w))
                        return true;
                (void)nap(MIN(waited_ns / PART, NAP_NS));
        }
        return false;
}

bool await_stream(CUstream stream)
{
        return unlikely(interrupt_may_come()) && await(stream, NULL);
}

bool await_event(CUevent event)
{
        return unlikely(interrupt_may_come()) && event && await(NULL, event);
}

bool await_context(CUcontext context)
{
        CUevent event;
        bool ends;

        if (likely(!interrupt_may_come()) || quiesce_capturing() ||
            real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
                return false;
        ends = real.cuCtxRecordEvent(context, event) == CUDA_SUCCESS && await(NULL, event);
        (void)real.cuEventDestroy_v2(event);
        return ends;
}
