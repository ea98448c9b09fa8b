/* test_contexts.c: primary, green and other contexts: the room they need before they are made, the
 * memory that ends with them, and releases that the driver refuses. */
#include "unit.h"

#include "contexts_bench.h"

#include <sched.h>

#include "base/macros.h"

static void cuinit_registers_our_exit_after_the_drivers(void **state)
{
        calls = core_setups = 0;
        driver_says = CUDA_ERROR_NO_DEVICE;
        assert_int_equal(hook_cuInit(5), CUDA_ERROR_NO_DEVICE);
        assert_int_equal(core_setups, 1);
        assert_int_equal(exits, 1);
        driver_says = CUDA_SUCCESS;
}

static void a_program_that_cannot_be_shared_gets_no_driver_and_no_context(void **state)
{
        CUcontext c;
        CUgreenCtx part;

        calls = 0;
        may_start = false;
        assert_int_equal(hook_cuInit(0), CUDA_ERROR_OPERATING_SYSTEM);
        unshared = must_share = true;
        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_ERROR_OPERATING_SYSTEM);
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_OPERATING_SYSTEM);
        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_ERROR_OPERATING_SYSTEM);
        assert_int_equal(calls, 0); /* the driver heard of none of them */
        core.bystander = true;      /* a child after fork: the driver itself refuses its calls */
        assert_int_equal(hook_cuInit(5), CUDA_SUCCESS);
        core.bystander = false;
        unshared = must_share = false;
}

/* The two errors are those that a real driver returns. */
static void a_refused_release_counts_and_ends_nothing(void **state)
{
        CUcontext context;
        CUgreenCtx part;

        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_NOT_PERMITTED);
        assert_non_null(quiesce_context_primary(gpu));
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS);
        assert_non_null(quiesce_context_primary(gpu)); /* alive until retained and released */
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
        assert_non_null(quiesce_context_primary(gpu));
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
}

static void the_last_green_context_ends_an_unretained_primary_context(void **state)
{
        CUgreenCtx first, another;

        arrays = 3 * MIB;
        gpu->unevictable += arrays;
        assert_int_equal(hook_cuGreenCtxCreate(&first, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxCreate(&another, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxDestroy(first), CUDA_SUCCESS);
        assert_non_null(quiesce_context_primary(gpu));
        assert_int_equal(hook_cuGreenCtxDestroy(another), CUDA_SUCCESS);
        assert_null(quiesce_context_primary(gpu));
}

static void bytes_that_end_with_a_context_are_returned_after_it(void **state)
{
        arrays = 3 * MIB;
        gpu->unevictable += arrays;
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS); /* runs check_end() */
        assert_null(quiesce_context_primary(gpu));
}

static void threads_that_retain_one_context_request_room_once(void **state)
{
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        unevictable_asks = 0;
        waits = false;
        in_line = true;
        while_it_asks = start_second;
        (void)retain(NULL);
        (void)pthread_join(second, NULL);
        in_line = false;
        while_it_asks = NULL;
        assert_int_equal(unevictable_asks, 1);
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0),
                         CUDA_SUCCESS); /* one of two retains */
        assert_non_null(quiesce_context_primary(gpu));
}

/* A drain must wait for work in graphics contexts as well. */
static void contexts_of_graphics_are_known(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        assert_non_null(quiesce_context(OF_GL));
        assert_int_equal(hook_cuVDPAUCtxCreate_v2(&c, 0, 0, 7, &parts), CUDA_SUCCESS);
        assert_non_null(quiesce_context(OF_VDPAU));
        assert_int_equal(hook_cuCtxDestroy_v2(OF_GL), CUDA_SUCCESS);
        assert_int_equal(hook_cuCtxDestroy_v2(OF_VDPAU), CUDA_SUCCESS);
        assert_null(quiesce_context(OF_GL));
}

static void two_contexts_that_end_at_once_leave_none_of_them_behind(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuVDPAUCtxCreate_v2(&c, 0, 0, 7, &parts), CUDA_SUCCESS);
        gpu->context = quiesce_context(OF_GL);
        other = OF_VDPAU;
        assert_int_equal(hook_cuCtxDestroy_v2(OF_GL), CUDA_SUCCESS);
        assert_null(other);
        assert_ptr_equal(gpu->context, quiesce_context_primary(gpu));
}

static void pools_learn_of_the_end_of_a_green_context(void **state)
{
        CUgreenCtx part;

        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS);
        assert_ptr_equal(pools_lost, PART);
}

/* ---- contexts that the program creates ---- */

static void a_context_is_made_only_if_there_is_room(void **state)
{
        CUcontext c;

        assert_int_equal(updates, 1);
        assert_ptr_equal(gpu->context,
                         quiesce_context_primary(gpu)); /* our copies run in this one */
        calls = 0;
        unevictable_room = 0;
        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(calls, 0);
        unevictable_room = UINT64_MAX;
        driver_says = CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(gpu->unevictable, gpu->context_bytes); /* only the primary context */
        assert_null(quiesce_context(OF_GL));
        assert_int_equal(updates, 1);
        unshared = true;
        driver_says = CUDA_SUCCESS;
        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        assert_null(quiesce_context(OF_GL));
        unshared = false;
        request_kicks = 0;
        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        assert_int_not_equal(request_kicks, 0);
        assert_int_equal(updates, 2);
        assert_int_equal(gpu->unevictable, 2 * gpu->context_bytes);
        assert_ptr_equal(gpu->context, quiesce_context_primary(gpu));
        assert_int_equal(hook_cuCtxDestroy_v2(OF_GL), CUDA_SUCCESS);
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
}

static struct block *allocate(CUcontext owner)
{
        CUdeviceptr at;
        uint64_t cost;
        struct heap_place p;

        assert_int_equal(heap_allocate(&gpu->heap, 32 * MIB, owner, UINT64_MAX, &at, &cost), 0);
        assert_true(heap_find(&gpu->heap, at, &p));
        return p.block;
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr at,
                             unsigned long long flags)
{
        static CUdeviceptr next = UINT64_C(0x700000000000);

        *ret = next;
        next += bytes;
        return CUDA_SUCCESS;
}

static void the_end_of_a_context_frees_only_its_own_memory(void **state)
{
        struct block *kept;
        CUcontext c;

        real.cuMemAddressReserve = fake_reserve;
        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        kept = allocate(PRIMARY);
        (void)allocate(OF_GL);
        (void)allocate(OF_GL);
        arrays = 3 * MIB;
        gpu->unevictable += arrays;
        assert_int_equal(hook_cuCtxDestroy_v2(OF_GL), CUDA_SUCCESS);
        assert_int_equal(discarded, 2);
        assert_false(kept->dying);
        assert_ptr_equal(bound_lost, OF_GL);
        assert_ptr_equal(pools_lost, OF_GL);
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
        assert_int_equal(core.unbooked, 0);
        assert_ptr_equal(gpu->context,
                         quiesce_context_primary(gpu)); /* our copies' context stays */
        assert_null(gpu->ended);
        arrays = 0;
        heap_bury(&gpu->heap, kept);
}

/* Exceptions: a GPU that has failed, on which work never ends, and a capture, which a wait would
 * break. */
static void the_end_of_a_context_awaits_its_work(void **state)
{
        CUstream stream;
        CUcontext c;

        assert_int_equal(hook_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
                submissions++;
                queried = NULL;
                gpu->error = i == 1 ? CUDA_ERROR_ASSERT : CUDA_SUCCESS;
                if (i == 2)
                        (void)hook_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
                assert_int_equal(hook_cuCtxDestroy_v2(OF_GL), CUDA_SUCCESS);
                assert_ptr_equal(queried, i == 0 ? stream : NULL);
        }
        assert_int_equal(hook_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void a_context_that_the_driver_refuses_to_destroy_lives_on(void **state)
{
        CUgreenCtx part;

        driver_says = CUDA_ERROR_INVALID_CONTEXT;
        assert_int_equal(hook_cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
        assert_int_equal(hook_cuCtxDestroy_v2(PRIMARY), CUDA_ERROR_INVALID_CONTEXT);
        assert_non_null(quiesce_context_primary(gpu));
        driver_says = CUDA_SUCCESS;
        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuCtxDestroy_v2(PART), CUDA_SUCCESS);
        assert_non_null(quiesce_context_green(part));
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS);
}

static void the_last_to_detach_ends_a_context(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        driver_says = CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(hook_cuCtxAttach(&c, 0), CUDA_ERROR_INVALID_VALUE); /* must not count */
        driver_says = CUDA_SUCCESS;
        assert_int_equal(hook_cuCtxAttach(&c, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuCtxDetach(OF_GL), CUDA_SUCCESS);
        assert_non_null(quiesce_context(OF_GL));
        assert_int_equal(hook_cuCtxDetach(OF_GL), CUDA_SUCCESS);
        assert_null(quiesce_context(OF_GL));
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
        assert_int_equal(hook_cuCtxAttach(&c, 0), CUDA_SUCCESS); /* a context that we do not know */
        assert_int_equal(hook_cuCtxDetach(OF_GL), CUDA_SUCCESS);
}

/* ---- the primary context ---- */

static void the_primary_context_ends_with_its_last_release(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_SUCCESS);
        assert_int_equal(gpu->unevictable, gpu->context_bytes); /* still one context */
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_non_null(quiesce_context_primary(gpu));
        assert_null(gpu->ended);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_null(quiesce_context_primary(gpu));
        assert_ptr_equal(gpu->ended, PRIMARY);
        assert_null(gpu->context);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_SUCCESS);
        assert_non_null(quiesce_context_primary(gpu));
        assert_null(gpu->ended);
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
}

static void a_reset_ends_the_context_and_leaves_the_count(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0),
                         CUDA_SUCCESS); /* the second retain */
        assert_int_equal(hook_cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        assert_null(quiesce_context_primary(gpu));
        assert_int_equal(gpu->unevictable, 0);
        assert_ptr_equal(gpu->ended, PRIMARY);
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_SUCCESS);
        for (unsigned i = 0; i < 2; i++) {
                assert_non_null(quiesce_context_primary(gpu));
                assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        }
        assert_non_null(quiesce_context_primary(gpu)); /* one of three retains is left */
}

static void a_reset_beside_green_contexts_ends_nothing(void **state)
{
        CUgreenCtx part;

        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        driver_says = CUDA_ERROR_NOT_PERMITTED;
        assert_int_equal(hook_cuDevicePrimaryCtxReset_v2(0), CUDA_ERROR_NOT_PERMITTED);
        driver_says = CUDA_SUCCESS;
        assert_non_null(quiesce_context_primary(gpu));
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS);
        assert_non_null(quiesce_context_primary(gpu));
}

static void resets_of_unmanaged_devices_go_to_the_driver(void **state)
{
        unsigned rung = bell_listen(&core.changed);

        calls = 0;
        driver_says = CUDA_ERROR_INVALID_DEVICE;
        assert_int_equal(hook_cuDevicePrimaryCtxReset_v2(-1), CUDA_ERROR_INVALID_DEVICE);
        assert_int_equal(hook_cuDevicePrimaryCtxReset_v2(GPUS_MAX), CUDA_ERROR_INVALID_DEVICE);
        assert_int_equal(hook_cuDevicePrimaryCtxReset_v2(1), CUDA_ERROR_INVALID_DEVICE);
        core.bystander = true;
        assert_int_equal(hook_cuDevicePrimaryCtxReset_v2(0), CUDA_ERROR_INVALID_DEVICE);
        core.bystander = false;
        assert_int_equal(calls, 4);
        assert_non_null(quiesce_context_primary(gpu));
        assert_int_equal(bell_listen(&core.changed), rung);
}

static void a_primary_context_that_cannot_be_made_leaves_no_trace(void **state)
{
        CUcontext c;
        CUgreenCtx part;

        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        calls = 0;
        unevictable_room = 0;
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_OUT_OF_MEMORY);
                assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0),
                                 CUDA_ERROR_OUT_OF_MEMORY);
        }
        assert_int_equal(calls, 0);
        unevictable_room = UINT64_MAX;
        driver_says = CUDA_ERROR_UNKNOWN;
        for (unsigned i = 0; i < 2; i++) { /* a second try must not wait for the first */
                assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_UNKNOWN);
                assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_ERROR_UNKNOWN);
        }
        assert_int_equal(gpu->unevictable, 0);
        assert_null(quiesce_context_primary(gpu));
        driver_says = CUDA_SUCCESS;
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_null(quiesce_context_primary(gpu)); /* failed retains do not count */
}

static void release_it(void)
{
        while_it_asks = NULL;
        lock_release(&core_lock);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
        lock_acquire(&core_lock);
}

static void a_release_does_not_wait_for_room(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        while_it_asks = release_it;
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&c, 0), CUDA_SUCCESS);
        assert_null(while_it_asks);
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
}

static void another_thread_retains(void)
{
        while_it_releases = NULL;
        calls = 0;
        assert_int_equal(pthread_create(&second, NULL, retain, NULL), 0);
        while (!waits && !calls)
                (void)sched_yield();
        assert_int_equal(calls, 0);
}

/* Otherwise the context that the driver makes for the retain would be taken for the ending one. */
static void no_thread_retains_a_context_that_is_about_to_end(void **state)
{
        waits = false;
        in_line = true;
        while_it_releases = another_thread_retains;
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_int_equal(pthread_join(second, NULL), 0);
        in_line = false;
        assert_true(waits);
        assert_non_null(quiesce_context_primary(gpu));
        assert_null(gpu->ended);
        assert_int_equal(held, 1);
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
}

static void a_green_context_creates_the_primary_context(void **state)
{
        CUgreenCtx part;

        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(held, 1); /* the green context's own retain */
        assert_int_equal(gpu->unevictable, gpu->context_bytes);
        assert_non_null(quiesce_context_primary(gpu));
        assert_ptr_equal(quiesce_owner(PART), PRIMARY);
        assert_int_equal(updates, 2);
        arrays = 3 * MIB;
        gpu->unevictable += arrays;
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS); /* runs check_end() */
        assert_null(quiesce_context_primary(gpu));
        assert_null(quiesce_context_green(part));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                CONTEXT_TEST(cuinit_registers_our_exit_after_the_drivers),
                CONTEXT_TEST(a_program_that_cannot_be_shared_gets_no_driver_and_no_context),
                CONTEXT_TEST(a_refused_release_counts_and_ends_nothing),
                CONTEXT_TEST(the_last_green_context_ends_an_unretained_primary_context),
                CONTEXT_TEST(bytes_that_end_with_a_context_are_returned_after_it),
                CONTEXT_TEST(threads_that_retain_one_context_request_room_once),
                CONTEXT_TEST(contexts_of_graphics_are_known),
                CONTEXT_TEST(two_contexts_that_end_at_once_leave_none_of_them_behind),
                CONTEXT_TEST(pools_learn_of_the_end_of_a_green_context),
                CONTEXT_TEST(a_context_is_made_only_if_there_is_room),
                CONTEXT_TEST(the_end_of_a_context_frees_only_its_own_memory),
                CONTEXT_TEST(the_end_of_a_context_awaits_its_work),
                CONTEXT_TEST(a_context_that_the_driver_refuses_to_destroy_lives_on),
                CONTEXT_TEST(the_last_to_detach_ends_a_context),
                CONTEXT_TEST(the_primary_context_ends_with_its_last_release),
                CONTEXT_TEST(a_reset_ends_the_context_and_leaves_the_count),
                CONTEXT_TEST(a_reset_beside_green_contexts_ends_nothing),
                CONTEXT_TEST(resets_of_unmanaged_devices_go_to_the_driver),
                CONTEXT_TEST(a_primary_context_that_cannot_be_made_leaves_no_trace),
                CONTEXT_TEST(a_release_does_not_wait_for_room),
                CONTEXT_TEST(no_thread_retains_a_context_that_is_about_to_end),
                CONTEXT_TEST(a_green_context_creates_the_primary_context),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
