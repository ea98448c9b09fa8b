/* test_poison.c: after a context has failed on a GPU, sticky errors belong to that GPU, and all its
 * memory is freed, busy extents last. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/state/poison.h"
#include "preload/move/swap.h"
#include "preload/move/lost.h"

#define BLOCKS 3u

static struct gpu *const gpu = &core.gpus[0], *const other = &core.gpus[1];
static struct block *blocks[BLOCKS]; /* blocks of `gpu`, in the order of their addresses */
static struct block *emptied[2 * BLOCKS];
static unsigned emptied_count, device_asked;
static CUdevice device;
static CUresult device_says;
static void (*while_it_empties)(void);

bool swap_empty(struct gpu *g, struct block *b)
{
        assert_ptr_equal(g, gpu);
        assert_true(b->dying && !b->held);
        assert_true(emptied_count < ARRAY_SIZE(emptied));
        emptied[emptied_count++] = b;
        if (while_it_empties)
                while_it_empties();
        return true;
}

static CUresult fake_device(CUdevice *ret)
{
        device_asked++;
        *ret = device;
        return device_says;
}

static struct block *allocate(struct gpu *g)
{
        CUdeviceptr at;
        uint64_t cost;
        struct heap_place p;

        assert_int_equal(heap_allocate(&g->heap, 32 * MIB, NULL, UINT64_MAX, &at, &cost), 0);
        assert_true(heap_find(&g->heap, at, &p));
        return p.block;
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 2};
        driver_reset(GIB);
        real.cuCtxGetDevice = fake_device;
        for (unsigned i = 0; i < 2; i++) {
                core.gpus[i].managed = true;
                core.gpus[i].index = i;
                heap_init(&core.gpus[i].heap, GIB);
        }
        for (unsigned i = 0; i < BLOCKS; i++)
                blocks[i] = allocate(gpu);
        emptied_count = device_asked = 0;
        request_kicks = 0;
        device = 0;
        device_says = CUDA_SUCCESS;
        while_it_empties = NULL;
        return 0;
}

static int end(void **state)
{
        for (unsigned i = 0; i < 2; i++)
                heap_end(&core.gpus[i].heap);
        return 0;
}

static void errors_after_which_no_call_works_are_sticky(void **state)
{
        static const CUresult for_good[] = {
                CUDA_ERROR_ECC_UNCORRECTABLE,    CUDA_ERROR_ILLEGAL_ADDRESS,
                CUDA_ERROR_LAUNCH_TIMEOUT,       CUDA_ERROR_ASSERT,
                CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                CUDA_ERROR_MISALIGNED_ADDRESS,   CUDA_ERROR_INVALID_ADDRESS_SPACE,
                CUDA_ERROR_INVALID_PC,           CUDA_ERROR_LAUNCH_FAILED,
        };
        static const CUresult passing[] = {
                CUDA_SUCCESS,         CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
                CUDA_ERROR_NOT_READY, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_CONTEXT,
        };

        for (unsigned i = 0; i < ARRAY_SIZE(passing); i++) {
                assert_false(poison_note(gpu, passing[i]));
                assert_int_equal(gpu->error, CUDA_SUCCESS);
        }
        assert_int_equal(request_kicks, 0);
        for (unsigned i = 0; i < ARRAY_SIZE(for_good); i++) {
                gpu->error = CUDA_SUCCESS;
                assert_true(poison_note(gpu, for_good[i]));
                assert_int_equal(gpu->error, for_good[i]);
        }
        assert_int_equal(other->error, CUDA_SUCCESS);
}

static void the_first_error_stays_and_is_reported_once(void **state)
{
        gpu->usage_dirty = false;
        assert_true(poison_note(gpu, CUDA_ERROR_ASSERT));
        assert_true(gpu->usage_dirty);
        assert_int_equal(request_kicks, 1);
        gpu->usage_dirty = false;
        assert_true(poison_note(gpu, CUDA_ERROR_LAUNCH_FAILED));
        assert_int_equal(gpu->error, CUDA_ERROR_ASSERT);
        assert_false(gpu->usage_dirty);
        assert_int_equal(request_kicks, 1);
}

static void a_thread_gets_the_error_of_the_gpu_that_it_uses(void **state)
{
        assert_int_equal(poison_current(), CUDA_SUCCESS);
        /* Each wait at the gate begins with this call, so it must be cheap. */
        assert_int_equal(device_asked, 0);
        assert_true(poison_note(other, CUDA_ERROR_ASSERT));
        assert_int_equal(poison_current(), CUDA_SUCCESS);
        device = 1;
        assert_int_equal(poison_current(), CUDA_ERROR_ASSERT);
        device = GPUS_MAX; /* a device beyond those we track */
        assert_int_equal(poison_current(), CUDA_SUCCESS);
        device = -1;
        assert_int_equal(poison_current(), CUDA_SUCCESS);
        device_says = CUDA_ERROR_LAUNCH_FAILED;
        assert_int_equal(poison_current(), CUDA_ERROR_LAUNCH_FAILED);
}

static void all_memory_of_the_gpu_is_given_back_once(void **state)
{
        assert_false(lost_clean());
        assert_int_equal(emptied_count, 0);
        (void)allocate(other);
        (void)poison_note(gpu, CUDA_ERROR_ASSERT);
        assert_false(lost_clean());
        assert_int_equal(emptied_count, BLOCKS);
        for (unsigned i = 0; i < BLOCKS; i++) {
                assert_true(blocks[i]->dying);
                assert_true(emptied[i] != emptied[(i + 1) % BLOCKS]);
        }
        assert_null(gpu->lost);
        assert_false(lost_clean());
        assert_int_equal(emptied_count, BLOCKS);
}

static void memory_of_an_unmanaged_gpu_is_left_alone(void **state)
{
        (void)poison_note(gpu, CUDA_ERROR_ASSERT);
        gpu->managed = false;
        assert_false(lost_clean());
        assert_int_equal(emptied_count, 0);
}

static void memory_in_use_is_freed_when_its_use_has_ended(void **state)
{
        struct extent *last = &blocks[1]->extents[blocks[1]->extent_count - 1];

        (void)poison_note(gpu, CUDA_ERROR_ASSERT);
        last->busy = true;
        blocks[2]->held = 1;
        assert_true(lost_clean());
        assert_int_equal(emptied_count, 1);
        assert_ptr_equal(emptied[0], blocks[0]);
        blocks[2]->held = 0;
        assert_true(lost_clean());
        assert_int_equal(emptied_count, 2);
        assert_ptr_equal(emptied[1], blocks[2]);
        assert_true(lost_clean());
        last->busy = false;
        assert_false(lost_clean());
        assert_int_equal(emptied_count, 3);
        assert_ptr_equal(emptied[2], blocks[1]);
        assert_null(gpu->lost);
}

static void let_go(void)
{
        blocks[2]->held = 0;
}

/* Emptying a block releases the lock for a while, so that a held block may become free. */
static void a_block_released_during_the_cleaning_is_emptied_too(void **state)
{
        (void)poison_note(gpu, CUDA_ERROR_ASSERT);
        blocks[2]->held = 1;
        while_it_empties = let_go;
        assert_false(lost_clean());
        assert_int_equal(emptied_count, BLOCKS);
}

#define POISON_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                POISON_TEST(errors_after_which_no_call_works_are_sticky),
                POISON_TEST(the_first_error_stays_and_is_reported_once),
                POISON_TEST(a_thread_gets_the_error_of_the_gpu_that_it_uses),
                POISON_TEST(all_memory_of_the_gpu_is_given_back_once),
                POISON_TEST(memory_of_an_unmanaged_gpu_is_left_alone),
                POISON_TEST(memory_in_use_is_freed_when_its_use_has_ended),
                POISON_TEST(a_block_released_during_the_cleaning_is_emptied_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
