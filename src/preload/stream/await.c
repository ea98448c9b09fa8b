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
/* A thread that captures for so long may wait for this one. */
#define CAPTURE_NS NSEC_PER_SEC

struct work {
        CUstream stream; /* of a stream; otherwise event is set */
        CUevent event;
        uint64_t submissions; /* gate_submissions() when the wait began */
};

/* True if the work goes on. It is no longer what the call waits for if another thread has submitted
 * meanwhile. An event that another thread records again is not noticed. */
static bool is_busy(const struct work *of)
{
        return !core_passive() && gate_submissions() == of->submissions &&
               (of->event ? real.cuEventQuery(of->event) : real.cuStreamQuery(of->stream)) ==
                       CUDA_ERROR_NOT_READY;
}

/* A capture that another thread begins meanwhile forbids questions, and the driver's wait, too. So
 * this waits for its end. */
static void await_capture_end(void)
{
        const uint64_t until_ns = clock_now_ns() + CAPTURE_NS;

        while (quiesce_capturing() && clock_now_ns() < until_ns)
                (void)nap(NSEC_PER_MSEC);
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

static bool ask(const struct work *work)
{
        const uint64_t begin_ns = clock_now_ns();
        struct interrupt_wait w = {0};

        interrupt_begin(&w);
        while (is_busy(work)) {
                const uint64_t waited_ns = clock_now_ns() - begin_ns;

                if (waited_ns < SHORT_NS) {
                        pause_after(waited_ns);
                } else {
                        if (rm_stands_still() && is_interrupted(&w))
                                return true;
                        (void)nap(MIN(waited_ns / PART, NAP_NS));
                }
                await_capture_end();
        }
        await_capture_end();
        return false;
}

static bool await(CUstream stream, CUevent event)
{
        const struct work work = {stream, event, gate_submissions()};
        CUstreamCaptureMode mode;
        bool ends;

        if (quiesce_capturing())
                return false; /* the driver says whether its wait is allowed */
        mode = core_relax();
        ends = is_busy(&work) && ask(&work);
        core_unrelax(mode);
        return ends;
}

bool await_stream(CUstream stream)
{
        return unlikely(interrupt_may_come()) && await(stream, NULL);
}

bool await_event(CUevent event)
{
        return unlikely(interrupt_may_come()) && event && await(NULL, event);
}

/* Under core_lock no capture begins: a record of the whole context would break it. */
static bool record(CUcontext context, CUevent event)
{
        bool done;

        lock_acquire(&core_lock);
        done = !quiesce_capturing() && real.cuCtxRecordEvent(context, event) == CUDA_SUCCESS;
        lock_release(&core_lock);
        return done;
}

bool await_context(CUcontext context)
{
        CUevent event;
        bool ends;

        if (likely(!interrupt_may_come()) || quiesce_capturing() ||
            (!context && real.cuCtxGetCurrent(&context) != CUDA_SUCCESS) ||
            real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
                return false;
        ends = record(context, event) && await(NULL, event);
        (void)real.cuEventDestroy_v2(event);
        return ends;
}
