/* test_frees.c: memory that a program frees is given back once no work uses it any more. During a
 * capture no stream can be queried, so the memory is given back later. */
#include "unit.h"

#include "memory_bench.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/pool/frees.h"
#include "preload/pool/late_frees.h"

static CUdeviceptr waited_for;
static void it_is_still_there(void)
{
        struct heap_place p;

        assert_true(heap_find(&gpu->heap, waited_for, &p));
        assert_int_equal(discarded, 0);
        assert_int_equal(bench.export_freed, 0);
        waited_for = 0;
}

static void memory_is_freed_after_the_work_that_uses_it(void **state)
{
        waited_for = allocate(12 * MIB);
        while_it_drains = it_is_still_there;
        request_kicks = room_changes = 0;
        bench.export_freed = 0;
        release(waited_for);
        assert_int_equal(waited_for, 0);
        assert_int_equal(discarded, 1);
        assert_int_not_equal(bench.export_freed, 0);
        assert_int_equal(room_changes, 1); /* buffers in host memory may move to the card now */
        assert_int_equal(request_kicks, 1);
        assert_int_equal(bench.passed, 0);
}

static void freeing_one_piece_changes_only_its_slab(void **state)
{
        CUdeviceptr a = allocate(1000), b = allocate(1000);

        request_kicks = 0;
        release(a);
        assert_int_equal(bench.export_freed, a);
        assert_int_equal(discarded + room_changes + request_kicks, 0);
        release(b);
        assert_int_equal(discarded, 1);
        assert_int_equal(request_kicks, 1);
}

static void only_the_start_of_an_allocation_is_freed(void **state)
{
        CUdeviceptr at = allocate(12 * MIB);

        assert_int_equal(hook_cuMemFree_v2(at + 512), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemFree_v2(at + 12 * MIB), THE_DRIVER);
        assert_int_equal(hook_cuMemFree_v2(0), THE_DRIVER);
        assert_int_equal(bench.passed, 2);
        assert_int_equal(discarded, 0);
        atomic_store(&core.bystander, true);
        assert_int_equal(hook_cuMemFree_v2(at), THE_DRIVER);
        atomic_store(&core.bystander, false);
        release(at);
        assert_int_equal(hook_cuMemFree_v2(at), THE_DRIVER);
}

static void another_thread_frees_it(void)
{
        CUdeviceptr at = waited_for;

        while_it_drains = NULL;
        lock_release(&core_lock);
        release(at);
        lock_acquire(&core_lock);
}

static void one_of_two_threads_freeing_the_same_memory_gets_an_error(void **state)
{
        static const uint64_t sizes[] = {12 * MIB, 1000};

        for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
                CUdeviceptr neighbour = allocate(sizes[i]);

                waited_for = allocate(sizes[i]);
                while_it_drains = another_thread_frees_it;
                assert_int_equal(hook_cuMemFree_v2(waited_for), CUDA_ERROR_INVALID_VALUE);
                release(neighbour);
        }
}

static void the_gpu_fails(void)
{
        gpu->error = CUDA_ERROR_LAUNCH_FAILED;
}

static void memory_is_not_freed_if_the_gpu_fails_meanwhile(void **state)
{
        CUdeviceptr at = allocate(12 * MIB);

        while_it_drains = the_gpu_fails;
        bench.export_freed = 0;
        assert_int_equal(hook_cuMemFree_v2(at), CUDA_ERROR_LAUNCH_FAILED);
        assert_int_equal(discarded, 0);
        assert_int_equal(bench.export_freed, 0);
        gpu->error = CUDA_SUCCESS;
        while_it_drains = NULL;
        release(at);
}

static void a_piece_of_a_pool_is_freed_by_the_pool(void **state)
{
        CUdeviceptr a = allocate_from_pool(MIB), b = allocate_from_pool(MIB);

        assert_int_equal(hook_cuMemFree_v2(b), THE_DRIVER); /* the result of the pool */
        assert_int_equal(bench.pool_freed, b);
        assert_int_equal(bench.passed, 0);
        assert_int_equal(hook_cuMemFree_v2(a + 512), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemFree_v2(a), THE_DRIVER);
        assert_int_equal(bench.pool_freed, a);
}

static void it_does_not_wait(void)
{
        fail_msg("cuMemFree of a pool's memory waits");
}

static void a_piece_of_a_pool_is_freed_without_a_wait(void **state)
{
        CUdeviceptr a = allocate_from_pool(MIB), b = allocate_from_pool(MIB);

        while_it_drains = it_does_not_wait;
        assert_int_equal(hook_cuMemFree_v2(a), THE_DRIVER);
        assert_int_equal(bench.pool_freed, a);
        fake_capturing = true;
        assert_int_equal(hook_cuMemFree_v2(b), THE_DRIVER);
        assert_int_equal(bench.pool_freed, b);
}

/* ---- frees during a capture ---- */

/* Allocates memory that work may use, because it is backed. */
static CUdeviceptr allocate_used(uint64_t bytes)
{
        CUdeviceptr at = allocate(bytes);
        struct block *b = block_at(at);

        for (unsigned i = 0; i < b->extent_count; i++) {
                b->extents[i].state = EXTENT_RESIDENT;
                gpu->heap.resident += b->extents[i].bytes;
        }
        return at;
}

static void memory_that_no_work_can_have_used_is_freed_at_once(void **state)
{
        CUdeviceptr at = allocate(12 * MIB);

        fake_capturing = true;
        release(at);
        fake_capturing = false;
        assert_int_equal(discarded, 1);
        assert_int_equal(bench.export_freed, at);
        assert_false(reap());
        assert_int_equal(discarded, 1);
}

static void memory_freed_during_a_capture_goes_after_it(void **state)
{
        CUdeviceptr large = allocate_used(12 * MIB), small = allocate(1000), other = allocate(1000);
        struct heap_place p;

        fake_capturing = true;
        request_kicks = 0;
        release(large);
        assert_int_equal(bench.export_freed, large);
        assert_int_equal(request_kicks, 1);
        release(small);
        assert_int_equal(bench.export_freed, small);
        assert_int_equal(discarded, 0);
        assert_true(heap_find(&gpu->heap, large, &p)); /* still moved like other memory */
        assert_true(heap_find(&gpu->heap, small, &p));
        assert_false(reap()); /* no stream can be queried during the capture */
        assert_int_equal(quiesce_begins, 0);
        fake_capturing = false;
        quiesce_now = QUIESCE_BUSY;
        assert_true(reap());
        assert_true(reap());
        assert_int_equal(quiesce_begins, 1);
        assert_int_equal(discarded, 0);
        quiesce_now = QUIESCE_DONE;
        room_changes = 0;
        assert_false(reap());
        assert_int_equal(discarded, 1);
        assert_int_equal(room_changes, 1);
        assert_false(heap_find(&gpu->heap, large, &p));
        assert_false(heap_find(&gpu->heap, small, &p));
        assert_true(heap_find(&gpu->heap, other, &p));
        release(other);
}

/* A wait does not cover work submitted after it began. It must not begin anew with each free
 * either, or a program that always captures would never get its memory back. */
static void each_late_free_awaits_the_work_submitted_before_it(void **state)
{
        CUdeviceptr at[] = {allocate_used(12 * MIB), allocate_used(12 * MIB), allocate(1000),
                            allocate(1000)};

        quiesce_now = QUIESCE_BUSY;
        for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
                fake_capturing = true;
                release(at[i]);
                fake_capturing = false;
                assert_true(reap());
                assert_int_equal(quiesce_begins, 1);
        }
        quiesce_now = QUIESCE_DONE;
        assert_true(reap());
        assert_int_equal(discarded, 1);
        quiesce_now = QUIESCE_CAPTURE;
        assert_false(reap());
        assert_int_equal(quiesce_begins, 2);
        assert_int_equal(discarded, 1);
        quiesce_now = QUIESCE_DONE;
        assert_false(reap());
        assert_int_equal(quiesce_begins, 2);
        assert_int_equal(discarded, 3); /* two large blocks and the slab */
}

static void a_late_free_waits_for_our_own_copies(void **state)
{
        CUdeviceptr at = allocate_used(12 * MIB), other = allocate_used(12 * MIB);
        struct block *b = block_at(at);

        fake_capturing = true;
        release(other);
        release(at);
        fake_capturing = false;
        b->extents[1].busy = true;
        assert_true(reap());
        assert_int_equal(discarded, 1);
        b->extents[1].busy = false;
        assert_false(reap());
        assert_int_equal(discarded, 2);
}

/* Memory may be freed twice, or end with its context before the late free. The address may then
 * hold another block. */
static void a_late_free_spares_a_later_allocation_at_its_address(void **state)
{
        CUdeviceptr at = allocate(1000), again;
        struct block *dead;

        fake_capturing = true;
        release(at);
        assert_int_equal(hook_cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE); /* the second free */
        fake_capturing = false;
        assert_int_equal(heap_free(&gpu->heap, at, &dead), 0); /* the end of the context */
        heap_bury(&gpu->heap, dead);
        again = allocate(100 * 1000);
        assert_int_equal(again, at);
        assert_false(reap());
        assert_ptr_equal(block_at(again)->owner, OWNER);
        assert_int_equal(discarded, 0);
        release(again);
}

static void a_late_free_spares_an_allocation_that_covers_its_address(void **state)
{
        CUdeviceptr low = allocate(512), at = allocate(512), last = allocate(512);
        struct block *dead;

        fake_capturing = true;
        release(at);
        fake_capturing = false;
        assert_int_equal(heap_free(&gpu->heap, at, &dead), 0);
        assert_int_equal(heap_free(&gpu->heap, low, &dead), 0);
        assert_int_equal(allocate(1024), low); /* covers both old pieces */
        assert_false(reap());
        release(low);
        release(last);
        assert_int_equal(discarded, 1);
}

static void many_late_frees_are_all_remembered(void **state)
{
        CUdeviceptr at[200];
        uint64_t before;

        for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
                at[i] = allocate(1000);
        fake_capturing = true;
        for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
                release(at[i]);
        before = gpu->heap.allocated;
        assert_int_not_equal(before, 0);
        fake_capturing = false;
        assert_false(reap());
        assert_int_equal(gpu->heap.allocated, 0);
}

/* ---- frees in stream order ---- */

#define STREAM (&(struct pool_stream){.handle = (CUstream)(uintptr_t)0x1000, .context = OWNER})
#define OTHER  (&(struct pool_stream){.handle = (CUstream)(uintptr_t)0x2000, .context = OWNER})

static void free_in_order(CUdeviceptr at, const struct pool_stream *s)
{
        struct heap_place p;

        lock_acquire(&core_lock);
        assert_true(heap_find(&gpu->heap, at, &p));
        assert_int_equal(late_free(gpu, &p, s), CUDA_SUCCESS);
        lock_release(&core_lock);
}

static bool awaited(const struct pool_stream *s, uint64_t frees)
{
        bool all;

        lock_acquire(&core_lock);
        all = late_awaited(s, frees);
        lock_release(&core_lock);
        return all;
}

/* Returns how many bytes cuMemGetInfo says are free. */
static size_t told_free(void)
{
        size_t bytes = 0, total;

        bench.driver = CUDA_SUCCESS;
        assert_int_equal(hook_cuMemGetInfo_v2(&bytes, &total), CUDA_SUCCESS);
        bench.driver = THE_DRIVER;
        return bytes;
}

static void memory_freed_in_order_is_free_when_the_program_has_waited(void **state)
{
        CUdeviceptr at = allocate(12 * MIB), other = allocate(12 * MIB);

        quiesce_now = QUIESCE_BUSY; /* other streams have work */
        free_in_order(at, STREAM);
        free_in_order(other, OTHER);
        assert_false(awaited(OTHER, 0)); /* a wait that began before the free */
        assert_int_equal(told_free(), CARD - 24 * MIB);
        assert_false(awaited(STREAM, frees_open()));
        assert_int_equal(told_free(), CARD - 12 * MIB);
        assert_true(awaited(&(struct pool_stream){.context = OWNER}, frees_open()));
        assert_int_equal(told_free(), CARD);
}

static void a_wait_for_an_event_covers_the_streams_without_work(void **state)
{
        CUdeviceptr at = allocate(12 * MIB), other = allocate(12 * MIB);

        quiesce_now = QUIESCE_BUSY;
        free_in_order(at, STREAM);
        free_in_order(other, OTHER);
        bench.busy = OTHER->handle;
        assert_false(awaited(NULL, frees_open()));
        assert_int_equal(told_free(), CARD - 12 * MIB);
        bench.busy = NULL;
        assert_true(awaited(NULL, frees_open()));
        assert_int_equal(told_free(), CARD);
}

static void memory_freed_on_a_stream_that_ends_waits_for_all_work(void **state)
{
        CUdeviceptr at = allocate(12 * MIB);

        quiesce_now = QUIESCE_BUSY;
        free_in_order(at, STREAM);
        lock_acquire(&core_lock);
        late_stream_dies(STREAM->handle);
        lock_release(&core_lock);
        assert_true(awaited(STREAM, frees_open())); /* another stream of this handle */
        assert_true(reap());
        assert_int_equal(discarded, 0);
        quiesce_now = QUIESCE_DONE;
        assert_false(reap());
        assert_int_equal(discarded, 1);
}

/* The driver keeps the memory until the program waits, even if all work is done. */
static void memory_freed_in_order_does_not_wait_for_all_work(void **state)
{
        CUdeviceptr captured = allocate_used(12 * MIB), at = allocate(12 * MIB),
                    other = allocate(12 * MIB);

        fake_capturing = true;
        release(captured);
        fake_capturing = false;
        free_in_order(at, STREAM);
        free_in_order(other, OTHER);
        quiesce_now = QUIESCE_BUSY;
        assert_true(reap());
        request_kicks = 0;
        assert_false(awaited(STREAM, frees_open()));
        assert_int_equal(request_kicks, 1);
        assert_true(reap());
        assert_int_equal(discarded, 1);
        quiesce_now = QUIESCE_DONE;
        assert_false(reap());
        assert_int_equal(discarded, 2);
        assert_false(reap()); /* the agent does not look at the last one again */
        assert_int_equal(quiesce_begins, 1);
        assert_true(awaited(OTHER, frees_open()));
        assert_false(reap());
        assert_int_equal(discarded, 3);
}

static void memory_that_its_stream_has_freed_makes_room(void **state)
{
        CUdeviceptr at = allocate(CARD - 12 * MIB), again;

        free_in_order(at, STREAM);
        bench.busy = STREAM->handle;
        assert_int_equal(hook_cuMemAlloc_v2(&again, CARD - 12 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        bench.busy = NULL;
        again = allocate(CARD - 12 * MIB);
        release(again);
}

static void a_late_free_ends_with_its_context(void **state)
{
        CUdeviceptr at = allocate(12 * MIB);
        struct block *dead;

        free_in_order(at, STREAM);
        assert_int_equal(heap_free(&gpu->heap, at, &dead), 0);
        heap_bury(&gpu->heap, dead);
        assert_true(awaited(OTHER, frees_open()));
        assert_false(reap());
        assert_int_equal(discarded, 0);
}

static void memory_of_graphs_and_of_pools_is_not_free(void **state)
{
        bench.graphs = 32 * MIB;
        assert_int_equal(told_free(), CARD - 32 * MIB);
        bench.pools = 16 * MIB;
        assert_int_equal(told_free(), CARD - 48 * MIB);
}

/* Hooks of other modules call late_free() to free memory of the program. */
static void memory_freed_by_other_modules_waits_as_well(void **state)
{
        CUdeviceptr large = allocate_used(12 * MIB), small = allocate(1000);
        struct heap_place p;

        request_kicks = 0;
        lock_acquire(&core_lock);
        assert_true(heap_find(&gpu->heap, large, &p));
        assert_int_equal(late_free(gpu, &p, NULL), 0);
        assert_int_equal(bench.export_freed, large);
        assert_true(heap_find(&gpu->heap, small, &p));
        assert_int_equal(late_free(gpu, &p, NULL), 0);
        assert_int_equal(bench.export_freed, small);
        lock_release(&core_lock);
        assert_int_equal(request_kicks, 2);
        assert_int_equal(discarded, 0);
        assert_false(reap());
        assert_int_equal(discarded, 2);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                MEMORY_TEST(memory_is_freed_after_the_work_that_uses_it),
                MEMORY_TEST(freeing_one_piece_changes_only_its_slab),
                MEMORY_TEST(only_the_start_of_an_allocation_is_freed),
                MEMORY_TEST(one_of_two_threads_freeing_the_same_memory_gets_an_error),
                MEMORY_TEST(memory_is_not_freed_if_the_gpu_fails_meanwhile),
                MEMORY_TEST(a_piece_of_a_pool_is_freed_by_the_pool),
                MEMORY_TEST(a_piece_of_a_pool_is_freed_without_a_wait),
                MEMORY_TEST(memory_that_no_work_can_have_used_is_freed_at_once),
                MEMORY_TEST(memory_freed_during_a_capture_goes_after_it),
                MEMORY_TEST(each_late_free_awaits_the_work_submitted_before_it),
                MEMORY_TEST(a_late_free_waits_for_our_own_copies),
                MEMORY_TEST(a_late_free_spares_a_later_allocation_at_its_address),
                MEMORY_TEST(a_late_free_spares_an_allocation_that_covers_its_address),
                MEMORY_TEST(many_late_frees_are_all_remembered),
                MEMORY_TEST(memory_freed_in_order_is_free_when_the_program_has_waited),
                MEMORY_TEST(a_wait_for_an_event_covers_the_streams_without_work),
                MEMORY_TEST(memory_freed_on_a_stream_that_ends_waits_for_all_work),
                MEMORY_TEST(memory_freed_in_order_does_not_wait_for_all_work),
                MEMORY_TEST(memory_that_its_stream_has_freed_makes_room),
                MEMORY_TEST(a_late_free_ends_with_its_context),
                MEMORY_TEST(memory_of_graphs_and_of_pools_is_not_free),
                MEMORY_TEST(memory_freed_by_other_modules_waits_as_well),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
