/* test_streams.c: drains query every stream of the program, and captures end with their streams. */
#include "unit.h"

#include "contexts_bench.h"

/* ---- streams ---- */

/* True if a drain queries the stream. */
static bool is_drained(void)
{
        struct quiesce_wait w = {0};

        queried = NULL;
        lock_acquire(&core_lock);
        quiesce_begin(&w, true);
        (void)quiesce_poll(&w);
        lock_release(&core_lock);
        return queried == STREAM;
}

static void a_drain_queries_exactly_the_existing_streams(void **state)
{
        CUstream stream;
        CUgreenCtx part;

        assert_false(is_drained());
        assert_int_equal(hook_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
        assert_true(is_drained());
        assert_int_equal(hook_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        assert_ptr_equal(bound_stream_lost, STREAM);
        assert_ptr_equal(pool_stream_lost, STREAM);
        assert_false(is_drained());
        assert_int_equal(hook_cuStreamCreateWithPriority(&stream, 0, 1), CUDA_SUCCESS);
        assert_true(is_drained());
        assert_int_equal(hook_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        driver_says = CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(hook_cuGreenCtxStreamCreate(&stream, part, 0, 0),
                         CUDA_ERROR_INVALID_VALUE);
        assert_false(is_drained());
        driver_says = CUDA_SUCCESS;
        assert_int_equal(hook_cuGreenCtxStreamCreate(&stream, part, 0, 0), CUDA_SUCCESS);
        assert_true(is_drained());
        submissions++;
        queried = NULL;
        /* The end of the green context destroys the stream, too. */
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS);
        assert_ptr_equal(queried, stream); /* the destruction waits for its work */
        assert_ptr_equal(bound_lost, PART);
        assert_false(is_drained());
}

static void streams_of_a_bystander_are_not_recorded(void **state)
{
        CUstream stream;

        core.bystander = true;
        assert_int_equal(hook_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        assert_null(bound_stream_lost);
        assert_null(pool_stream_lost);
        core.bystander = false;
        assert_false(is_drained());
}

/* ---- captures ---- */

static void a_capture_that_ends_with_its_stream_wakes_the_agent(void **state)
{
        CUstream stream;

        assert_int_equal(hook_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                         CUDA_SUCCESS);
        assert_true(quiesce_capturing());
        request_kicks = 0;
        assert_int_equal(hook_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        assert_false(quiesce_capturing());
        assert_int_not_equal(request_kicks, 0);
}

static void a_capture_that_does_not_begin_wakes_the_agent(void **state)
{
        request_kicks = 0;
        assert_int_equal(
                hook_cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                CUDA_ERROR_INVALID_VALUE);
        assert_int_not_equal(request_kicks, 0);
}

static unsigned probes, probes_gone;

static CUresult fake_probe(CUevent *ret, unsigned flags)
{
        probes++;
        *ret = (CUevent)(uintptr_t)0x7000;
        return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
        return driver_says;
}

static CUresult fake_probe_gone(CUevent event)
{
        assert_ptr_equal(event, (CUevent)(uintptr_t)0x7000);
        probes_gone++;
        return CUDA_SUCCESS;
}

static CUresult fake_end_capture(CUstream stream, CUgraph *ret)
{
        return driver_says;
}

static void with_probes(void)
{
        probes = probes_gone = 0;
        real.cuEventCreate = fake_probe;
        real.cuEventRecord = fake_record;
        real.cuEventDestroy_v2 = fake_probe_gone;
        real.cuStreamEndCapture = fake_end_capture;
        real.cuStreamEndCapture_ptsz = fake_end_capture;
        real.cuStreamBeginCapture_v2_ptsz = fake_begin_capture;
        capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
}

static void a_capture_is_over_when_its_stream_says_so(void **state)
{
        CUgraph graph;

        with_probes();
        assert_int_equal(hook_cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL),
                         CUDA_SUCCESS);
        assert_int_equal(passed, 1);
        assert_int_equal(at_the_gate.inside, 0);
        assert_true(quiesce_capturing());
        assert_int_equal(probes, 1);
        capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        driver_says = CUDA_ERROR_UNKNOWN;
        assert_int_equal(hook_cuStreamEndCapture(STREAM, &graph), CUDA_ERROR_UNKNOWN);
        assert_ptr_equal(capture_asked, STREAM);
        assert_true(quiesce_capturing());
        assert_int_equal(probes_gone, 0);
        capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
        assert_int_equal(hook_cuStreamEndCapture(STREAM, &graph), CUDA_ERROR_UNKNOWN);
        assert_false(quiesce_capturing());
        assert_int_equal(probes_gone, 1);
}

static void the_probe_event_of_a_capture_is_destroyed(void **state)
{
        with_probes();
        /* The driver refuses to begin the capture. */
        assert_int_equal(hook_cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_RELAXED),
                         CUDA_ERROR_INVALID_VALUE);
        assert_false(quiesce_capturing());
        assert_int_equal(probes, 1);
        assert_int_equal(probes_gone, 1);
        /* The stream captures already or cannot capture: no event is recorded in it. */
        capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        (void)hook_cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_RELAXED);
        assert_int_equal(probes, 2);
        capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
        (void)hook_cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED);
        assert_int_equal(probes, 2);
        /* Recording the event fails. */
        driver_says = CUDA_ERROR_UNKNOWN;
        (void)hook_cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert_true(quiesce_capturing());
        assert_int_equal(probes_gone, probes);
        (void)hook_cuStreamEndCapture(STREAM, &(CUgraph){0});
        assert_false(quiesce_capturing());
        assert_int_equal(probes_gone, probes);
}

static void a_null_stream_is_the_threads_own_in_ptsz_calls(void **state)
{
        CUgraph graph;

        with_probes();
        assert_int_equal(hook_cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
                         CUDA_SUCCESS);
        assert_true(quiesce_capturing());
        /* This call is about another stream. */
        assert_int_equal(hook_cuStreamEndCapture(NULL, &graph), CUDA_SUCCESS);
        assert_true(quiesce_capturing());
        assert_int_equal(hook_cuStreamEndCapture_ptsz(NULL, &graph), CUDA_SUCCESS);
        assert_ptr_equal(capture_asked, CU_STREAM_PER_THREAD);
        assert_false(quiesce_capturing());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                CONTEXT_TEST(a_drain_queries_exactly_the_existing_streams),
                CONTEXT_TEST(streams_of_a_bystander_are_not_recorded),
                CONTEXT_TEST(a_capture_that_ends_with_its_stream_wakes_the_agent),
                CONTEXT_TEST(a_capture_that_does_not_begin_wakes_the_agent),
                CONTEXT_TEST(a_capture_is_over_when_its_stream_says_so),
                CONTEXT_TEST(the_probe_event_of_a_capture_is_destroyed),
                CONTEXT_TEST(a_null_stream_is_the_threads_own_in_ptsz_calls),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
