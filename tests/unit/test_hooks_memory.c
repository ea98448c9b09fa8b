/* test_hooks_memory.c: a program gets memory that is promised to it or for which room can be made.
 * Other requests are refused, or left to the driver. */
#include "unit.h"

#include "memory_bench.h"

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/pool/room.h"
#include "preload/pool/late_frees.h"

static void promised_memory_is_given_without_asking(void **state)
{
        CUdeviceptr at;

        gpu->commit = 32 * MIB;
        at = allocate(32 * MIB);
        assert_int_equal(bench.asks, 0);
        assert_ptr_equal(block_at(at)->owner, OWNER);
        assert_int_equal(block_at(at)->requested, 32 * MIB);
        assert_true(gpu->usage_dirty);
        assert_int_not_equal(gpu->commit_used_ns, 0);
        assert_int_equal(atomic_load(&gate_bits), GATE_UNBACKED); /* the memory is not backed yet */
        release(at);
}

static void an_allocation_that_changes_no_figure_is_not_reported(void **state)
{
        CUdeviceptr first = allocate(1000), second;

        assert_true(gpu->usage_dirty);
        gpu->told.usage.allocated = gpu->heap.allocated;
        gpu->usage_dirty = false;
        second = allocate(1000);
        assert_false(gpu->usage_dirty);
        release(first);
        release(second);
}

static void only_more_memory_than_ever_before_is_growth(void **state)
{
        CUdeviceptr at = allocate(32 * MIB);

        assert_int_not_equal(gpu->grew_ns, 0);
        release(at);
        gpu->grew_ns = 0;
        release(allocate(32 * MIB));
        assert_int_equal(gpu->grew_ns, 0);
        release(allocate(34 * MIB));
        assert_int_not_equal(gpu->grew_ns, 0);
}

static void memory_backed_at_once_keeps_the_gate_open(void **state)
{
        CUdeviceptr at;

        gpu->limit = UINT64_MAX;
        at = allocate(10 * MIB);
        assert_int_equal(gpu->heap.resident, 10 * MIB);
        assert_int_equal(atomic_load(&gate_bits), 0);
        release(at);
}

static void unpromised_memory_is_requested_in_blocks(void **state)
{
        CUdeviceptr a, b, c;

        gpu->commit = 0;
        gpu->block_bytes = 16 * MIB;
        bench.daemon_has = 20 * MIB;
        a = allocate(3 * MIB);
        assert_int_equal(bench.asks, 1);
        assert_int_equal(bench.asked[0], 16 * MIB);
        b = allocate(12 * MIB);
        assert_int_equal(bench.asks, 1); /* the first block has room for b */
        c = allocate(4 * MIB);           /* a second block is refused, 4 MiB are granted */
        assert_int_equal(bench.asks, 3);
        assert_int_equal(bench.asked[1], 32 * MIB);
        assert_int_equal(bench.asked[2], 20 * MIB);
        release(a);
        release(b);
        release(c);
}

static void a_request_never_exceeds_the_visible_size(void **state)
{
        CUdeviceptr a, b, more;

        gpu->commit = 0;
        gpu->block_bytes = 16 * MIB;
        gpu->visible = 28 * MIB;
        gpu->unevictable = 2 * MIB;
        bench.daemon_has = CARD;
        a = allocate(18 * MIB);
        assert_int_equal(bench.asks, 1);
        assert_int_equal(bench.asked[0], 26 * MIB);
        b = allocate(8 * MIB);
        assert_int_equal(bench.asks, 1);
        assert_int_equal(hook_cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bench.asks, 1);
        release(a);
        release(b);
}

static void a_refused_allocation_asks_the_daemon_once(void **state)
{
        CUdeviceptr at = 7;

        gpu->commit = 0;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 4 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bench.asks, 1); /* the block is no larger than the allocation */
        assert_int_equal(bench.asked[0], 4 * MIB);
        assert_int_equal(at, 7);
        assert_int_equal(bench.told, 0);
        assert_int_equal(atomic_load(&gate_bits), 0);
        assert_int_equal(gpu->commit_used_ns, 0);
}

static void a_commit_request_may_exceed_the_visible_size(void **state)
{
        gpu->visible = 20 * MIB;
        bench.daemon_has = CARD;
        lock_acquire(&core_lock);
        assert_int_equal(room_commit(gpu, 40 * MIB), 0);
        lock_release(&core_lock);
        assert_int_equal(bench.asked[0], 40 * MIB);
}

static uint64_t reclaimed;
static bool reclaim_all(uint64_t bytes)
{
        struct block *dead;

        assert_int_equal(heap_free(&gpu->heap, reclaimed, &dead), 0);
        heap_bury(&gpu->heap, dead);
        bench.reclaim = NULL;
        reclaimed = bytes;
        return true;
}

static bool reclaim_is_not_called(uint64_t bytes)
{
        fail();
        return true;
}

static void room_that_the_card_can_never_have_is_refused_at_once(void **state)
{
        gpu->visible = 64 * MIB;
        gpu->unevictable = 4 * MIB;
        bench.daemon_has = CARD;
        bench.reclaim = reclaim_is_not_called;
        lock_acquire(&core_lock);
        assert_false(room_grow(gpu, 60 * MIB + 1));
        assert_int_equal(bench.asks, 0);
        assert_true(room_grow(gpu, 60 * MIB));
        assert_int_equal(bench.asks, 1);
        lock_release(&core_lock);
}

static void an_allocation_reclaims_unused_memory_of_pools(void **state)
{
        CUdeviceptr at;

        gpu->commit = gpu->visible = 64 * MIB;
        reclaimed = allocate(40 * MIB);
        bench.reclaim = reclaim_all;
        at = allocate(30 * MIB);
        assert_int_equal(reclaimed, 30 * MIB);
        assert_int_equal(bench.asks, 0); /* a request would exceed the visible size */
        release(at);
        /* The pools give back memory also if the daemon has no more. */
        reclaimed = allocate(16 * MIB);
        gpu->commit = 20 * MIB;
        bench.reclaim = reclaim_all;
        at = allocate(20 * MIB);
        assert_int_equal(bench.asks, 1);
        release(at);
}

static CUdeviceptr adopted;
static void it_leaves(void)
{
        gpu->home.answer = HOME_LEAVES;
}

static void it_is_freed_meanwhile(void)
{
        it_leaves();
        lock_acquire(&core_lock);
        gpu->heap.allocated -= 48 * MIB;
        gpu->heap.managed_bytes -= 48 * MIB;
        heap_withdraw(&gpu->heap, heap_adopted(&gpu->heap, adopted, 1));
        lock_release(&core_lock);
}

static void adopt(uint64_t bytes)
{
        uint64_t cost;

        adopted = driver_managed(bytes);
        assert_int_equal(heap_adopt(&gpu->heap, adopted, bytes, OWNER, UINT64_MAX, &cost), 0);
}

static void managed_memory_that_leaves_the_card_makes_room(void **state)
{
        CUdeviceptr at;

        gpu->visible = 64 * MIB;
        adopt(48 * MIB);
        assert_int_equal(hook_cuMemAlloc_v2(&at, 30 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        gpu->home.answer = HOME_STAYS;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 30 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        gpu->home.answer = HOME_NOT_KNOWN;
        bench.home = it_leaves;
        at = allocate(30 * MIB);
        assert_int_equal(bench.disowned, 1);
        release(at);
        adopt(48 * MIB);
        bench.home = it_is_freed_meanwhile;
        gpu->home.answer = HOME_NOT_KNOWN;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 30 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bench.disowned, 1);
        assert_int_equal(discarded, 1);
}

/* Disowned memory is left to the program, which has freed this memory already. */
static void managed_memory_that_is_freed_later_is_not_disowned(void **state)
{
        CUdeviceptr at;

        gpu->visible = 64 * MIB;
        adopt(48 * MIB);
        block_at(adopted)->extents[0].state = EXTENT_RESIDENT; /* work may have used the memory */
        gpu->heap.resident += block_at(adopted)->extents[0].bytes;
        fake_capturing = true;
        release(adopted);
        fake_capturing = false;
        gpu->home.answer = HOME_LEAVES;
        quiesce_now = QUIESCE_BUSY;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 30 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bench.disowned, 0);
        quiesce_now = QUIESCE_DONE;
        lock_acquire(&core_lock);
        assert_int_equal(late_tend(0), UINT64_MAX);
        lock_release(&core_lock);
        assert_int_equal(discarded, 1);
        at = allocate(30 * MIB);
        release(at);
}

static void a_managed_heap_is_provided_with_managed_memory(void **state)
{
        CUdeviceptr at;

        gpu->heap.managed = true;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 6 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        bench.provides = true;
        at = allocate(6 * MIB);
        assert_true(block_at(at)->managed);
        release(at);
}

static void without_a_daemon_a_full_card_fails_the_allocation(void **state)
{
        CUdeviceptr small, at;

        gpu->limit = UINT64_MAX;
        small = allocate(1000);
        back_answer = -ENOMEM;
        at = 7;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 6 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(discarded, 1);
        assert_int_equal(hook_cuMemAlloc_v2(&at, 1000), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(discarded, 1); /* the slab holds another allocation and stays */
        assert_int_equal(block_at(small)->users[0], 1);
        /* With a daemon the allocation succeeds, and the gate waits for its memory. */
        gpu->limit = CARD;
        at = allocate(6 * MIB);
        release(at);
        release(small);
}

static void allocations_that_do_not_fit_the_card_go_to_host_memory(void **state)
{
        CUdeviceptr refused, full, alone, more;

        gpu->overflow = true;
        gpu->commit = 0;
        bench.card_room = 64 * MIB;
        bench.host_room = GIB;
        refused = allocate(6 * MIB);
        assert_int_equal(bench.asks, 1);
        assert_int_equal(bench.told, refused);
        bench.card_room = 4 * MIB;
        full = allocate(6 * MIB);
        assert_int_equal(bench.asks, 1); /* a larger commit would not help */
        assert_int_equal(bench.told, full);
        bench.card_room = 64 * MIB;
        gpu->limit = gpu->commit = UINT64_MAX;
        back_answer = -ENOMEM;
        alone = allocate(6 * MIB);
        assert_int_equal(gpu->heap.mapped, 18 * MIB);
        assert_int_equal(gpu->heap.allocated, 0);
        bench.host_room = 0;
        bench.told = 0;
        assert_int_equal(hook_cuMemAlloc_v2(&more, 6 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bench.told, 0);
        release(refused);
        release(full);
        release(alone);
        /* Without the overflow the allocation fails. */
        gpu->overflow = false;
        bench.host_room = GIB;
        assert_int_equal(hook_cuMemAlloc_v2(&alone, 6 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

static void the_overflow_keeps_a_part_of_the_promised_bytes(void **state)
{
        CUdeviceptr at;

        bench.card_room = 8 * MIB;
        gpu->overflow = true;
        at = allocate(8 * MIB);
        assert_int_equal(gpu->heap.mapped, 0);
        release(at);
        assert_int_equal(hook_cuMemAlloc_v2(&at, 10 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult pitched(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned size)
{
        return hook_cuMemAllocPitch_v2(at, pitch, width, height, size);
}

/* The driver answers invalid calls, calls without a managed GPU, and calls on a failed GPU. */
static void allocations_that_are_not_ours_go_to_the_driver(void **state)
{
        CUdeviceptr at = 0;
        size_t pitch;

        assert_int_equal(hook_cuMemAlloc_v2(NULL, 4096), THE_DRIVER);
        assert_int_equal(hook_cuMemAlloc_v2(&at, 0), THE_DRIVER);
        assert_int_equal(pitched(NULL, &pitch, 100, 2, 4), THE_DRIVER);
        assert_int_equal(pitched(&at, NULL, 100, 2, 4), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 0, 2, 4), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 100, 0, 4), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 100, CARD + 1, 4), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 100, 2, 2), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 100, 2, 12), THE_DRIVER);
        assert_int_equal(bench.passed, 9);
        current_gpu = NULL;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 4096), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 100, 2, 4), THE_DRIVER);
        current_gpu = gpu;
        bench.contextless = true;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 4096), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 100, 2, 4), THE_DRIVER);
        bench.contextless = false;
        gpu->error = CUDA_ERROR_LAUNCH_FAILED;
        assert_int_equal(hook_cuMemAlloc_v2(&at, 4096), THE_DRIVER);
        assert_int_equal(pitched(&at, &pitch, 100, 2, 4), THE_DRIVER);
        assert_int_equal(hook_cuMemFree_v2(4096), THE_DRIVER);
        assert_int_equal(bench.passed, 16);
        assert_int_equal(gpu->heap.count, 0);
}

static void rows_begin_at_multiples_of_the_drivers_pitch(void **state)
{
        static const unsigned sizes[] = {4, 8, 16};
        CUdeviceptr at;
        size_t pitch = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
                struct heap_place p;

                assert_int_equal(pitched(&at, &pitch, 513, 3, sizes[i]), CUDA_SUCCESS);
                assert_int_equal(pitch, 1024);
                assert_true(heap_find(&gpu->heap, at, &p));
                assert_int_equal(p.bytes, 3 * 1024);
                assert_ptr_equal(p.block->owner, OWNER);
                release(at);
        }
        /* Sizes: the whole card, more than the card, and more than 64 bits can express. */
        pitch = 5;
        assert_int_equal(pitched(&at, &pitch, MIB, CARD / MIB, 4), CUDA_SUCCESS);
        assert_int_equal(pitch, MIB);
        release(at);
        pitch = 5;
        assert_int_equal(pitched(&at, &pitch, MIB, CARD / MIB + 1, 4), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(pitched(&at, &pitch, SIZE_MAX / 2, 2, 4), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(pitched(&at, &pitch, CARD, CARD, 4), CUDA_ERROR_OUT_OF_MEMORY);
        gpu->commit = 0;
        assert_int_equal(pitched(&at, &pitch, MIB, 4, 4), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(pitch, 5);
        assert_int_equal(bench.passed, 0);
}

static void allocations_and_frees_fail_if_a_capture_forbids_them(void **state)
{
        CUdeviceptr at = allocate(4 * MIB), other;
        size_t pitch;

        bench.forbids = true;
        assert_false(hooks_capture_forbids()); /* without a capture the driver is not asked */
        release(allocate(4 * MIB));
        fake_capturing = true;
        assert_int_equal(hook_cuMemAlloc_v2(&other, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_int_equal(pitched(&other, &pitch, 100, 2, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_int_equal(hook_cuMemFree_v2(at), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        bench.forbids = false;
        other = allocate(4 * MIB);
        fake_capturing = false;
        release(other);
        release(at);
}

static void a_call_that_met_a_full_card_gets_all_the_room_left(void **state)
{
        uint64_t room = 0;

        bench.daemon_has = 32 * MIB;
        assert_true(hooks_more_room(gpu, &room));
        assert_int_equal(gpu->unevictable, 32 * MIB);
        assert_false(hooks_more_room(gpu, &room)); /* there is no more, so all room goes back */
        assert_int_equal(gpu->unevictable, 0);
        bench.daemon_has = 32 * MIB;
        fake_capturing = true; /* during a capture no stream can be drained to make room */
        assert_false(hooks_more_room(gpu, &room));
        fake_capturing = false;
        gpu->attached = false;
        assert_false(hooks_more_room(gpu, &room));
        assert_false(hooks_more_room(NULL, &room));
        assert_int_equal(gpu->unevictable, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                MEMORY_TEST(promised_memory_is_given_without_asking),
                MEMORY_TEST(an_allocation_that_changes_no_figure_is_not_reported),
                MEMORY_TEST(only_more_memory_than_ever_before_is_growth),
                MEMORY_TEST(memory_backed_at_once_keeps_the_gate_open),
                MEMORY_TEST(unpromised_memory_is_requested_in_blocks),
                MEMORY_TEST(a_request_never_exceeds_the_visible_size),
                MEMORY_TEST(a_refused_allocation_asks_the_daemon_once),
                MEMORY_TEST(a_commit_request_may_exceed_the_visible_size),
                MEMORY_TEST(room_that_the_card_can_never_have_is_refused_at_once),
                MEMORY_TEST(an_allocation_reclaims_unused_memory_of_pools),
                MEMORY_TEST(managed_memory_that_leaves_the_card_makes_room),
                MEMORY_TEST(managed_memory_that_is_freed_later_is_not_disowned),
                MEMORY_TEST(a_managed_heap_is_provided_with_managed_memory),
                MEMORY_TEST(without_a_daemon_a_full_card_fails_the_allocation),
                MEMORY_TEST(allocations_that_do_not_fit_the_card_go_to_host_memory),
                MEMORY_TEST(the_overflow_keeps_a_part_of_the_promised_bytes),
                MEMORY_TEST(allocations_that_are_not_ours_go_to_the_driver),
                MEMORY_TEST(rows_begin_at_multiples_of_the_drivers_pitch),
                MEMORY_TEST(allocations_and_frees_fail_if_a_capture_forbids_them),
                MEMORY_TEST(a_call_that_met_a_full_card_gets_all_the_room_left),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
