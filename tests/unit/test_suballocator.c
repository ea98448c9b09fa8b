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

enum { LANES = 3, LIVE = 400 };

struct books {
        struct heap heap;
        struct suballocator suballocator;
        struct lane lanes[LANES];
        uint64_t numbers[LANES];
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
        struct books *b = calloc(1, sizeof(*b));

        real.cuMemAddressReserve = reserve;
        heap_init(&b->heap, GIB);
        b->block = heap_take_pool(&b->heap, 512 * MIB, 32 * MIB);
        assert_non_null(b->block);
        assert_int_equal(suballocator_add(&b->suballocator, b->block), 0);
        *state = b;
        return 0;
}

static int tear_down(void **state)
{
        struct books *b = *state;

        while (b->suballocator.chunks)
                suballocator_remove(&b->suballocator, b->suballocator.chunks);
        suballocator_clear(&b->suballocator);
        b->block->dying = true;
        heap_bury(&b->heap, b->block);
        for (size_t i = 0; i < b->heap.count; i++)
                free(b->heap.blocks[i]);
        free(b->heap.blocks);
        free(b);
        return 0;
}

/* What free list i may use. */
static struct suballocation *find(struct books *b, unsigned i, uint64_t bytes)
{
        struct suballocation *n = suballocator_fit(&b->lanes[i], bytes, false);

        if (!n)
                n = suballocator_fit(&b->suballocator.common, bytes, false);
        return n ? n : suballocator_join(&b->suballocator, &b->lanes[i], bytes, false);
}

static void give(struct books *b, struct suballocation *n, unsigned i)
{
        suballocator_give(&b->suballocator, n, &b->lanes[i], ++b->numbers[i]);
}

/* Every byte is in exactly one suballocation, free neighbours of one list are merged, and the sums
 * of the lists are right. */
static void check(struct books *b)
{
        uint64_t sum[LANES + 1] = {0}, live = 0, at = b->block->address;
        const struct suballocation *lower = NULL;

        for (const struct suballocation *n = b->block->chunk->lowest; n; lower = n, n = n->higher) {
                assert_int_equal(n->address, at);
                assert_ptr_equal(n->lower, lower);
                at += n->bytes;
                if (!n->lane) {
                        live++;
                        assert_ptr_equal(suballocator_at(&b->suballocator, n->address), n);
                        continue;
                }
                assert_true(!lower || lower->lane != n->lane);
                for (unsigned i = 0; i < LANES; i++)
                        sum[i] += n->lane == &b->lanes[i] ? n->bytes : 0;
                sum[LANES] += n->lane == &b->suballocator.common ? n->bytes : 0;
        }
        assert_int_equal(at, b->block->address + b->block->bytes);
        assert_int_equal(live, b->suballocator.live);
        for (unsigned i = 0; i < LANES; i++)
                assert_int_equal(sum[i], b->lanes[i].bytes);
        assert_int_equal(sum[LANES], b->suballocator.common.bytes);
}

static void what_a_stream_has_freed_is_its_own_until_it_is_passed_on(void **state)
{
        struct books *b = *state;
        struct suballocation *n =
                suballocator_take(&b->suballocator, find(b, 0, 100 * MIB), 100 * MIB);
        CUdeviceptr at = n->address;

        give(b, n, 0);
        assert_null(suballocator_fit(&b->lanes[1], 100 * MIB, false));
        assert_int_equal(find(b, 0, 100 * MIB)->address, at);
        assert_int_not_equal(find(b, 1, 100 * MIB)->address, at);
        suballocator_pass(&b->lanes[0], 0, &b->suballocator.common, 0);
        assert_int_equal(b->lanes[0].bytes, 100 * MIB); /* not yet */
        suballocator_pass(&b->lanes[0], 1, &b->suballocator.common, 0);
        assert_int_equal(b->suballocator.common.bytes, b->block->bytes);
        assert_int_equal(b->block->chunk->lowest->bytes, b->block->bytes);
}

static void an_address_inside_leads_to_its_parcel(void **state)
{
        struct books *b = *state;
        struct suballocation *n = suballocator_take(&b->suballocator, find(b, 0, 5000), 5000);

        assert_ptr_equal(suballocator_around(b->block->chunk, n->address + 4999), n);
        assert_null(suballocator_around(b->block->chunk,
                                        /* Past the requested bytes there is only rounding. */
                                        n->address + 5000));
        give(b, n, 0);
        assert_null(suballocator_around(b->block->chunk, b->block->address));
}

static void a_stream_may_use_its_own_with_what_is_beside_it(void **state)
{
        struct books *b = *state;
        struct suballocation *n[5];

        for (unsigned i = 0; i < 5; i++)
                n[i] = suballocator_take(&b->suballocator, find(b, 0, 100 * MIB), 100 * MIB);
        suballocator_give(&b->suballocator, n[1], &b->suballocator.common, 0);
        give(b, n[2], 0);
        suballocator_give(&b->suballocator, n[3], &b->suballocator.common, 0);
        assert_null(suballocator_join(&b->suballocator, &b->lanes[1], 250 * MIB, false));
        assert_null(suballocator_join(&b->suballocator, &b->lanes[0], 301 * MIB, false));
        n[2] = suballocator_join(&b->suballocator, &b->lanes[0], 250 * MIB, false);
        assert_non_null(n[2]);
        assert_int_equal(n[2]->bytes, 250 * MIB);
        check(b);
        give(b, suballocator_take(&b->suballocator, n[2], 250 * MIB), 0);
        check(b);
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
        struct books *b = *state;
        uint64_t s = 88172645463325252;
        unsigned n = 0;

        for (unsigned step = 0; step < 200000; step++) {
                uint64_t r = random_next(&s),
                         bytes = r >> 40 & 3 ? 1 + (r >> 20) % 20000 : 1 + (r >> 20) % (8 * MIB);
                unsigned lane = (unsigned)(r >> 8) % LANES;

                if (n < LIVE && r % 5 < 3) {
                        struct suballocation *from = find(b, lane, bytes);

                        if (!from)
                                continue;
                        assert_true(from->bytes >= bytes);
                        assert_true(from->lane == &b->lanes[lane] ||
                                    from->lane == &b->suballocator.common);
                        live[n] = suballocator_take(&b->suballocator, from, bytes);
                        assert_int_equal(live[n]->requested, bytes);
                        heap_use(&b->heap, b->block, live[n]->address, live[n]->bytes);
                        n++;
                } else if (n > 0) {
                        unsigned i = (unsigned)(r >> 16) % n;

                        assert_ptr_equal(
                                suballocator_around(b->block->chunk,
                                                    live[i]->address + live[i]->requested - 1),
                                live[i]);
                        heap_unuse(b->block, live[i]->address, live[i]->bytes);
                        give(b, live[i], lane);
                        live[i] = live[--n];
                }
                if (r % 97 == 0)
                        suballocator_pass(&b->lanes[lane],
                                          b->numbers[lane] -
                                                  (b->numbers[lane]
                                                           ? r / 97 % MIN(b->numbers[lane], 50U)
                                                           : 0),
                                          &b->suballocator.common, 0);
                if (step % 1000 == 0)
                        check(b);
        }
        while (n > 0) {
                n--;
                heap_unuse(b->block, live[n]->address, live[n]->bytes);
                give(b, live[n], 0);
        }
        for (unsigned i = 0; i < LANES; i++)
                suballocator_pass(&b->lanes[i], UINT64_MAX, &b->suballocator.common, 0);
        check(b);
        assert_int_equal(b->block->chunk->lowest->bytes, b->block->bytes);
        for (unsigned i = 0; i < b->block->extent_count; i++)
                assert_int_equal(b->block->extents[i].live, 0);
}

int main(void)
{
#define SUBALLOCATOR_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                SUBALLOCATOR_TEST(what_a_stream_has_freed_is_its_own_until_it_is_passed_on),
                SUBALLOCATOR_TEST(an_address_inside_leads_to_its_parcel),
                SUBALLOCATOR_TEST(a_stream_may_use_its_own_with_what_is_beside_it),
                SUBALLOCATOR_TEST(random_streams_never_meet),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
