/* test_trouble.c: a driver that fails calls of ours, once or for long, loses no contents. Only a
 * GPU that does nothing any more is given up, and only if memory is away. */
#include "unit.h"

#include "moves_bench.h"

#include <time.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/move/extent.h"
#include "preload/move/trouble.h"
#include "preload/state/virtual.h"
#include "preload/stream/gate.h"

static uint64_t now_ns = 1000 * NSEC_PER_SEC;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

static int begin(void **state)
{
        gate_open(GATE_FAILED);
        return begin_moves(state);
}

/* Lets time pass while the agent takes its steps. */
static void pass(uint64_t ns, bool may_evict, bool restore)
{
        for (uint64_t end = now_ns + ns; now_ns < end; now_ns += 5 * NSEC_PER_MSEC) {
                (void)swap_step(gpu, may_evict, restore);
                (void)driver_run(8);
                check_accounts();
        }
}

static void go_out(uint64_t ns)
{
        gpu->limit = 0;
        pass(ns, true, false);
}

static void come_back(uint64_t ns)
{
        gpu->limit = UINT64_MAX;
        pass(ns, false, true);
}

static void check_shared(void)
{
        assert_false(core.bystander);
        assert_int_equal(gpu->error, CUDA_SUCCESS);
        assert_false(atomic_load(&gate_bits) & GATE_FAILED);
}

static void a_call_that_fails_once_loses_nothing(void **state)
{
        static const CUresult errors[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OPERATING_SYSTEM,
                                          CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

        driver.ends_fail = true;
        (void)allocate(8);
        come_back(NSEC_PER_SEC / 10);
        run_program();
        for (unsigned k = 0; k < ARRAY_SIZE(errors); k++) {
                unsigned n = 0;

                do {
                        driver_fail(++n, errors[k]);
                        go_out(NSEC_PER_SEC / 10);
                        come_back(NSEC_PER_SEC / 10);
                        check_shared();
                        run_program();
                } while (driver.failed);
                assert_in_range(n, 16, 60);
        }
        driver.ends_fail = false;
}

static void calls_that_fail_in_a_row_lose_nothing(void **state)
{
        driver.ends_fail = true;
        (void)allocate(8);
        come_back(NSEC_PER_SEC / 10);
        run_program();
        for (driver.more = 1; driver.more < 4; driver.more++) {
                unsigned n = 0;

                do {
                        driver_fail(++n, CUDA_ERROR_UNKNOWN);
                        go_out(NSEC_PER_SEC);
                        come_back(NSEC_PER_SEC);
                        check_shared();
                        run_program();
                } while (driver.failed);
        }
        driver.more = 0;
        driver.ends_fail = false;
}

static CUresult (*map)(CUdeviceptr at, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags);

static CUresult map_no_heap(CUdeviceptr at, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
        return heap_holds(&gpu->heap, at) ? CUDA_ERROR_UNKNOWN
                                          : map(at, bytes, offset, handle, flags);
}

static void a_gpu_that_passes_the_test_is_never_given_up(void **state)
{
        (void)allocate(8);
        come_back(NSEC_PER_SEC / 10);
        run_program();
        go_out(NSEC_PER_SEC / 10);
        map = real.cuMemMap;
        real.cuMemMap = map_no_heap;
        come_back(100 * NSEC_PER_SEC);
        check_shared();
        assert_true(gpu->trouble.told);
        assert_int_equal(gpu->heap.resident, 0);
        real.cuMemMap = map;
        come_back(3 * NSEC_PER_SEC);
        assert_false(gpu->trouble.told);
        run_program();
}

static void a_gpu_that_fails_all_is_given_up_after_half_a_minute(void **state)
{
        (void)allocate(8);
        come_back(NSEC_PER_SEC / 10);
        run_program();
        go_out(NSEC_PER_SEC / 10);
        driver_die(CUDA_ERROR_UNKNOWN);
        come_back(29 * NSEC_PER_SEC);
        check_shared();
        come_back(4 * NSEC_PER_SEC);
        assert_int_equal(gpu->error, CUDA_ERROR_UNKNOWN);
        assert_true(atomic_load(&gate_bits) & GATE_FAILED);
        assert_false(core.bystander);
        assert_int_equal(gpu->heap.backed, 0);
}

static void memory_on_a_gpu_that_fails_all_stays_there(void **state)
{
        (void)allocate(8);
        come_back(NSEC_PER_SEC / 10);
        run_program();
        driver_die(CUDA_ERROR_UNKNOWN);
        go_out(70 * NSEC_PER_SEC);
        check_shared();
        assert_true(gpu->trouble.told);
        driver.dead = false;
        run_program();
        go_out(3 * NSEC_PER_SEC);
        assert_int_equal(gpu->heap.backed, 0);
        come_back(NSEC_PER_SEC / 10);
        run_program();
}

static void memory_that_the_driver_keeps_is_released_later(void **state)
{
        (void)allocate(8);
        come_back(NSEC_PER_SEC / 10);
        driver.ends_fail = true;
        for (unsigned n = 1; n <= 2; n++) { /* cuMemUnmap, cuMemRelease */
                struct block *late;

                (void)allocate(4);
                come_back(NSEC_PER_SEC / 10);
                driver_fail(n, CUDA_ERROR_UNKNOWN);
                give_back(&things[1]);
                late = gpu->late;
                assert_non_null(late);
                assert_int_equal(gpu->heap.backed, 3 * EXTENT);
                lock_acquire(&core_lock);
                assert_true(trouble_waits(gpu));
                gpu->late = late->next_late;
                swap_discard(gpu, late);
                assert_null(gpu->late);
                lock_release(&core_lock);
                check_accounts();
                assert_int_equal(gpu->heap.backed, 2 * EXTENT);
        }
        driver.ends_fail = false;
}

/* The program may release its handle before the memory is gone. */
static void memory_that_the_driver_keeps_forgets_the_programs_handle(void **state)
{
        struct handle handle = {.prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}};
        struct block *b;

        assert_int_equal(heap_create(&gpu->heap, EXTENT, &handle, UINT64_MAX, &b), 0);
        come_back(NSEC_PER_SEC / 10);
        b->dying = true;
        driver.ends_fail = true;
        driver_fail(1, CUDA_ERROR_UNKNOWN);
        lock_acquire(&core_lock);
        swap_discard(gpu, b);
        lock_release(&core_lock);
        assert_ptr_equal(gpu->late, b);
        assert_null(b->handle);
        gpu->late = NULL;
        lock_acquire(&core_lock);
        swap_discard(gpu, b);
        lock_release(&core_lock);
        assert_null(gpu->late);
        driver.ends_fail = false;
}

static unsigned asked;

static CUresult fail_to_wait(CUstream s)
{
        return CUDA_ERROR_UNKNOWN;
}

static CUresult fail_to_tell(CUevent done)
{
        return CUDA_ERROR_UNKNOWN;
}

static CUresult answer_late(CUstream s)
{
        switch (asked++) {
        case 0:
                return CUDA_ERROR_UNKNOWN;
        case 1:
        case 2:
                return CUDA_ERROR_NOT_READY;
        default:
                return CUDA_SUCCESS;
        }
}

static void a_failed_wait_goes_on_until_the_copies_have_ended(void **state)
{
        struct real_driver before = real;

        real.cuStreamSynchronize = fail_to_wait;
        real.cuStreamQuery = answer_late;
        asked = 0;
        assert_int_equal(trouble_await(NULL), CUDA_SUCCESS);
        assert_int_equal(asked, 4);
        real.cuStreamQuery = fail_to_wait;
        assert_int_equal(trouble_await(NULL), CUDA_ERROR_UNKNOWN);
        real = before;
}

/* The context ends while the driver fails: memory that was about to leave is still on the card. */
static void leaving_memory_stays_if_its_context_ends_amid_failures(void **state)
{
        CUresult (*query)(CUevent done) = real.cuEventQuery;

        (void)allocate(12);
        come_back(NSEC_PER_SEC / 10);
        run_program();
        gpu->limit = 0;
        (void)swap_step(gpu, true, false);
        (void)swap_step(gpu, true, false);
        assert_int_equal(gpu->heap.resident, EXTENT);
        real.cuEventQuery = fail_to_tell;
        lock_acquire(&core_lock);
        swap_retire(gpu);
        lock_release(&core_lock);
        real.cuEventQuery = query;
        assert_int_equal(gpu->heap.resident, 3 * EXTENT);
        check_accounts();
        gpu->context = &context;
        run_program();
        go_out(3 * NSEC_PER_SEC);
        assert_int_equal(gpu->heap.backed, 0);
        come_back(NSEC_PER_SEC / 10);
        run_program();
}

static CUresult map_only_heap(CUdeviceptr at, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
        if (heap_holds(&gpu->heap, at))
                return map(at, bytes, offset, handle, flags);
        asked++;
        return CUDA_ERROR_UNKNOWN;
}

/* Memory that the program has not mapped is copied through our own mapping. */
static void an_eviction_without_a_window_is_tried_ever_more_seldom(void **state)
{
        struct block *b;

        assert_int_equal(heap_create(&gpu->heap, EXTENT, NULL, UINT64_MAX, &b), 0);
        come_back(NSEC_PER_SEC / 10);
        assert_int_equal(gpu->heap.resident, EXTENT);
        asked = 0;
        map = real.cuMemMap;
        real.cuMemMap = map_only_heap;
        go_out(NSEC_PER_SEC);
        real.cuMemMap = map;
        assert_in_range(asked, 4, 8);
        check_shared();
        assert_int_equal(gpu->heap.resident, EXTENT);
        go_out(3 * NSEC_PER_SEC);
        assert_int_equal(gpu->heap.backed, 0);
        b->dying = true;
        lock_acquire(&core_lock);
        swap_discard(gpu, b);
        lock_release(&core_lock);
        (void)real.cuMemAddressFree(gpu->windows, EXTENT_WINDOWS * EXTENT);
        gpu->windows = 0;
}

/* Whoever made the failed call may have gone. */
static void trouble_without_attempts_is_forgotten(void **state)
{
        (void)allocate(4);
        come_back(NSEC_PER_SEC / 10);
        lock_acquire(&core_lock);
        trouble_note(gpu, CUDA_ERROR_UNKNOWN);
        assert_true(trouble_stands(gpu));
        lock_release(&core_lock);
        assert_int_equal(swap_step(gpu, false, false), SWAP_LATER);
        pass(6 * NSEC_PER_SEC, false, false);
        assert_int_equal(swap_step(gpu, false, false), SWAP_NOTHING);
        pass(60 * NSEC_PER_SEC, false, false);
        assert_false(gpu->trouble.told);
        check_shared();
}

int main(void)
{
#define TROUBLE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end_moves)
        const struct CMUnitTest tests[] = {
                TROUBLE_TEST(a_call_that_fails_once_loses_nothing),
                TROUBLE_TEST(calls_that_fail_in_a_row_lose_nothing),
                TROUBLE_TEST(a_gpu_that_passes_the_test_is_never_given_up),
                TROUBLE_TEST(a_gpu_that_fails_all_is_given_up_after_half_a_minute),
                TROUBLE_TEST(memory_on_a_gpu_that_fails_all_stays_there),
                TROUBLE_TEST(memory_that_the_driver_keeps_is_released_later),
                TROUBLE_TEST(memory_that_the_driver_keeps_forgets_the_programs_handle),
                TROUBLE_TEST(a_failed_wait_goes_on_until_the_copies_have_ended),
                TROUBLE_TEST(leaving_memory_stays_if_its_context_ends_amid_failures),
                TROUBLE_TEST(an_eviction_without_a_window_is_tried_ever_more_seldom),
                TROUBLE_TEST(trouble_without_attempts_is_forgotten),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
