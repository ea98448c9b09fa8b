/* test_kept.c: when host memory is needed, host copies of extents on the card are dropped, and no
 * other copies. */
#include "unit.h"

#include <errno.h>

#include "preload/move/kept_copies.h"
#include "preload/heap/slab.h"

#define MIB  (UINT64_C(1) << 20)
#define EACH (8 * MIB)

struct real_driver real;
struct core core;
struct lock core_lock;

/* A fake arena without memory: it only counts bytes. */
static uint64_t arena_room, arena_taken;

int arena_take(struct arena *a, uint64_t bytes, struct arena_room *ret)
{
        if (arena_taken + bytes > arena_room)
                return -ENOMEM;
        arena_taken += bytes;
        *ret = (struct arena_room){.count = 1, .pieces = malloc(sizeof(struct arena_piece))};
        ret->pieces[0] = (struct arena_piece){.bytes = bytes};
        return 0;
}

/* The lock must be held when copies of extents are dropped that are not busy. */
static bool drops;

void arena_give(struct arena *a, struct arena_room *room)
{
        assert_true(!drops || core_lock.word);
        for (unsigned i = 0; i < room->count; i++)
                arena_taken -= room->pieces[i].bytes;
        free(room->pieces);
        *room = (struct arena_room){0};
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        static CUdeviceptr next = 0x700000000000;

        *ret = next;
        next += bytes + alignment;
        return CUDA_SUCCESS;
}

static struct gpu *gpu;
static struct extent *extents[8];

/* Makes eight extents with host copies: the first four are on the card, the second of them busy;
 * the other four are evicted. */
static int eight_extents(void **state)
{
        CUdeviceptr at;
        uint64_t cost;

        real.cuMemAddressReserve = fake_reserve;
        gpu = &core.gpus[0];
        heap_init(&gpu->heap, 1024 * MIB);
        arena_room = 8 * EACH;
        arena_taken = 0;
        for (unsigned i = 0; i < 8; i++) {
                struct heap_place p;

                assert_int_equal(heap_allocate(&gpu->heap, EACH, NULL, UINT64_MAX, &at, &cost), 0);
                assert_true(heap_find(&gpu->heap, at, &p));
                extents[i] = &p.block->extents[0];
                extents[i]->state = i < 4 ? EXTENT_RESIDENT : EXTENT_EVICTED;
                extents[i]->kept = extents[i]->live;
                extents[i]->known = true;
                assert_int_equal(arena_take(NULL, EACH, &extents[i]->host), 0);
        }
        extents[1]->busy = true;
        return 0;
}

static int free_extents(void **state)
{
        for (unsigned i = 0; i < 8; i++)
                arena_give(NULL, &extents[i]->host);
        for (size_t i = 0; i < gpu->heap.count; i++) {
                free(gpu->heap.blocks[i]->extents);
                free(gpu->heap.blocks[i]);
        }
        free(gpu->heap.blocks);
        gpu->heap = (struct heap){0};
        return 0;
}

static void an_eviction_drops_host_copies_of_resident_extents(void **state)
{
        struct extent new = {.bytes = 2 * EACH, .kept = 0xff, .busy = true};

        drops = true;
        assert_int_equal(kept_take(gpu, NULL, &new), 0);
        drops = false;
        assert_int_equal(new.host.count, 1);
        assert_int_equal(extents[0]->host.count + extents[2]->host.count + extents[3]->host.count,
                         1);
        assert_int_equal(extents[0]->known + extents[2]->known + extents[3]->known, 1);
        for (unsigned i = 4; i < 8; i++)
                assert_int_equal(extents[i]->host.count, 1);
        assert_int_equal(extents[1]->host.count, 1); /* the extent is busy */
        arena_give(NULL, &new.host);
}

static void an_extent_with_a_host_copy_needs_no_more_room(void **state)
{
        assert_int_equal(kept_take(gpu, NULL, extents[1]), 0);
        assert_int_equal(arena_taken, 8 * EACH);
}

static void the_only_copy_of_an_extent_is_never_dropped(void **state)
{
        struct extent new = {.bytes = 4 * EACH, .kept = 0xffff, .busy = true};

        assert_int_equal(kept_take(gpu, NULL, &new), -ENOMEM);
        assert_int_equal(new.host.count, 0);
        for (unsigned i = 4; i < 8; i++)
                assert_int_equal(extents[i]->host.count, 1);
        assert_int_equal(arena_taken, 5 * EACH);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, eight_extents, free_extents)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(an_eviction_drops_host_copies_of_resident_extents),
                TEST(an_extent_with_a_host_copy_needs_no_more_room),
                TEST(the_only_copy_of_an_extent_is_never_dropped),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
