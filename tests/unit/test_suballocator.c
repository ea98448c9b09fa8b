/* test_suballocator.c: the accounts of a pool against a plain model: live suballocations never
 * overlap, a stream gets only what it freed itself or what any stream may have, and free neighbours
 * merge. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "preload/heap/heap.h"
#include "preload/heap/suballocator.h"
#include "preload/driver/real.h"

struct real_driver real;

enum { FREE_LISTS = 3, LIVE = 400 };

struct accounts {
        struct heap heap;
        struct suballocator suballocator;
        struct free_list free_lists[FREE_LISTS];
        uint64_t numbers[FREE_LISTS];
        struct block *block;
};

static CUresult reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                        unsigned long long flags)
{
        *ptr = UINT64_C(1) << 40;
        return CUDA_SUCCESS;
}

static int set_up(void **state)
{
        struct accounts *a = calloc(1, sizeof(*a));

        real.cuMemAddressReserve = reserve;
        heap_init(&a->heap, GIB);
        a->block = heap_take_pool(&a->heap, 512 * MIB, 32 * MIB);
        assert_non_null(a->block);
        assert_int_equal(suballocator_add(&a->suballocator, a->block), 0);
        *state = a;
        return 0;
}

static int tear_down(void **state)
{
        struct accounts *a = *state;

        while (a->suballocator.chunks)
                suballocator_remove(&a->suballocator, a->suballocator.chunks);
        suballocator_clear(&a->suballocator);
        a->block->dying = true;
        heap_bury(&a->heap, a->block);
        for (size_t i = 0; i < a->heap.count; i++)
                free(a->heap.blocks[i]);
        free(a->heap.blocks);
        free(a);
        return 0;
}

/* What free list i may use. */
static struct suballocation *find(struct accounts *a, unsigned i, uint64_t bytes)
{
        struct suballocation *n = suballocator_fit(&a->free_lists[i], bytes, false);

        if (!n)
                n = suballocator_fit(&a->suballocator.common, bytes, false);
        return n ? n : suballocator_join(&a->suballocator, &a->free_lists[i], bytes, false);
}

static void give(struct accounts *a, struct suballocation *n, unsigned i)
{
        suballocator_give(&a->suballocator, n, &a->free_lists[i], ++a->numbers[i]);
}

/* Every byte is in exactly one suballocation, free neighbours of one list are merged, and the sums
 * of the lists are right. */
static void check(struct accounts *a)
{
        uint64_t sum[FREE_LISTS + 1] = {0}, live = 0, at = a->block->address;
        const struct suballocation *lower = NULL;

        for (const struct suballocation *n = a->block->chunk->lowest; n; lower = n, n = n->higher) {
                assert_int_equal(n->address, at);
                assert_ptr_equal(n->lower, lower);
                at += n->bytes;
                if (!n->free_list) {
                        live++;
                        assert_ptr_equal(suballocator_at(&a->suballocator, n->address), n);
                        continue;
                }
                assert_true(!lower || lower->free_list != n->free_list);
                for (unsigned i = 0; i < FREE_LISTS; i++)
                        sum[i] += n->free_list == &a->free_lists[i] ? n->bytes : 0;
                sum[FREE_LISTS] += n->free_list == &a->suballocator.common ? n->bytes : 0;
        }
        assert_int_equal(at, a->block->address + a->block->bytes);
        assert_int_equal(live, a->suballocator.live);
        for (unsigned i = 0; i < FREE_LISTS; i++)
                assert_int_equal(sum[i], a->free_lists[i].bytes);
        assert_int_equal(sum[FREE_LISTS], a->suballocator.common.bytes);
}

static void what_a_stream_has_freed_is_its_own_until_it_is_passed_on(void **state)
{
        struct accounts *a = *state;
        struct suballocation *n =
                suballocator_take(&a->suballocator, find(a, 0, 100 * MIB), 100 * MIB);
        CUdeviceptr at = n->address;

        give(a, n, 0);
        assert_null(suballocator_fit(&a->free_lists[1], 100 * MIB, false));
        assert_int_equal(find(a, 0, 100 * MIB)->address, at);
        assert_int_not_equal(find(a, 1, 100 * MIB)->address, at);
        suballocator_pass(&a->free_lists[0], 0, &a->suballocator.common, 0);
        assert_int_equal(a->free_lists[0].bytes, 100 * MIB); /* not yet */
        suballocator_pass(&a->free_lists[0], 1, &a->suballocator.common, 0);
        assert_int_equal(a->suballocator.common.bytes, a->block->bytes);
        assert_int_equal(a->block->chunk->lowest->bytes, a->block->bytes);
}

static void an_address_inside_leads_to_its_suballocation(void **state)
{
        struct accounts *a = *state;
        struct suballocation *n = suballocator_take(&a->suballocator, find(a, 0, 5000), 5000);

        assert_ptr_equal(suballocator_around(a->block->chunk, n->address + 4999), n);
        assert_null(suballocator_around(a->block->chunk,
                                        /* Past the requested bytes there is only rounding. */
                                        n->address + 5000));
        give(a, n, 0);
        assert_null(suballocator_around(a->block->chunk, a->block->address));
}

static void a_stream_may_use_its_own_with_what_is_beside_it(void **state)
{
        struct accounts *a = *state;
        struct suballocation *n[5];

        for (unsigned i = 0; i < 5; i++)
                n[i] = suballocator_take(&a->suballocator, find(a, 0, 100 * MIB), 100 * MIB);
        suballocator_give(&a->suballocator, n[1], &a->suballocator.common, 0);
        give(a, n[2], 0);
        suballocator_give(&a->suballocator, n[3], &a->suballocator.common, 0);
        assert_null(suballocator_join(&a->suballocator, &a->free_lists[1], 250 * MIB, false));
        assert_null(suballocator_join(&a->suballocator, &a->free_lists[0], 301 * MIB, false));
        n[2] = suballocator_join(&a->suballocator, &a->free_lists[0], 250 * MIB, false);
        assert_non_null(n[2]);
        assert_int_equal(n[2]->bytes, 250 * MIB);
        check(a);
        give(a, suballocator_take(&a->suballocator, n[2], 250 * MIB), 0);
        check(a);
}

static uint64_t random_next(uint64_t *s)
{
        *s ^= *s << 13;
        *s ^= *s >> 7;
        return *s ^= *s << 17;
}

static void random_streams_never_meet(void **state)
{
        static struct suballocation *live[LIVE];
        struct accounts *a = *state;
        uint64_t s = 88172645463325252;
        unsigned n = 0;

        for (unsigned step = 0; step < 200000; step++) {
                uint64_t r = random_next(&s),
                         bytes = r >> 40 & 3 ? 1 + (r >> 20) % 20000 : 1 + (r >> 20) % (8 * MIB);
                unsigned free_list = (unsigned)(r >> 8) % FREE_LISTS;

                if (n < LIVE && r % 5 < 3) {
                        struct suballocation *from = find(a, free_list, bytes);

                        if (!from)
                                continue;
                        assert_true(from->bytes >= bytes);
                        assert_true(from->free_list == &a->free_lists[free_list] ||
                                    from->free_list == &a->suballocator.common);
                        live[n] = suballocator_take(&a->suballocator, from, bytes);
                        assert_int_equal(live[n]->requested, bytes);
                        heap_use(&a->heap, a->block, live[n]->address, live[n]->bytes);
                        n++;
                } else if (n > 0) {
                        unsigned i = (unsigned)(r >> 16) % n;

                        assert_ptr_equal(
                                suballocator_around(a->block->chunk,
                                                    live[i]->address + live[i]->requested - 1),
                                live[i]);
                        heap_unuse(a->block, live[i]->address, live[i]->bytes);
                        give(a, live[i], free_list);
                        live[i] = live[--n];
                }
                if (r % 97 == 0)
                        suballocator_pass(
                                &a->free_lists[free_list],
                                a->numbers[free_list] -
                                        (a->numbers[free_list]
                                                 ? r / 97 % MIN(a->numbers[free_list], 50U)
                                                 : 0),
                                &a->suballocator.common, 0);
                if (step % 1000 == 0)
                        check(a);
        }
        while (n > 0) {
                n--;
                heap_unuse(a->block, live[n]->address, live[n]->bytes);
                give(a, live[n], 0);
        }
        for (unsigned i = 0; i < FREE_LISTS; i++)
                suballocator_pass(&a->free_lists[i], UINT64_MAX, &a->suballocator.common, 0);
        check(a);
        assert_int_equal(a->block->chunk->lowest->bytes, a->block->bytes);
        for (unsigned i = 0; i < a->block->extent_count; i++)
                assert_int_equal(a->block->extents[i].live, 0);
}

int main(void)
{
#define SUBALLOCATOR_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                SUBALLOCATOR_TEST(what_a_stream_has_freed_is_its_own_until_it_is_passed_on),
                SUBALLOCATOR_TEST(an_address_inside_leads_to_its_suballocation),
                SUBALLOCATOR_TEST(a_stream_may_use_its_own_with_what_is_beside_it),
                SUBALLOCATOR_TEST(random_streams_never_meet),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
