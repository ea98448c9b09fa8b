/* test_pool_room.c: a pool takes as much memory as it may, and gives unused memory back in time. */
#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "pool_bench.h"
#include "preload/stream/gate.h"

#define REST (100 * NSEC_PER_MSEC)

#define CONTEXT ((CUcontext)(uintptr_t)1) /* the context of streams (context_now()) */

static const struct pool_stream s0 = {.handle = (CUstream)(uintptr_t)4096};

static void assert_no_room(struct pool *p, uint64_t bytes)
{
        CUdeviceptr at = 1;

        assert_int_equal(pool_allocate(p, &s0, bytes, &at), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(at, 1);
}

/* A call of the program waits for an event: it covers all frees that streams have reached. */
static void wait_for_event(void)
{
        (void)pool_awaited(NULL, frees_open());
}

/* Takes this many extents and frees them again; no work uses them, and the program waits. */
static void idle(struct pool *p, unsigned extents)
{
        CUdeviceptr at = take(p, &s0, extents * WHOLE);

        give(at, &s0);
        wait_for_event();
}

static uint64_t reserved(struct pool *p)
{
        return attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static struct pool *keeping_all(unsigned number)
{
        threshold = UINT64_MAX;
        return pool_made(number);
}

/* ---- pools that the library manages ---- */

static bool is_ours(CUmemPoolProps props)
{
        bool ours;

        pool_born(handle_of(1), &props);
        ours = pool_find(handle_of(1));
        pool_dies(handle_of(1), false);
        return ours;
}

static void only_plain_pools_of_managed_cards_are_ours(void **state)
{
        const CUmemPoolProps good = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUmemPoolProps props = good;

        assert_true(is_ours(good));
        props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        assert_false(is_ours(props));
        props = good;
        props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
        assert_false(is_ours(props));
        props = good;
        props.location.type = CU_MEM_LOCATION_TYPE_HOST;
        assert_false(is_ours(props));
        props = good;
        for (int id = -1; id <= GPUS_MAX; id++) {
                props.location.id = id;
                assert_int_equal(is_ours(props), id == 0);
        }
        gpu->heap.managed = true;
        assert_false(is_ours(good));
        gpu->heap.managed = false;
        gpu->managed = false;
        assert_false(is_ours(good));
        gpu->managed = true;
}

static void a_cards_default_pool_is_found_by_its_handle(void **state)
{
        default_pool = handle_of(1);
        gpu->managed = false;
        assert_null(pool_find(handle_of(1)));
        gpu->managed = true;
        assert_null(pool_find(NULL));
        assert_null(pool_find(handle_of(2)));
        assert_non_null(pool_find(handle_of(1)));
        assert_ptr_equal(pool_gpu(pool_find(handle_of(1))), gpu);
        assert_ptr_equal(pool_find(handle_of(1)), pool_find(handle_of(1)));
        assert_ptr_equal(pool_handle(block_at(piece(pool_find(handle_of(1)), 0))), handle_of(1));
        default_pool = NULL;
}

static void memory_outside_pools_has_no_pool_handle(void **state)
{
        const struct block large = {.kind = BLOCK_LARGE};

        assert_null(pool_handle(&large));
}

static void a_ban_on_waits_set_before_the_card_was_used_holds(void **state)
{
        struct pool_stream s1 = stream_of(1);
        struct pool *p;

        may_wait = 0;
        p = keeping_all(1);
        stream_put(&s0);
        idle(p, 1);
        gpu_room = WHOLE;
        other_room = WHOLE;
        (void)take(p, &s1, WHOLE);
        assert_int_equal(waits_put, 0);
}

/* ---- amounts ---- */

static void a_pool_gives_out_at_most_the_visible_size(void **state)
{
        struct pool *p = pool_made(1);

        assert_no_room(p, POOL_CARD + 1);
        assert_int_equal(promises + searches, 0);
        assert_int_equal(take(p, &s0, POOL_CARD) % HEAP_GRANULARITY, 0);
        assert_int_equal(gpu->heap.allocated, POOL_CARD);
}

static void a_pool_requests_as_many_bytes_as_are_missing(void **state)
{
        struct pool *p = pool_made(1);

        gpu_room = 0;
        promise_room = HEAP_GRANULARITY - 1;
        assert_no_room(p, 1);
        assert_int_equal(promises, 2); /* for a whole extent, and for the pages alone */
        assert_int_equal(searches, 2);
        promise_room = WHOLE;
        (void)take(p, &s0, 1);
        assert_int_equal(gpu_room, WHOLE);
        (void)take(p, &s0, WHOLE - 512); /* comes from the same extent */
        assert_int_equal(promises, 3);
        other_room = 2 * WHOLE;
        (void)take(p, &s0, 2 * WHOLE);
        assert_int_equal(searches, 3);
        assert_int_equal(gpu_room, 3 * WHOLE);
}

static void where_no_whole_extent_has_room_its_pages_may(void **state)
{
        struct pool *p = keeping_all(1);
        CUdeviceptr at;

        gpu_room = 10 * MIB;
        at = take(p, &s0, 5 * MIB);
        assert_int_equal(gpu->heap.allocated, 6 * MIB);
        assert_int_equal(take(p, &s0, 4 * MIB) % HEAP_GRANULARITY, 0);
        assert_int_equal(gpu->heap.allocated, 10 * MIB);
        assert_no_room(p, 2 * MIB);
        /* Freed pages serve the next allocation, first with their memory, then without. */
        give(at, &s0);
        at = take(p, &s0, 6 * MIB);
        assert_int_equal(gpu->heap.allocated, 10 * MIB);
        give(at, &s0);
        wait_for_event();
        pool_trim(p, 0);
        assert_int_equal(gpu->heap.allocated, 4 * MIB);
        assert_int_equal(take(p, &s0, 6 * MIB), at);
        assert_int_equal(gpu->heap.allocated, 10 * MIB);
}

static void a_pools_limit_is_rounded_up_and_obeyed(void **state)
{
        struct pool *p = pool_limited(1, WHOLE + 1),
                    *free_one = pool_limited(2, UINT64_MAX / 2 + 1);
        CUdeviceptr at = take(p, &s0, 2 * WHOLE);

        assert_no_room(p, 1);
        assert_int_equal(promises + searches, 0);
        give(at, &s0);
        at = take(p, &s0, WHOLE);
        (void)take(p, &s0, WHOLE);
        assert_no_room(p, 1);
        (void)take(free_one, &s0, 3 * WHOLE);
        assert_int_equal(gpu->heap.allocated, 5 * WHOLE);
}

static void a_limited_pool_requests_room_only_below_its_limit(void **state)
{
        struct pool *p = pool_limited(1, 2 * WHOLE);

        gpu_room = WHOLE;
        (void)take(p, &s0, WHOLE);
        promise_room = WHOLE;
        (void)take(p, &s0, WHOLE);
        assert_int_equal(promises, 1);
        promise_room = other_room = WHOLE;
        assert_no_room(p, WHOLE);
        assert_int_equal(promises, 1);
        assert_int_equal(searches, 0);
}

static void a_full_limited_pool_gives_back_scattered_free_memory(void **state)
{
        struct pool *p = pool_limited(1, 3 * WHOLE);
        CUdeviceptr at = whole(p, 0);
        struct extent *e = extent_at(at);

        (void)piece(p, 0);
        assert_no_room(p, 2 * WHOLE);
        give(at, &s0);
        (void)take(p, &s0, 2 * WHOLE);
        assert_int_equal(e->state, EXTENT_UNBACKED);
        assert_int_equal(gpu->heap.allocated, 3 * WHOLE);
        assert_int_equal(searches, 0);
}

static void a_failed_allocation_leaves_nothing_behind(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at;

        gpu->limit = UINT64_MAX; /* no daemon to ask: memory must be backed at once */
        back_answer = -ENOMEM;
        assert_no_room(p, WHOLE);
        assert_int_equal(gpu->heap.allocated, 0);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
        assert_int_equal(atomic_load(&gate_bits), 0);
        gpu->limit = 0; /* the gate will back the memory later */
        assert_int_equal(pool_allocate(p, &s0, WHOLE, &at), CUDA_SUCCESS);
        assert_int_equal(atomic_load(&gate_bits), GATE_UNBACKED);
        give(at, NULL);
}

static void reused_memory_does_not_shut_the_gate(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr first, second;

        gpu->limit = UINT64_MAX;
        assert_int_equal(pool_allocate(p, &s0, MIB, &first), CUDA_SUCCESS);
        back_answer = -ENOMEM;
        assert_int_equal(pool_allocate(p, &s0, MIB, &second), CUDA_SUCCESS);
        assert_int_equal(atomic_load(&gate_bits), 0);
        give(first, NULL);
        give(second, NULL);
}

static void newly_taken_memory_is_reported_with_its_time(void **state)
{
        struct pool *p = pool_made(1);

        clock_ns = 5 * NSEC_PER_SEC;
        (void)piece(p, 0);
        assert_true(gpu->usage_dirty);
        assert_int_equal(gpu->commit_used_ns, 5 * NSEC_PER_SEC);
        gpu->usage_dirty = false;
        clock_ns = 6 * NSEC_PER_SEC;
        (void)piece(p, 0); /* comes from memory that the pool holds */
        assert_false(gpu->usage_dirty);
        assert_int_equal(gpu->commit_used_ns, 5 * NSEC_PER_SEC);
}

static void the_first_addresses_come_in_small_extents(void **state)
{
        struct pool *p = pool_made(1), *large;
        const struct block *first = block_at(piece(p, 0)), *second;

        assert_int_equal(first->extent_bytes, WHOLE);
        assert_int_equal(first->bytes, POOL_CARD);
        second = block_at(take(p, &s0, POOL_CARD));
        assert_ptr_not_equal(first, second);
        assert_int_equal(second->extent_bytes, 2 * WHOLE);
        assert_int_equal(second->bytes, POOL_CARD);
        gpu->visible = gpu->total = 8 * GIB;
        gpu->heap.extent_bytes = 128 * MIB;
        large = pool_made(2);
        second = block_at(take(large, &s0, 2 * GIB));
        assert_int_equal(second->extent_bytes, 128 * MIB);
        assert_int_equal(second->bytes, 8 * GIB);
        second = block_at(take(pool_made(3), &s0, 2 * GIB - 1));
        assert_int_equal(second->extent_bytes, WHOLE);
        assert_int_equal(second->bytes, 4 * GIB);
        gpu->heap.extent_bytes = 16 * MIB; /* as on a small card */
        gpu->total = 256 * MIB;
        second = block_at(take(pool_made(4), &s0, 512 * MIB + 1));
        assert_int_equal(second->extent_bytes, 16 * MIB);
        assert_int_equal(second->bytes, 528 * MIB);
}

static CUresult no_addresses(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        return CUDA_ERROR_OUT_OF_MEMORY;
}

static void an_allocation_without_addresses_fails(void **state)
{
        struct pool *p = pool_made(1);

        real.cuMemAddressReserve = no_addresses;
        assert_no_room(p, 1);
        assert_int_equal(gpu->heap.count, 0);
}

/* ---- memory is short ---- */

static struct extent *one_that_is_idle(struct pool *p)
{
        CUdeviceptr at = whole(p, 0);
        struct extent *e = extent_at(at);

        (void)piece(p, 0); /* separates the extent from other free memory */
        give(at, &s0);
        return e;
}

static void unused_memory_of_a_contested_card_is_freed_before_more_is_taken(void **state)
{
        struct pool *p = keeping_all(1);
        const struct extent *e = one_that_is_idle(p);

        gpu->limit = 4 * WHOLE - 1;
        atomic_store(&gate_bits, GATE_THROTTLE);
        (void)take(p, &s0, 2 * WHOLE);
        assert_int_equal(e->state, EXTENT_UNBACKED);
        assert_int_equal(gpu->heap.allocated, 3 * WHOLE);
}

static void unused_memory_that_fits_the_limit_stays(void **state)
{
        struct pool *p = keeping_all(1);
        const struct extent *e = one_that_is_idle(p);

        gpu->limit = 4 * WHOLE; /* exactly all extents */
        atomic_store(&gate_bits, GATE_THROTTLE);
        (void)take(p, &s0, WHOLE + 31 * MIB + 1);
        assert_int_equal(gpu->heap.backed, 4 * WHOLE);
        assert_int_equal(e->state, EXTENT_RESIDENT);
}

static void unused_memory_of_an_uncontested_card_stays(void **state)
{
        struct pool *p = keeping_all(1);
        const struct extent *e = one_that_is_idle(p);

        gpu->limit = WHOLE;
        (void)take(p, &s0, 2 * WHOLE);
        assert_int_equal(e->state, EXTENT_RESIDENT);
}

static void pools_give_back_as_many_bytes_as_asked_for(void **state)
{
        struct pool *first = keeping_all(1), *second = keeping_all(2);

        idle(first, 2);
        idle(second, 2);
        assert_true(pool_reclaim(gpu, WHOLE + 1)); /* rounded up to whole extents */
        assert_int_equal(gpu->heap.allocated, 2 * WHOLE);
        request_kicks = 0;
        assert_true(pool_reclaim(gpu, 1));
        assert_int_equal(gpu->heap.allocated, WHOLE);
        assert_int_equal(request_kicks, 1);
        idle(first, 1);
        assert_true(pool_reclaim(gpu, UINT64_MAX));
        assert_int_equal(gpu->heap.allocated, 0);
        request_kicks = 0;
        assert_false(pool_reclaim(gpu, 1));
        assert_int_equal(request_kicks, 0);
}

static void pools_of_another_card_give_nothing_back(void **state)
{
        struct pool *p = keeping_all(1);

        idle(p, 1);
        assert_false(pool_reclaim(&core.gpus[1], 1));
        assert_int_equal(gpu->heap.allocated, WHOLE);
}

static void a_pool_handed_over_gives_its_unused_memory_back(void **state)
{
        struct pool *p = keeping_all(1);

        idle(p, 1);
        pool_hand_over(p);
        assert_null(pool_find(handle_of(1)));
        assert_true(pool_reclaim(gpu, 1));
        pool_dies(handle_of(1), false); /* must not destroy the pool that was handed over */
        assert_int_not_equal(pool_tend(clock_now_ns()), 0);
        pool_dies(handle_of(1), true);
        rest();
        assert_int_equal(discarded, 1);
}

static void extents_that_are_used_or_busy_stay(void **state)
{
        struct pool *p = keeping_all(1);
        CUdeviceptr low = take(p, &s0, WHOLE / 2), at = take(p, &s0, 2 * WHOLE),
                    high = take(p, &s0, WHOLE / 2), end = whole(p, 0);
        struct extent *between = extent_at(at) + 1;

        give(at, &s0);
        between->busy = true;
        assert_false(pool_reclaim(gpu, 1));
        between->busy = false;
        between->state = EXTENT_EVICTED;
        assert_false(pool_reclaim(gpu, 1));
        between->state = EXTENT_RESIDENT;
        /* The pool gives back the unused extent between two used ones. */
        assert_true(pool_reclaim(gpu, UINT64_MAX));
        assert_int_equal(gpu->heap.allocated, 3 * WHOLE);
        assert_int_equal(between->state, EXTENT_UNBACKED);
        assert_int_equal(extent_at(low)->state, EXTENT_RESIDENT);
        assert_int_equal(extent_at(high)->state, EXTENT_RESIDENT);
        assert_int_equal(extent_at(end)->state, EXTENT_RESIDENT);
}

static void memory_stays_until_its_stream_has_reached_the_free(void **state)
{
        struct pool_stream s1 = stream_of(1);
        struct pool *p = keeping_all(1);
        const struct extent *low = one_that_is_idle(p), *high;
        CUdeviceptr at = take(p, &s1, WHOLE + WHOLE / 2);

        high = extent_at(at) + 1;
        stream_put(&s1);
        give(at, &s1);
        assert_true(pool_reclaim(gpu, UINT64_MAX));
        assert_int_equal(low->state, EXTENT_UNBACKED);
        assert_int_equal(high->state, EXTENT_RESIDENT);
        assert_int_equal(events, 1); /* recorded to learn when the work is done */
        stream_done(&s1);
        assert_true(pool_reclaim(gpu, UINT64_MAX));
        assert_int_equal(high->state, EXTENT_UNBACKED);
}

static void evicted_memory_is_dropped_when_its_last_allocation_is_freed(void **state)
{
        struct pool *p = keeping_all(1);
        CUdeviceptr low = take(p, &s0, WHOLE / 2), at = take(p, &s0, WHOLE + WHOLE / 2);
        struct extent *first = extent_at(low), *second = first + 1;

        for (struct extent *e = first; e <= second; e++) {
                e->state = EXTENT_EVICTED;
                gpu->heap.backed -= e->bytes;
                gpu->heap.resident -= e->bytes;
        }
        give(at, &s0);
        assert_int_equal(first->state, EXTENT_EVICTED);
        assert_int_equal(second->state, EXTENT_UNBACKED);
        assert_int_equal(gpu->heap.allocated, WHOLE);
        give(low, &s0);
        assert_int_equal(first->state, EXTENT_UNBACKED);
        assert_int_equal(gpu->heap.allocated, 0);
}

/* ---- attributes that a program reads and sets ---- */

static void used_bytes_are_those_requested_and_their_high_mark_can_be_reset(void **state)
{
        struct pool *p = keeping_all(1);
        CUdeviceptr at = take(p, &s0, 1000);
        cuuint64_t zero = 0;

        (void)take(p, &s0, 24);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1024);
        give(at, &s0);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 24);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1024);
        pool_set(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 24);
}

static void reserved_bytes_are_those_held_and_their_high_mark_can_be_reset(void **state)
{
        struct pool *p = keeping_all(1);
        cuuint64_t zero = 0;

        idle(p, 2);
        pool_trim(p, WHOLE);
        assert_int_equal(reserved(p), WHOLE);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 2 * WHOLE);
        pool_set(p, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), WHOLE);
}

static void other_pool_attributes_are_left_to_the_driver(void **state)
{
        struct pool *p = pool_made(1);
        cuuint64_t value = 7;

        assert_false(pool_get(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
        assert_int_equal(value, 7);
        pool_set(p, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &value);
}

static void a_trim_keeps_whole_extents(void **state)
{
        static const struct {
                uint64_t keep, left;
        } cases[] = {{2 * WHOLE + 1, 3 * WHOLE},
                     {2 * WHOLE, 2 * WHOLE},
                     {1, WHOLE},
                     {0, 0},
                     {UINT64_MAX, 0}};
        struct pool *p = keeping_all(1);

        idle(p, 3);
        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                if (cases[i].keep == UINT64_MAX)
                        idle(p, 3); /* as in the driver, this keeps nothing */
                pool_trim(p, cases[i].keep);
                assert_int_equal(gpu->heap.allocated, cases[i].left);
        }
}

static void the_highest_extents_go_first(void **state)
{
        struct pool *p = keeping_all(1);
        CUdeviceptr low = whole(p, 0);

        give(low, &s0);
        idle(p, 3);
        pool_trim(p, WHOLE);
        assert_int_equal(whole(p, 0), low);
        assert_int_equal(gpu->heap.allocated, WHOLE);
}

static void the_reserved_bytes_respect_the_threshold(void **state)
{
        struct pool *p;

        threshold = WHOLE;
        p = pool_made(1);
        idle(p, 2);
        assert_int_equal(reserved(p), WHOLE);
}

static void an_address_inside_an_allocation_is_not_freed(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at = piece(p, 0);
        struct block *b = block_at(at);

        assert_int_equal(pool_free(b, at + 512, &s0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(pool_free(b, at + 512, NULL), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
        give(at, &s0);
        assert_int_equal(pool_free(b, at, &s0), CUDA_ERROR_INVALID_VALUE);
}

static void a_free_on_an_invalid_stream_fails(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at = piece(p, 0);

        context_error = CUDA_ERROR_INVALID_HANDLE;
        assert_int_equal(pool_free(block_at(at), at, &s0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
        give(at, NULL); /* freed without a stream: any stream may have it at once */
        assert_int_equal(piece(p, 1), at);
}

/* ---- as time passes ---- */

static void unused_extents_are_given_back_after_a_while(void **state)
{
        struct pool *p = pool_made(1);

        rest();
        request_kicks = 0;
        idle(p, 2);
        assert_int_equal(request_kicks, 1);
        assert_int_equal(pool_tend(clock_now_ns()), REST);
        clock_ns += REST - 1;
        assert_int_equal(pool_tend(clock_now_ns()), 1);
        assert_int_equal(gpu->heap.allocated, 2 * WHOLE);
        clock_ns += 1;
        assert_int_equal(pool_tend(clock_now_ns()),
                         REST); /* the extents were used since the last look */
        assert_int_equal(gpu->heap.allocated, 2 * WHOLE);
        idle(p, 2);
        clock_ns += REST;
        assert_int_equal(pool_tend(clock_now_ns()), REST);
        assert_int_equal(gpu->heap.allocated, 2 * WHOLE);
        clock_ns += REST;
        assert_int_equal(pool_tend(clock_now_ns()), UINT64_MAX);
        assert_int_equal(gpu->heap.allocated, 0);
}

static void a_pool_keeps_memory_up_to_its_threshold(void **state)
{
        struct pool *p;
        cuuint64_t less = WHOLE;

        threshold = 2 * WHOLE;
        p = pool_made(1);
        idle(p, 3);
        rest();
        assert_int_equal(gpu->heap.allocated, 2 * WHOLE);
        request_kicks = 0;
        pool_set(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &less);
        assert_int_equal(request_kicks, 1);
        rest();
        assert_int_equal(gpu->heap.allocated, WHOLE);
}

static void a_pool_that_keeps_all_memory_is_not_examined(void **state)
{
        struct pool *p = keeping_all(1);

        rest();
        idle(p, 1);
        assert_int_equal(pool_tend(clock_now_ns()), UINT64_MAX);
        assert_int_equal(request_kicks, 1); /* the kick when the pool was made */
}

static void memory_stays_until_the_program_waits_for_its_free(void **state)
{
        const struct pool_stream s1 = stream_of(1);
        struct pool *p = pool_made(1);

        stream_put(&s0);
        idle(p, 1);
        rest();
        assert_int_equal(gpu->heap.allocated, WHOLE);
        assert_int_equal(events, 0); /* the agent puts nothing into streams */
        stream_done(&s0);
        rest();
        assert_int_equal(reserved(p), WHOLE); /* the free is reached, but nobody has waited */
        assert_false(pool_awaited(&s1, frees_open()));
        pool_trim(p, 0);
        pool_settle(gpu);
        assert_int_equal(gpu->heap.allocated, WHOLE);
        assert_true(pool_awaited(&s0, frees_open()));
        rest();
        assert_int_equal(gpu->heap.allocated, 0);
}

static void what_is_free_is_told_without_what_the_program_has_waited_for(void **state)
{
        struct pool *p = pool_made(1);

        idle(p, 1);
        assert_int_equal(gpu->heap.allocated, WHOLE); /* given back in time */
        pool_settle(gpu);
        assert_int_equal(gpu->heap.allocated, 0);
}

/* A wait covers the frees before it. */
static void a_free_during_a_wait_is_not_waited_for(void **state)
{
        struct pool *p = pool_made(1);
        uint64_t before;

        idle(p, 1);
        before = frees_open();
        give(whole(p, 0), &s0);
        assert_false(pool_awaited(&s0, before));
        assert_int_equal(reserved(p), WHOLE);
        assert_true(pool_awaited(&s0, frees_open()));
        assert_int_equal(reserved(p), 0);
}

static void memory_of_two_streams_stays_until_the_program_has_waited_for_both(void **state)
{
        const struct pool_stream s1 = stream_of(1);
        struct pool *p = pool_made(1);
        CUdeviceptr low = piece(p, 0), high = piece(p, 1);

        give(low, &s0);
        give(high, &s1);
        assert_false(pool_awaited(&s1, frees_open()));
        assert_int_equal(reserved(p), WHOLE);
        assert_true(pool_awaited(&s0, frees_open()));
        assert_int_equal(reserved(p), 0);
        low = whole(p, 0);
        high = whole(p, 1);
        give(low, &s0);
        give(high, &s1);
        assert_false(pool_awaited(&s1, frees_open()));
        assert_int_equal(reserved(p), WHOLE);
        assert_true(pool_awaited(&(struct pool_stream){.context = CONTEXT}, frees_open()));
        assert_int_equal(reserved(p), 0);
}

static void memory_freed_by_cumemfree_counts_as_used_for_ever(void **state)
{
        struct pool *p = pool_made(1);

        give(piece(p, 0), NULL);
        assert_int_equal(reserved(p), 0);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
}

static void extents_in_use_are_not_examined_repeatedly(void **state)
{
        struct pool *p = pool_made(1);

        (void)whole(p, 0);
        clock_ns += REST;
        (void)pool_tend(clock_now_ns());
        clock_ns += REST;
        assert_int_equal(pool_tend(clock_now_ns()), UINT64_MAX);
        assert_int_equal(gpu->heap.allocated, WHOLE);
}

/* ---- pools that are destroyed ---- */

static void memory_of_a_destroyed_pool_lives_until_it_is_freed(void **state)
{
        struct pool *p = keeping_all(1);
        CUdeviceptr at = whole(p, 0);
        struct block *b = block_at(at);

        pool_dies(NULL, false);
        pool_dies(handle_of(2), false);
        assert_ptr_equal(pool_find(handle_of(1)), p);
        pool_dies(handle_of(1), false);
        assert_null(pool_find(handle_of(1)));
        rest();
        assert_int_equal(discarded, 0);
        assert_ptr_equal(pool_handle(b), handle_of(1));
        stream_put(&s0);
        give(at, &s0);
        for (unsigned i = 0; i < 3; i++) {
                clock_ns += REST;
                assert_int_equal(pool_tend(clock_now_ns()), REST);
        }
        assert_int_equal(discarded, 0);
        stream_done(&s0);
        rest();
        assert_int_equal(discarded, 1);
        assert_int_equal(gpu->heap.allocated, 0);
        assert_int_equal(pool_tend(clock_now_ns()), UINT64_MAX);
}

static void a_destroyed_pool_leaves_no_event(void **state)
{
        struct pool *p = keeping_all(1);

        stream_put(&s0);
        idle(p, 1);
        assert_false(pool_reclaim(gpu, 1));
        assert_int_equal(events, 1);
        pool_dies(handle_of(1), false);
        stream_done(&s0);
        rest();
        assert_int_equal(discarded, 1);
        assert_int_equal(events_destroyed, 1);
}

static void a_pool_of_a_failed_card_stays_unchanged(void **state)
{
        struct pool *p = pool_made(1);

        idle(p, 1);
        gpu->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        pool_dies(handle_of(1), false);
        for (unsigned i = 0; i < 3; i++) {
                (void)pool_tend(clock_now_ns());
                clock_ns += REST;
        }
        assert_int_equal(discarded, 0);
}

static void destroy_it(const struct core_wait *w)
{
        lock_acquire(&core_lock);
        pool_dies(handle_of(1), false);
        for (unsigned i = 0; i < 3; i++) {
                (void)pool_tend(clock_now_ns());
                clock_ns += 4 * REST;
        }
        assert_int_equal(discarded, 0);
        lock_release(&core_lock);
        all_done();
}

static void a_destroyed_pool_stays_while_a_thread_waits_in_it(void **state)
{
        struct pool_stream s1 = stream_of(1);
        CUdeviceptr at;
        struct pool *p;

        may_wait = 0;
        p = keeping_all(1);
        at = whole(p, 0);
        stream_put(&s0);
        give(at, &s0);
        gpu_room = WHOLE;
        meanwhile = destroy_it;
        assert_int_equal(take(p, &s1, WHOLE), at);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                POOL_TEST(only_plain_pools_of_managed_cards_are_ours),
                POOL_TEST(a_cards_default_pool_is_found_by_its_handle),
                POOL_TEST(memory_outside_pools_has_no_pool_handle),
                POOL_TEST(a_ban_on_waits_set_before_the_card_was_used_holds),
                POOL_TEST(a_pool_gives_out_at_most_the_visible_size),
                POOL_TEST(a_pool_requests_as_many_bytes_as_are_missing),
                POOL_TEST(where_no_whole_extent_has_room_its_pages_may),
                POOL_TEST(a_pools_limit_is_rounded_up_and_obeyed),
                POOL_TEST(a_limited_pool_requests_room_only_below_its_limit),
                POOL_TEST(a_full_limited_pool_gives_back_scattered_free_memory),
                POOL_TEST(a_failed_allocation_leaves_nothing_behind),
                POOL_TEST(reused_memory_does_not_shut_the_gate),
                POOL_TEST(newly_taken_memory_is_reported_with_its_time),
                POOL_TEST(the_first_addresses_come_in_small_extents),
                POOL_TEST(an_allocation_without_addresses_fails),
                POOL_TEST(unused_memory_of_a_contested_card_is_freed_before_more_is_taken),
                POOL_TEST(unused_memory_that_fits_the_limit_stays),
                POOL_TEST(unused_memory_of_an_uncontested_card_stays),
                POOL_TEST(pools_give_back_as_many_bytes_as_asked_for),
                POOL_TEST(pools_of_another_card_give_nothing_back),
                POOL_TEST(a_pool_handed_over_gives_its_unused_memory_back),
                POOL_TEST(extents_that_are_used_or_busy_stay),
                POOL_TEST(memory_stays_until_its_stream_has_reached_the_free),
                POOL_TEST(evicted_memory_is_dropped_when_its_last_allocation_is_freed),
                POOL_TEST(used_bytes_are_those_requested_and_their_high_mark_can_be_reset),
                POOL_TEST(reserved_bytes_are_those_held_and_their_high_mark_can_be_reset),
                POOL_TEST(other_pool_attributes_are_left_to_the_driver),
                POOL_TEST(a_trim_keeps_whole_extents),
                POOL_TEST(the_highest_extents_go_first),
                POOL_TEST(the_reserved_bytes_respect_the_threshold),
                POOL_TEST(an_address_inside_an_allocation_is_not_freed),
                POOL_TEST(a_free_on_an_invalid_stream_fails),
                POOL_TEST(unused_extents_are_given_back_after_a_while),
                POOL_TEST(a_pool_keeps_memory_up_to_its_threshold),
                POOL_TEST(a_pool_that_keeps_all_memory_is_not_examined),
                POOL_TEST(memory_stays_until_the_program_waits_for_its_free),
                POOL_TEST(what_is_free_is_told_without_what_the_program_has_waited_for),
                POOL_TEST(a_free_during_a_wait_is_not_waited_for),
                POOL_TEST(memory_of_two_streams_stays_until_the_program_has_waited_for_both),
                POOL_TEST(memory_freed_by_cumemfree_counts_as_used_for_ever),
                POOL_TEST(extents_in_use_are_not_examined_repeatedly),
                POOL_TEST(memory_of_a_destroyed_pool_lives_until_it_is_freed),
                POOL_TEST(a_destroyed_pool_leaves_no_event),
                POOL_TEST(a_pool_of_a_failed_card_stays_unchanged),
                POOL_TEST(a_destroyed_pool_stays_while_a_thread_waits_in_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
