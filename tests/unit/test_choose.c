/* test_choose.c: the choice of the extent that moves next, compared with a plain walk over all
 * extents. */
#include "unit.h"

#include <stdlib.h>

#include "base/macros.h"
#include "preload/move/extent.h"
#include "preload/driver/real.h"
#include "preload/heap/slab.h"
#include "preload/move/swap_state.h"

struct real_driver real;

#define HANDLES 1000u

bool extent_may_adopt(const struct gpu *g, const struct extent *e)
{
        return extent_is_whole(g, e);
}

static CUresult reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                        unsigned long long flags)
{
        *ptr = UINT64_C(1) << 40;
        return CUDA_SUCCESS;
}

static struct gpu gpu;
static struct swap swap;

static int set_up(void **state)
{
        real.cuMemAddressReserve = reserve;
        gpu = (struct gpu){.swap = &swap};
        swap = (struct swap){0};
        heap_init(&gpu.heap, 64 * GIB);
        return 0;
}

static uint64_t random_next(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return *state >> 33;
}

static struct block *handle(uint64_t bytes)
{
        struct block *b;

        assert_int_equal(heap_create(&gpu.heap, bytes, NULL, UINT64_MAX, &b), 0);
        for (unsigned i = 0; i < b->extent_count; i++)
                b->extents[i].state = EXTENT_RESIDENT;
        return b;
}

/* Chooses the next extent to evict by its definition, with a walk over all extents. */
static struct extent *plain_evict(uint64_t missing)
{
        struct extent *e, *best = NULL;
        struct heap_cursor c = {0};

        while ((e = heap_walk(&gpu.heap, &c))) {
                if (e->state != EXTENT_RESIDENT || !extent_is_free(e))
                        continue;
                if (best && !best->live != !e->live) {
                        best = e->live ? best : e;
                        continue;
                }
                if (!best ||
                    (best->bytes < missing ? e->bytes >= best->bytes
                                           : e->bytes >= missing && e->bytes <= best->bytes))
                        best = e;
        }
        return best;
}

static struct extent *plain_by_state(enum extent_state state)
{
        struct heap_cursor c = {0};
        struct extent *e;

        while ((e = heap_walk(&gpu.heap, &c)))
                if (e->state == state && e->live && extent_is_free(e))
                        return e;
        return NULL;
}

static void the_choice_equals_that_of_a_plain_walk(void **state)
{
        uint64_t random = 7, missing = 0, cost;
        CUdeviceptr at;

        for (unsigned i = 0; i < HANDLES; i++)
                (void)handle((1 + random_next(&random) % 3) * HEAP_GRANULARITY);
        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(heap_allocate(&gpu.heap, 300 * MIB, NULL, UINT64_MAX, &at, &cost),
                                 0);
        for (size_t i = 0; i < gpu.heap.count; i++)
                for (unsigned k = 0; k < gpu.heap.blocks[i]->extent_count; k++)
                        gpu.heap.blocks[i]->extents[k].state = EXTENT_RESIDENT;
        missing = gpu.heap.allocated - 5 * MIB;
        /* Almost all extents leave. Now and then a block is held, so that it must stay. */
        for (unsigned n = 0; missing > 0; n++) {
                struct extent *e = plain_evict(missing), *got;

                if (e && n % 17 == 3)
                        e->block->held = true;
                e = plain_evict(missing);
                got = choose_evict(&gpu, missing);
                assert_true(!got == !e);
                if (!e)
                        break;
                assert_true(got->bytes == e->bytes);
                assert_true(!got->live == !e->live);
                got->state = EXTENT_EVICTED;
                missing = sub_sat(missing, got->bytes);
        }
        assert_null(plain_by_state(EXTENT_UNBACKED));
        assert_null(choose_by_state(&gpu, EXTENT_UNBACKED));
        /* The extents come back in the order of their addresses. */
        for (unsigned n = 0;; n++) {
                struct extent *e = plain_by_state(EXTENT_EVICTED);

                assert_ptr_equal(choose_by_state(&gpu, EXTENT_EVICTED), e);
                if (!e)
                        break;
                assert_ptr_equal(choose_by_state(&gpu, EXTENT_EVICTED), e); /* same choice again */
                e->state = EXTENT_RESIDENT;
        }
}

/* The arena keeps memory for extents that left once; other extents would need more memory. */
static void the_same_extents_are_evicted_each_time(void **state)
{
        struct extent *first[40];

        for (unsigned i = 0; i < 500; i++)
                (void)handle(HEAP_GRANULARITY);
        for (unsigned i = 0; i < ARRAY_SIZE(first); i++) {
                first[i] = choose_evict(&gpu, GIB);
                first[i]->state = EXTENT_EVICTED;
        }
        for (unsigned round = 0; round < 3; round++) {
                for (unsigned i = 0; i < ARRAY_SIZE(first); i++) {
                        first[i]->state = EXTENT_RESIDENT;
                        choose_arrived(&gpu);
                }
                for (unsigned i = 0; i < ARRAY_SIZE(first); i++) {
                        assert_ptr_equal(choose_evict(&gpu, GIB), first[i]);
                        first[i]->state = EXTENT_EVICTED;
                }
        }
}

/* Only a sanitizer would notice a read of a buried block. */
static void a_buried_block_is_never_read(void **state)
{
        struct block *blocks[100];
        struct extent *e;

        for (unsigned i = 0; i < ARRAY_SIZE(blocks); i++)
                blocks[i] = handle(HEAP_GRANULARITY);
        for (unsigned left = ARRAY_SIZE(blocks); left > 1; left--) {
                e = choose_evict(&gpu, GIB);
                assert_non_null(e);
                e->state = EXTENT_EVICTED;
                choose_left(&gpu);
                assert_ptr_equal(choose_by_state(&gpu, EXTENT_EVICTED), e);
                e->block->dying = true;
                assert_null(choose_by_state(&gpu, EXTENT_EVICTED));
                heap_bury(&gpu.heap, e->block);
                assert_null(choose_by_state(&gpu, EXTENT_EVICTED));
        }
        e = choose_evict(&gpu, GIB);
        heap_bury(&gpu.heap, e->block);
        assert_null(choose_evict(&gpu, GIB));
}

/* A walk for each of tens of thousands of new extents would take longer than creating them. */
static void evicted_extents_are_sought_only_after_one_has_left(void **state)
{
        struct block *b = handle(HEAP_GRANULARITY);

        assert_null(choose_by_state(&gpu, EXTENT_EVICTED));
        b->extents[0].state = EXTENT_EVICTED;
        assert_null(choose_by_state(&gpu, EXTENT_EVICTED)); /* choose_left() was not called */
        choose_left(&gpu);
        b->held = true;
        assert_null(choose_by_state(&gpu, EXTENT_EVICTED));
        b->held = false;
        assert_ptr_equal(choose_by_state(&gpu, EXTENT_EVICTED), &b->extents[0]);
}

static int tear_down(void **state)
{
        while (gpu.heap.handle_count > 0)
                heap_bury(&gpu.heap, gpu.heap.handles[0]);
        for (size_t i = 0; i < gpu.heap.count; i++) {
                free(gpu.heap.blocks[i]->extents);
                free(gpu.heap.blocks[i]);
        }
        free(gpu.heap.blocks);
        free(gpu.heap.handles);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(the_choice_equals_that_of_a_plain_walk, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(the_same_extents_are_evicted_each_time, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(evicted_extents_are_sought_only_after_one_has_left,
                                                set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_buried_block_is_never_read, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
