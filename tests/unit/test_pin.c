/* test_pin.c: extents that stay on the card because others have them: what is asked of the daemon,
 * what it grants, and that bytes count as long as anybody has them, freed or not. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/neighbours.h"
#include "heap_end.h"
#include "preload/move/pin.h"

#define CARD   (128 * MIB)
#define EXTENT (8 * MIB)
#define PINS   8u

static struct gpu *const gpu = &core.gpus[0];
static struct block *block; /* of four extents */

static int begin(void **state)
{
        CUdeviceptr at;
        uint64_t cost;
        struct heap_place p;

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 1};
        driver_reset(CARD);
        gpu->limit = CARD;
        heap_init(&gpu->heap, CARD);
        assert_int_equal(heap_allocate(&gpu->heap, 4 * EXTENT, NULL, UINT64_MAX, &at, &cost), 0);
        assert_true(heap_find(&gpu->heap, at, &p));
        block = p.block;
        assert_int_equal(block->extent_count, 4);
        for (unsigned i = 0; i < 4; i++)
                block->extents[i].state = EXTENT_RESIDENT;
        gpu->heap.backed = gpu->heap.resident = 4 * EXTENT;
        request_kicks = 0;
        return 0;
}

static int end(void **state)
{
        heap_end(&gpu->heap);
        return 0;
}

static struct pin *take(unsigned first, unsigned count)
{
        struct pin *p = pin_take(gpu, block, block->address + first * EXTENT, count * EXTENT);

        assert_non_null(p);
        assert_int_equal(pin_extents(p), count);
        assert_int_equal(pin_bytes(p), count * EXTENT);
        assert_ptr_equal(pin_gpu(p), gpu);
        return p;
}

/* What waits for a pin is woken, and the agent told. */
#define CHECK_WAKES(call)                                        \
        do {                                                     \
                uint32_t rung = bell_listen(&core.changed);      \
                unsigned kicks = request_kicks;                  \
                                                                 \
                call;                                            \
                assert_true(bell_listen(&core.changed) != rung); \
                assert_true(request_kicks != kicks);             \
        } while (0)

static void the_extents_that_hold_the_bytes_are_pinned(void **state)
{
        static const struct {
                uint64_t at, bytes;
                unsigned first, count;
        } cases[] = {{0, 1, 0, 1},           {EXTENT - 1, 1, 0, 1},     {EXTENT - 1, 2, 0, 2},
                     {EXTENT, EXTENT, 1, 1}, {1, 4 * EXTENT - 1, 0, 4}, {3 * EXTENT + 5, 7, 3, 1}};

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                struct pin *p = pin_take(gpu, block, block->address + cases[i].at, cases[i].bytes);

                assert_int_equal(pin_extents(p), cases[i].count);
                for (unsigned k = 0; k < cases[i].count; k++)
                        assert_ptr_equal(pin_extent(p, k), &block->extents[cases[i].first + k]);
                assert_int_equal(gpu->pin_wanted, cases[i].count * EXTENT);
                pin_release(p);
                assert_int_equal(gpu->pin_wanted, 0);
        }
}

static void a_pin_waits_for_the_daemons_word(void **state)
{
        struct pin *p;
        uint32_t heard;

        request_kicks = 0;
        p = take(0, 2);
        assert_int_not_equal(request_kicks, 0);
        assert_int_equal(pin_state(p), PIN_WAITING);
        assert_int_equal(gpu->pin_wanted, 2 * EXTENT);
        assert_int_equal(gpu->pin_granted, 0);
        assert_false(block->extents[0].pinned);
        pin_allowed(gpu, EXTENT); /* an answer to what was asked before */
        assert_int_equal(pin_state(p), PIN_WAITING);
        assert_int_equal(gpu->pin_granted, 0);
        heard = bell_listen(&core.changed);
        pin_allowed(gpu, 2 * EXTENT);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_int_equal(pin_state(p), PIN_READY);
        assert_int_equal(gpu->pin_granted, 2 * EXTENT);
        assert_true(block->extents[0].pinned && block->extents[1].pinned);
        assert_false(block->extents[2].pinned);
        CHECK_WAKES(pin_release(p));
        assert_int_equal(gpu->pin_granted, 0);
        assert_int_equal(gpu->pin_wanted, 0);
        assert_false(block->extents[0].pinned || block->extents[0].stay);
}

static void what_is_allowed_already_is_granted_at_once(void **state)
{
        struct pin *a, *b;

        pin_allowed(gpu, EXTENT);
        a = take(0, 1);
        assert_int_equal(pin_state(a), PIN_READY);
        b = take(1, 1);
        assert_int_equal(pin_state(b), PIN_WAITING);
        pin_release(a);
        pin_release(b);
        /* Without a daemon nothing is ever moved. */
        gpu->limit = UINT64_MAX;
        a = take(0, 4);
        assert_int_equal(pin_state(a), PIN_READY);
        pin_release(a);
}

static void a_refusal_lets_go_of_what_was_not_granted(void **state)
{
        struct pin *a, *b;
        uint32_t heard;

        pin_allowed(gpu, EXTENT);
        a = take(0, 1);
        b = take(1, 2);
        heard = bell_listen(&core.changed);
        pin_refused(gpu);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_int_equal(pin_state(a), PIN_READY);
        assert_int_equal(pin_state(b), PIN_REFUSED);
        assert_int_equal(gpu->pin_wanted, EXTENT);
        assert_int_equal(gpu->pin_granted, EXTENT);
        assert_null(block->extents[1].stay);
        pin_release(b);
        assert_int_equal(gpu->pin_wanted, EXTENT);
        pin_release(a);
}

static void memory_has_to_be_there_and_in_nobodys_hands(void **state)
{
        struct pin *p;

        pin_allowed(gpu, 4 * EXTENT);
        p = take(0, 2);
        block->extents[1].state = EXTENT_EVICTED;
        assert_int_equal(pin_state(p), PIN_WAITING);
        block->extents[1].state = EXTENT_RESIDENT;
        block->extents[1].busy = true;
        assert_int_equal(pin_state(p), PIN_WAITING);
        block->extents[1].busy = false;
        assert_int_equal(pin_state(p), PIN_READY);
        block->extents[0].state = EXTENT_MAPPED;
        assert_int_equal(pin_state(p), PIN_REFUSED);
        block->extents[0].state = EXTENT_RESIDENT;
        pin_release(p);
}

static void what_two_have_pinned_stays_for_the_second(void **state)
{
        struct pin *a, *b, *c;

        pin_allowed(gpu, 4 * EXTENT);
        a = take(0, 2);
        b = take(1, 2);
        c = take(3, 1);
        assert_int_equal(gpu->pin_wanted, 4 * EXTENT);
        assert_int_equal(gpu->pin_granted, 4 * EXTENT);
        assert_true(pin_shares(a, b) && pin_shares(b, a));
        assert_false(pin_shares(a, c) || pin_shares(c, b));
        pin_release(a);
        assert_int_equal(gpu->pin_granted, 3 * EXTENT);
        assert_false(block->extents[0].pinned);
        assert_true(block->extents[1].pinned);
        assert_int_equal(pin_state(b), PIN_READY);
        pin_release(b);
        pin_release(c);
        assert_int_equal(gpu->pin_granted, 0);
}

/* As its memory is released: swap.c takes the extent's own bytes off after that. */
static void die(unsigned i)
{
        struct extent *e = &block->extents[i];

        pin_extent_dies(gpu, e);
        e->state = EXTENT_UNBACKED;
        gpu->heap.backed -= EXTENT;
        gpu->heap.resident -= EXTENT;
        heap_settle(&gpu->heap, e);
}

static void bytes_that_others_have_count_until_they_let_go(void **state)
{
        struct pin *p;

        pin_allowed(gpu, 4 * EXTENT);
        p = take(0, 2);
        pin_given(p);
        CHECK_WAKES(die(0));
        assert_int_equal(pin_state(p), PIN_GHOST);
        assert_int_equal(gpu->pin_ghosts, EXTENT);
        assert_int_equal(gpu->heap.allocated, 4 * EXTENT);
        assert_int_equal(gpu->heap.backed, 4 * EXTENT);
        assert_int_equal(gpu->heap.resident, 4 * EXTENT);
        assert_int_equal(gpu->pin_granted, 2 * EXTENT);
        assert_int_equal(gpu->pin_wanted, 2 * EXTENT);
        assert_null(block->extents[0].stay);
        gpu->usage_dirty = false;
        CHECK_WAKES(pin_release(p));
        assert_true(gpu->usage_dirty); /* others may have the room */
        assert_int_equal(gpu->pin_ghosts, 0);
        assert_int_equal(gpu->heap.allocated, 3 * EXTENT);
        assert_int_equal(gpu->heap.backed, 3 * EXTENT);
        assert_int_equal(gpu->heap.resident, 3 * EXTENT);
        assert_int_equal(gpu->pin_granted, 0);
        assert_int_equal(gpu->pin_wanted, 0);
}

static void bytes_that_nobody_has_yet_are_gone_when_they_are_freed(void **state)
{
        struct pin *p;

        pin_allowed(gpu, 4 * EXTENT);
        p = take(0, 2);
        CHECK_WAKES(die(0));
        assert_int_equal(pin_state(p), PIN_REFUSED);
        assert_int_equal(gpu->pin_ghosts, 0);
        assert_int_equal(gpu->heap.backed, 3 * EXTENT);
        assert_int_equal(gpu->pin_granted, EXTENT);
        pin_release(p);
        assert_int_equal(gpu->pin_granted, 0);
        /* Given, but not granted any more: it may have been moved out. */
        p = take(1, 1);
        pin_given(p);
        gpu->pin_granted -= EXTENT;
        block->extents[1].pinned = false;
        die(1);
        assert_int_equal(gpu->pin_ghosts, 0);
        assert_int_equal(pin_state(p), PIN_REFUSED);
        assert_int_equal(gpu->pin_wanted, 0);
        pin_release(p);
}

static void what_a_device_has_stays_until_it_is_freed(void **state)
{
        struct pin *p;

        pin_allowed(gpu, 4 * EXTENT);
        pin_for_good(take(0, 1));
        assert_true(block->extents[0].pinned);
        pin_for_good(take(0, 2)); /* once more is once */
        assert_int_equal(gpu->pin_wanted, 2 * EXTENT);
        p = take(0, 1);
        pin_given(p);
        die(0);
        assert_int_equal(gpu->pin_wanted, 2 * EXTENT);
        pin_release(p);
        assert_int_equal(gpu->pin_wanted, EXTENT);
        die(1);
        assert_int_equal(gpu->pin_wanted, 0);
        assert_int_equal(gpu->pin_granted, 0);
        die(2); /* one that has none */
}

/* It comes back to the daemon, which counts nothing that is not there. */
static void what_is_not_on_the_card_is_asked_for_again(void **state)
{
        struct pin *p;

        pin_allowed(gpu, 4 * EXTENT);
        p = take(0, 3);
        block->extents[0].state = EXTENT_EVICTED;
        block->extents[1].busy = true;
        pin_back(gpu);
        assert_int_equal(gpu->pin_granted, 2 * EXTENT);
        assert_int_equal(gpu->pin_wanted, 3 * EXTENT);
        assert_false(block->extents[0].pinned);
        assert_true(block->extents[1].pinned && block->extents[2].pinned);
        block->extents[0].state = EXTENT_RESIDENT;
        block->extents[1].busy = false;
        assert_int_equal(pin_state(p), PIN_WAITING);
        pin_allowed(gpu, 3 * EXTENT);
        assert_int_equal(pin_state(p), PIN_READY);
        pin_release(p);
}

/* Any number of pins over any extents: what is wanted is the union of them. */
static void the_figures_are_those_of_the_extents_that_anybody_has(void **state)
{
        struct {
                struct pin *pin;
                unsigned first, count;
        } open[PINS] = {0};
        uint32_t random = 7;

        for (unsigned i = 0; i < 2000; i++) {
                unsigned k, wanted = 0, granted = 0;

                random = random * 1664525u + 1013904223u;
                k = (random >> 8) % PINS;
                if (open[k].pin) {
                        pin_release(open[k].pin);
                        open[k].pin = NULL;
                } else {
                        open[k].first = (random >> 12) % 4;
                        open[k].count = 1 + (random >> 16) % (4 - open[k].first);
                        open[k].pin = take(open[k].first, open[k].count);
                }
                if ((random >> 20) % 3 == 0)
                        pin_allowed(gpu, (random >> 24) % 5 * EXTENT);
                else if ((random >> 20) % 7 == 0)
                        pin_refused(gpu);
                for (unsigned e = 0; e < 4; e++) {
                        const struct extent *x = &block->extents[e];
                        bool any = false;

                        for (unsigned n = 0; n < PINS; n++)
                                any = any || (open[n].pin && e >= open[n].first &&
                                              e < open[n].first + open[n].count);
                        wanted += x->stay != NULL;
                        granted += x->pinned;
                        assert_true(any || !x->stay);
                        assert_true(x->stay || !x->pinned);
                }
                assert_int_equal(gpu->pin_wanted, wanted * EXTENT);
                assert_int_equal(gpu->pin_granted, granted * EXTENT);
        }
        for (unsigned k = 0; k < PINS; k++)
                if (open[k].pin)
                        pin_release(open[k].pin);
        assert_int_equal(gpu->pin_wanted, 0);
        assert_int_equal(gpu->pin_granted, 0);
}

#define PIN_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                PIN_TEST(the_extents_that_hold_the_bytes_are_pinned),
                PIN_TEST(a_pin_waits_for_the_daemons_word),
                PIN_TEST(what_is_allowed_already_is_granted_at_once),
                PIN_TEST(a_refusal_lets_go_of_what_was_not_granted),
                PIN_TEST(memory_has_to_be_there_and_in_nobodys_hands),
                PIN_TEST(what_two_have_pinned_stays_for_the_second),
                PIN_TEST(bytes_that_others_have_count_until_they_let_go),
                PIN_TEST(bytes_that_nobody_has_yet_are_gone_when_they_are_freed),
                PIN_TEST(what_a_device_has_stays_until_it_is_freed),
                PIN_TEST(what_is_not_on_the_card_is_asked_for_again),
                PIN_TEST(the_figures_are_those_of_the_extents_that_anybody_has),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
