/* test_heap.c: the heap's accounts compared with a plain model: no two allocations overlap, each
 * address is found exactly while its allocation lives, and the totals are right. The heap makes one
 * driver call, the reservation of addresses; here a counter answers it. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "preload/heap/heap.h"
#include "preload/driver/real.h"
#include "preload/heap/slab.h"

struct real_driver real;

#define OWNER ((CUcontext)0x10)
#define OTHER ((CUcontext)0x20)

static CUdeviceptr next_address;
static unsigned reservations;

static CUresult reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                        unsigned long long flags)
{
        *ptr = next_address;
        next_address += size + alignment; /* leaves a gap, because reservations need not adjoin */
        reservations++;
        return CUDA_SUCCESS;
}

static int set_up(void **state)
{
        struct heap *h = malloc(sizeof(*h));

        next_address = UINT64_C(1) << 40;
        reservations = 0;
        real.cuMemAddressReserve = reserve;
        heap_init(h, 16 * GIB);
        *state = h;
        return 0;
}

static int tear_down(void **state)
{
        struct heap *h = *state;

        for (size_t i = 0; i < h->count; i++) {
                slab_delete(h->blocks[i]->slab);
                free(h->blocks[i]->users);
                free(h->blocks[i]->extents);
                free(h->blocks[i]);
        }
        free(h->holes);
        free(h->blocks);
        free(h->handles);
        free(h);
        return 0;
}

static CUdeviceptr take(struct heap *h, uint64_t bytes)
{
        CUdeviceptr p = 0;
        uint64_t cost;

        assert_int_equal(heap_allocate(h, bytes, OWNER, UINT64_MAX, &p, &cost), 0);
        return p;
}

static void give(struct heap *h, CUdeviceptr p)
{
        struct block *dead;

        assert_int_equal(heap_free(h, p, &dead), 0);
        if (dead)
                heap_bury(h, dead);
}

/* The memory of a handle has no address in the heap; it is cut and counted like other memory. */
static void a_handle_is_a_block_without_an_address(void **state)
{
        struct heap *h = *state;
        struct block *one, *two, *three;
        struct heap_cursor c = {0};
        struct extent *e;
        uint64_t sum = 0;

        assert_int_equal(heap_create(h, 2 * MIB, NULL, MIB, &one), -ENOSPC);
        assert_int_equal(heap_create(h, 2 * MIB, NULL, UINT64_MAX, &one), 0);
        assert_int_equal(heap_create(h, 300 * MIB, NULL, UINT64_MAX, &two), 0);
        assert_int_equal(heap_create(h, 2 * MIB, NULL, 303 * MIB, &three), -ENOSPC);
        assert_int_equal(heap_create(h, 2 * MIB, NULL, 304 * MIB, &three), 0);
        (void)take(h, 2 * MIB);
        assert_true(h->allocated == 306 * MIB);
        assert_int_equal(two->extent_count, 3);
        while ((e = heap_walk(h, &c))) {
                sum += e->bytes;
                assert_true((e->address == 0) == (e->block->kind == BLOCK_HANDLE));
                assert_true(e->offset == (uint64_t)(e - e->block->extents) * h->extent_bytes);
                e->block->held = false;
                assert_true(extent_is_free(e));
                e->block->held = true;
                assert_false(extent_is_free(e));
        }
        assert_true(sum == h->allocated);
        assert_null(heap_orphan(h, OTHER)); /* handles belong to no context */
        heap_bury(h, one);
        heap_bury(h, three);
        assert_int_equal(h->handle_count, 1);
        assert_ptr_equal(h->handles[two->index], two);
        heap_bury(h, two);
        assert_true(h->allocated == 2 * MIB);
}

static void a_large_allocation_is_cut_into_extents_of_at_most_128_mib(void **state)
{
        struct heap *h = *state;
        CUdeviceptr p = take(h, GIB + 3 * MIB);
        struct heap_cursor c = {0};
        uint64_t sum = 0;
        unsigned n = 0;

        for (struct extent *e; (e = heap_walk(h, &c)); n++) {
                assert_int_equal(e->address, p + sum);
                assert_true(e->bytes <= HEAP_EXTENT_MAX && e->bytes % HEAP_GRANULARITY == 0);
                sum += e->bytes;
        }
        assert_int_equal(n, 9);
        assert_int_equal(sum, GIB + 4 * MIB);
        assert_int_equal(h->allocated, sum);
        assert_int_equal(heap_missing(h), sum);
}

enum { PAGES = 4096, LIVE = 600 };

static size_t lowest_run(const bool *used, size_t pages)
{
        size_t run = 0, i = 0;

        while (run < pages && i < PAGES)
                run = used[i++] ? 0 : run + 1;
        return run < pages ? PAGES : i - pages;
}

static void an_allocation_takes_the_lowest_free_addresses_that_hold_it(void **state)
{
        struct heap *h = *state;
        CUdeviceptr first = take(h, HEAP_GRANULARITY), live[LIVE] = {0};
        static bool used[PAGES];
        size_t pages[LIVE] = {0};

        give(h, first);
        memset(used, 0, sizeof(used));
        srand(7);
        for (unsigned n = 0; n < 40000; n++) {
                unsigned i = (unsigned)rand() % LIVE;
                size_t at = (live[i] - first) / HEAP_GRANULARITY;

                if (live[i]) {
                        give(h, live[i]);
                        memset(&used[at], false, pages[i]);
                        live[i] = 0;
                        continue;
                }
                pages[i] = (size_t)rand() % (n % 64 ? 8 : 64) + 1;
                at = lowest_run(used, pages[i]);
                live[i] = take(h, pages[i] * HEAP_GRANULARITY);
                assert_int_equal(live[i], first + at * HEAP_GRANULARITY);
                memset(&used[at], true, pages[i]);
        }
        assert_int_equal(reservations, 1);
}

static void extents_of_a_small_card_are_at_most_a_16th_of_it(void **state)
{
        struct heap *h = *state;
        struct heap_cursor c = {0};

        heap_init(h, 100 * MIB);
        (void)take(h, 21 * MIB);
        for (struct extent *e; (e = heap_walk(h, &c));)
                assert_true(e->bytes <= 6 * MIB && e->bytes % HEAP_GRANULARITY == 0);
        assert_int_equal(h->allocated, 22 * MIB);
}

static void an_address_inside_an_allocation_leads_to_its_start_and_size(void **state)
{
        struct heap *h = *state;
        CUdeviceptr large = take(h, 5 * MIB), small = take(h, 700);
        struct heap_place p;

        assert_true(heap_find(h, large + 5 * MIB - 1, &p));
        assert_int_equal(p.start, large);
        assert_int_equal(p.bytes, 5 * MIB);
        assert_false(heap_find(h, large + 5 * MIB, &p)); /* the sixth MiB is not the program's */
        assert_true(heap_find(h, small + 699, &p));
        assert_int_equal(p.start, small);
        assert_int_equal(p.bytes, 700);
        assert_false(heap_find(h, small + 700, &p));
        assert_false(heap_find(h, 4096, &p));
        assert_true(heap_gap(h, small + 700));
        assert_true(heap_gap(h, large + 5 * MIB));
        assert_false(heap_gap(h, large));
        assert_false(heap_gap(h, 4096));
}

static void only_the_start_of_an_allocation_can_be_freed_and_only_once(void **state)
{
        struct heap *h = *state;
        CUdeviceptr p = take(h, 3 * MIB);
        struct block *dead;

        assert_int_equal(heap_free(h, p + 512, &dead), -EINVAL);
        assert_int_equal(heap_free(h, p, &dead), 0);
        assert_non_null(dead);
        assert_int_equal(heap_free(h, p, &dead), -EINVAL);
        assert_int_equal(h->allocated, 4 * MIB); /* a dead block counts until it is buried */
        heap_bury(h, dead);
        assert_int_equal(h->allocated, 0);
}

static void small_allocations_share_a_slab_and_give_it_back_with_the_last(void **state)
{
        struct heap *h = *state;
        CUdeviceptr p[4096];
        struct block *dead;

        for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
                p[i] = take(h, 512);
                assert_int_equal(p[i] % HEAP_SMALL_ALIGN, 0);
        }
        assert_int_equal(h->allocated, HEAP_GRANULARITY);
        for (unsigned i = 0; i + 1 < ARRAY_SIZE(p); i++) {
                assert_int_equal(heap_free(h, p[i], &dead), 0);
                assert_null(dead);
        }
        assert_int_equal(heap_free(h, p[ARRAY_SIZE(p) - 1], &dead), 0);
        assert_non_null(dead);
        heap_bury(h, dead);
        assert_int_equal(h->allocated, 0);
}

static void contexts_do_not_share_slabs_and_end_with_their_memory(void **state)
{
        struct heap *h = *state;
        CUdeviceptr mine = take(h, 100), theirs = 0;
        struct heap_place p;
        struct block *b;
        uint64_t cost;

        assert_int_equal(heap_allocate(h, 100, OTHER, UINT64_MAX, &theirs, &cost), 0);
        assert_int_equal(h->allocated, 2 * HEAP_GRANULARITY);
        b = heap_orphan(h, OTHER);
        assert_non_null(b);
        assert_null(heap_orphan(h, OTHER));
        heap_bury(h, b);
        assert_false(heap_find(h, theirs, &p));
        assert_true(heap_find(h, mine, &p));
}

static void freed_address_space_is_joined_and_used_again(void **state)
{
        struct heap *h = *state;
        CUdeviceptr p[64];

        for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
                p[i] = take(h, 32 * MIB);
        for (unsigned i = 0; i < ARRAY_SIZE(p); i += 2)
                give(h, p[i]);
        for (unsigned i = 1; i < ARRAY_SIZE(p); i += 2)
                give(h, p[i]);
        assert_int_equal(h->count, reservations);
        assert_int_equal(take(h, 2 * GIB), p[0]);
        assert_int_equal(reservations, 1);
}

static void address_space_grows_past_the_first_reservation(void **state)
{
        struct heap *h = *state;

        (void)take(h, 48 * GIB);
        (void)take(h, 48 * GIB);
        (void)take(h, 144 * GIB);
        assert_int_equal(reservations, 3);
}

static void an_allocation_past_the_maximum_fails_and_names_its_bytes(void **state)
{
        struct heap *h = *state;
        CUdeviceptr p, small = take(h, 512);
        uint64_t cost;

        assert_int_equal(heap_allocate(h, 3 * MIB, OWNER, 4 * MIB, &p, &cost), -ENOSPC);
        assert_int_equal(cost, 4 * MIB);
        assert_int_equal(heap_allocate(h, UINT64_MAX, OWNER, 4 * MIB, &p, &cost), -ENOSPC);
        assert_int_equal(h->allocated, 2 * MIB);
        /* Allocations that fit into the slab cost nothing, because it is counted already. */
        assert_int_equal(heap_allocate(h, 512, OWNER, 2 * MIB, &p, &cost), 0);
        assert_int_equal(p, small + 512);
        assert_int_equal(heap_allocate(h, MIB, OWNER, 2 * MIB, &p, &cost), 0);
        assert_int_equal(heap_allocate(h, MIB, OWNER, 2 * MIB, &p, &cost), -ENOSPC);
        assert_int_equal(cost, 2 * MIB);
}

static void a_slab_is_as_small_as_the_room_that_is_left(void **state)
{
        struct heap *h = *state;
        CUdeviceptr p;
        uint64_t cost;

        h->slab_bytes += GIB; /* as after many small allocations: the next slab would be large */
        assert_int_equal(heap_allocate(h, MIB, OWNER, 6 * MIB, &p, &cost), 0);
        assert_int_equal(h->allocated, 4 * MIB);
        assert_int_equal(heap_allocate(h, MIB, OWNER, 6 * MIB, &p, &cost), 0);
        assert_int_equal(heap_allocate(h, MIB, OWNER, 6 * MIB, &p, &cost), 0);
        assert_int_equal(heap_allocate(h, MIB, OWNER, 6 * MIB, &p, &cost), 0);
        assert_int_equal(h->allocated, 4 * MIB);
        assert_int_equal(heap_allocate(h, MIB, OWNER, 5 * MIB, &p, &cost), -ENOSPC);
        assert_int_equal(cost, 2 * MIB);
        h->slab_bytes -= GIB;
}

static void small_allocations_waste_at_most_a_tenth(void **state)
{
        struct heap *h = *state;
        uint64_t sum = 0;

        /* The check begins at 32 MiB, where the granularity no longer matters. */
        for (unsigned i = 0; i < 400000; i++) {
                (void)take(h, 1 + i % 4096);
                sum += align_up(1 + i % 4096, HEAP_SMALL_ALIGN);
                if (sum > 32 * MIB && h->allocated > sum + sum / 10)
                        fail_msg("%u allocations: %llu bytes for %llu", i + 1,
                                 (unsigned long long)h->allocated, (unsigned long long)sum);
        }
}

/* Returns the mask of live pages of the extent at an address; 0: there is no such extent. */
static uint64_t live_at(struct heap *h, CUdeviceptr address)
{
        struct heap_cursor cursor = {0};
        struct extent *e;

        while ((e = heap_walk(h, &cursor)))
                if (address >= e->address && address - e->address < e->bytes)
                        return e->live;
        return 0;
}

static void only_pages_with_something_in_them_are_live(void **state)
{
        struct heap *h = *state;
        CUdeviceptr a = take(h, MIB), b = take(h, 700 * KIB);

        for (unsigned i = 0; i < 40; i++)
                (void)take(h, MIB);
        assert_int_equal(live_at(h, a), 1);
        give(h, a);
        assert_int_equal(live_at(h, a), 1); /* b keeps the page live */
        give(h, b);
        assert_int_equal(live_at(h, a), 0);
}

static void a_pools_block_counts_only_its_extents_in_use(void **state)
{
        struct heap *h = *state;
        struct block *b = heap_take_pool(h, GIB, 32 * MIB);
        struct heap_cursor c = {0};

        assert_non_null(b);
        assert_int_equal(h->allocated, 0);
        assert_null(heap_walk(h, &c)); /* no extent is in use */
        assert_int_equal(heap_use_cost(b, b->address, 512), 32 * MIB);
        heap_use(h, b, b->address, 512);
        heap_use(h, b, b->address + 512, 40 * MIB);
        assert_int_equal(h->allocated, 64 * MIB);
        assert_int_equal(heap_use_cost(b, b->address + 60 * MIB, 8 * MIB), 32 * MIB);
        assert_int_equal(b->extents[0].live, extent_whole(&b->extents[0]));
        assert_int_equal(b->extents[1].live, 0x1f);
        heap_unuse(b, b->address + 512, 40 * MIB);
        assert_int_equal(b->extents[0].live, 1);
        assert_int_equal(b->extents[1].live, 0);
        assert_int_equal(h->allocated, 64 * MIB);
        heap_settle(h, &b->extents[1]);
        heap_settle(h, &b->extents[1]);
        assert_int_equal(h->allocated, 32 * MIB);
        heap_unuse(b, b->address, 512);
        b->dying = true;
        heap_bury(h, b);
        assert_int_equal(h->allocated, 0);
}

/* ---- random against a model ---- */

struct item {
        CUdeviceptr start;
        uint64_t bytes;
};

static uint64_t random_next(uint64_t *s)
{
        *s ^= *s << 13;
        *s ^= *s >> 7;
        return *s ^= *s << 17;
}

static void a_managed_block_is_provided_and_withdrawn_whole(void **state)
{
        struct heap *h = *state;
        struct heap_place place;
        struct block *dead;
        CUdeviceptr p = 0;
        uint64_t cost;

        h->managed = true;
        assert_int_equal(heap_allocate(h, 5 * MIB, OWNER, UINT64_MAX, &p, &cost), -ENOBUFS);
        assert_int_equal(cost, 6 * MIB);
        assert_int_equal(heap_provide(h, 0x7000000, 8 * MIB), 0); /* bytes for another thread */
        assert_int_equal(heap_allocate(h, 5 * MIB, OWNER, UINT64_MAX, &p, &cost), -ENOBUFS);
        assert_int_equal(heap_provide(h, 0x5000000, cost), 0);
        assert_int_equal(heap_allocate(h, 5 * MIB, OWNER, UINT64_MAX, &p, &cost), 0);
        assert_int_equal(p, 0x5000000);
        assert_int_equal(h->allocated, 6 * MIB);
        assert_int_equal(h->managed_bytes, 6 * MIB);
        assert_int_equal(reservations, 0);
        assert_int_equal(heap_free(h, p, &dead), 0);
        assert_true(dead->managed && dead->extents[0].managed);
        heap_withdraw(h, dead);
        assert_false(heap_find(h, p, &place));
        assert_int_equal(heap_allocate(h, 5 * MIB, OWNER, UINT64_MAX, &p, &cost), -ENOBUFS);
}

static void a_programs_own_managed_memory_is_counted_where_it_lies(void **state)
{
        struct heap *h = *state;
        CUdeviceptr ours = take(h, 5 * MIB);
        struct heap_place place;
        uint64_t cost, most = 20 * MIB;

        assert_int_equal(heap_adopt(h, 0x5000000, 30 * MIB, OWNER, most, &cost), -ENOSPC);
        assert_int_equal(cost, 30 * MIB);
        assert_null(heap_adopted(h, 0, UINT64_MAX));
        assert_int_equal(heap_adopt(h, 0x5000000, 7 * MIB + 1, OWNER, most, &cost), 0);
        assert_int_equal(h->allocated, 13 * MIB + 1);
        assert_int_equal(h->managed_bytes, 7 * MIB + 1);
        assert_true(heap_find(h, 0x5000000 + 7 * MIB, &place));
        assert_int_equal(place.start, 0x5000000);
        assert_int_equal(place.block->kind, BLOCK_ADOPTED);
        assert_false(heap_find(h, 0x5000000 + 7 * MIB + 1, &place));
        assert_ptr_equal(heap_adopted(h, 0, UINT64_MAX), place.block);
        assert_true(heap_find(h, ours, &place));
        assert_false(place.block->managed);
}

static void a_programs_own_managed_memory_is_found_by_any_overlap(void **state)
{
        const CUdeviceptr first = 0x5000000, second = 0x6000000;
        struct heap *h = *state;
        struct heap_place a, b;
        uint64_t cost;

        (void)take(h, 5 * MIB);
        assert_int_equal(heap_adopt(h, first, 4 * MIB, OWNER, UINT64_MAX, &cost), 0);
        assert_int_equal(heap_adopt(h, second, 4 * MIB, OWNER, UINT64_MAX, &cost), 0);
        assert_true(heap_find(h, first, &a) && heap_find(h, second, &b));
        assert_null(heap_adopted(h, first - MIB, MIB));
        assert_ptr_equal(heap_adopted(h, first - MIB, MIB + 1), a.block);
        assert_ptr_equal(heap_adopted(h, first + 4 * MIB - 1, 1), a.block);
        assert_null(heap_adopted(h, first + 4 * MIB, second - first - 4 * MIB));
        assert_ptr_equal(heap_adopted(h, first + 4 * MIB, second - first), b.block);
        a.block->dying = true;
        assert_ptr_equal(heap_adopted(h, first, second), b.block);
        assert_null(heap_adopted(h, first, 4 * MIB));
        assert_null(heap_adopted(h, UINT64_MAX - MIB, MIB));
}

static void check_item(struct heap *h, const struct item *it)
{
        struct heap_place p;

        assert_true(heap_find(h, it->start + it->bytes - 1, &p));
        assert_int_equal(p.start, it->start);
        assert_int_equal(p.bytes, it->bytes);
}

static void random_allocations_never_overlap_and_the_figures_add_up(void **state)
{
        struct heap *h = *state;
        static struct item live[512];
        unsigned n = 0;

        for (uint64_t seed = 1; seed <= 20; seed++) {
                uint64_t s = seed * UINT64_C(0x9e3779b97f4a7c15);

                for (unsigned step = 0; step < 3000; step++) {
                        uint64_t r = random_next(&s);

                        if (n < ARRAY_SIZE(live) && (r % 5 < 3 || n == 0)) {
                                uint64_t bytes = r >> 32 & 1 ? 1 + (r >> 33) % (2 * HEAP_SMALL_MAX)
                                                             : 1 + (r >> 33) % (64 * MIB);
                                struct item it = {take(h, bytes), bytes};

                                for (unsigned i = 0; i < n; i++)
                                        assert_true(it.start + it.bytes <= live[i].start ||
                                                    live[i].start + live[i].bytes <= it.start);
                                live[n++] = it;
                        } else {
                                unsigned i = (unsigned)(r >> 8) % n;

                                check_item(h, &live[i]);
                                give(h, live[i].start);
                                live[i] = live[--n];
                        }
                }
                {
                        struct heap_cursor c = {0};
                        uint64_t sum = 0;

                        for (struct extent *e; (e = heap_walk(h, &c));)
                                sum += e->bytes;
                        assert_int_equal(sum, h->allocated);
                }
        }
        while (n > 0)
                give(h, live[--n].start);
        assert_int_equal(h->allocated, 0);
        assert_int_equal(h->count, reservations);
}

int main(void)
{
#define HEAP_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                HEAP_TEST(a_handle_is_a_block_without_an_address),
                HEAP_TEST(a_large_allocation_is_cut_into_extents_of_at_most_128_mib),
                HEAP_TEST(extents_of_a_small_card_are_at_most_a_16th_of_it),
                HEAP_TEST(an_allocation_takes_the_lowest_free_addresses_that_hold_it),
                HEAP_TEST(an_address_inside_an_allocation_leads_to_its_start_and_size),
                HEAP_TEST(only_the_start_of_an_allocation_can_be_freed_and_only_once),
                HEAP_TEST(small_allocations_share_a_slab_and_give_it_back_with_the_last),
                HEAP_TEST(contexts_do_not_share_slabs_and_end_with_their_memory),
                HEAP_TEST(freed_address_space_is_joined_and_used_again),
                HEAP_TEST(address_space_grows_past_the_first_reservation),
                HEAP_TEST(an_allocation_past_the_maximum_fails_and_names_its_bytes),
                HEAP_TEST(a_managed_block_is_provided_and_withdrawn_whole),
                HEAP_TEST(a_programs_own_managed_memory_is_counted_where_it_lies),
                HEAP_TEST(a_programs_own_managed_memory_is_found_by_any_overlap),
                HEAP_TEST(a_slab_is_as_small_as_the_room_that_is_left),
                HEAP_TEST(small_allocations_waste_at_most_a_tenth),
                HEAP_TEST(only_pages_with_something_in_them_are_live),
                HEAP_TEST(a_pools_block_counts_only_its_extents_in_use),
                HEAP_TEST(random_allocations_never_overlap_and_the_figures_add_up),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
