/* test_await.c: an interrupt ends a wait for work only while the program stands still, and only in
 * the main thread of a Python program. */
#include "unit.h"

#include "base/clock.h"
#include "fakes/preload.h"
#include "preload/rm/rm.h"
#include "preload/stream/await.h"
#include "preload/stream/interrupt.h"
#include "preload/stream/quiesce.h"

#define STREAM  ((CUstream)(uintptr_t)0x1000)
#define EVENT   ((CUevent)(uintptr_t)0x2000)
#define CONTEXT ((CUcontext)(uintptr_t)0xc0)

static bool python_there, interrupted, off, capture_begins, other_submits;
static unsigned asked, events;
static uint64_t end_ns, capture_end_ns; /* when the work and the capture end */
static CUstreamCaptureMode mode_now;
static CUevent asked_of;
static CUresult recorded;

bool interrupt_may_come(void)
{
        return python_there;
}

bool interrupt_ends(struct interrupt_wait *w, uint64_t *ret_timeout_ns)
{
        want_lock();
        *ret_timeout_ns = UINT64_MAX;
        return interrupted;
}

bool rm_stands_still(void)
{
        want_no_lock();
        return off;
}

bool quiesce_capturing(void)
{
        if (capture_begins && asked == 3 && !capture_end_ns)
                capture_end_ns = clock_now_ns() + 20 * NSEC_PER_MSEC;
        return clock_now_ns() < capture_end_ns;
}

static CUresult stream_query(CUstream stream)
{
        assert_ptr_equal(stream, STREAM);
        assert_int_equal(mode_now, CU_STREAM_CAPTURE_MODE_RELAXED);
        submissions += other_submits && asked == 2;
        asked++;
        return clock_now_ns() < end_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
        asked_of = event;
        asked++;
        return clock_now_ns() < end_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
        const CUstreamCaptureMode was = mode_now;

        mode_now = *mode;
        *mode = was;
        return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret_event, unsigned flags)
{
        *ret_event = EVENT;
        events++;
        return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
        assert_ptr_equal(event, EVENT);
        events--;
        return CUDA_SUCCESS;
}

static CUresult record(CUcontext context, CUevent event)
{
        assert_ptr_equal(context, CONTEXT);
        return recorded;
}

static int begin(void **state)
{
        python_there = true;
        interrupted = off = capture_begins = other_submits = false;
        asked = 0;
        end_ns = UINT64_MAX;
        capture_end_ns = 0;
        mode_now = CU_STREAM_CAPTURE_MODE_GLOBAL;
        recorded = CUDA_SUCCESS;
        real.cuThreadExchangeStreamCaptureMode = exchange_mode;
        real.cuStreamQuery = stream_query;
        real.cuEventQuery = event_query;
        real.cuEventCreate = event_create;
        real.cuEventDestroy_v2 = event_destroy;
        real.cuCtxRecordEvent = record;
        return 0;
}

static void other_programs_and_threads_do_not_ask(void **state)
{
        python_there = false;
        interrupted = off = true;
        assert_false(await_stream(STREAM) || await_event(EVENT) || await_context(CONTEXT));
        assert_int_equal(asked + events, 0);
}

static void an_interrupt_ends_each_wait_of_a_program_that_stands_still(void **state)
{
        interrupted = off = true;
        assert_true(await_stream(STREAM));
        assert_true(await_event(EVENT));
        asked_of = NULL;
        assert_true(await_context(CONTEXT));
        assert_ptr_equal(asked_of, EVENT);
        assert_int_equal(events, 0);
}

/* Waits for work that takes longer than the thread spins. */
static void wait_long(void)
{
        end_ns = clock_now_ns() + 80 * NSEC_PER_MSEC;
        assert_false(await_stream(STREAM));
        assert_true(clock_now_ns() >= end_ns);
}

static void an_interrupt_does_not_end_the_wait_of_a_program_that_runs(void **state)
{
        interrupted = true;
        wait_long();
}

static void a_program_that_stands_still_waits_on_without_an_interrupt(void **state)
{
        off = true;
        wait_long();
}

/* Neither a question nor the driver's wait may come within it. */
static void a_wait_goes_on_after_a_capture_that_another_thread_begins(void **state)
{
        capture_begins = true;
        end_ns = clock_now_ns() + 5 * NSEC_PER_MSEC;
        assert_false(await_stream(STREAM));
        assert_int_equal(asked, 4);
        assert_true(capture_end_ns && clock_now_ns() >= capture_end_ns);
}

static void a_wait_within_a_capture_is_the_drivers(void **state)
{
        capture_end_ns = UINT64_MAX;
        assert_false(await_stream(STREAM) || await_event(EVENT) || await_context(CONTEXT));
        assert_int_equal(asked + events, 0);
}

static void a_wait_ends_when_another_thread_submits(void **state)
{
        other_submits = true;
        assert_false(await_stream(STREAM));
        assert_int_equal(asked, 3);
}

static void a_driver_without_events_of_contexts_waits_itself(void **state)
{
        recorded = CUDA_ERROR_NOT_SUPPORTED;
        interrupted = off = true;
        assert_false(await_context(CONTEXT));
        assert_int_equal(asked + events, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(other_programs_and_threads_do_not_ask, begin),
                cmocka_unit_test_setup(an_interrupt_ends_each_wait_of_a_program_that_stands_still,
                                       begin),
                cmocka_unit_test_setup(an_interrupt_does_not_end_the_wait_of_a_program_that_runs,
                                       begin),
                cmocka_unit_test_setup(a_program_that_stands_still_waits_on_without_an_interrupt,
                                       begin),
                cmocka_unit_test_setup(a_wait_goes_on_after_a_capture_that_another_thread_begins,
                                       begin),
                cmocka_unit_test_setup(a_wait_within_a_capture_is_the_drivers, begin),
                cmocka_unit_test_setup(a_wait_ends_when_another_thread_submits, begin),
                cmocka_unit_test_setup(a_driver_without_events_of_contexts_waits_itself, begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
