/* test_export.c: extents that stay on the card because other processes have them open: the requests
 * to the daemon and its grants. Bytes count as long as they are open anywhere, freed or not. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/move/export.h"

#define CARD    (128 * MIB)
#define EXTENT  (8 * MIB)
#define EXPORTS 8u

static struct gpu *const gpu = &core.gpus[0];
static struct block *block; /* a block of four extents */

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

static struct export *take(unsigned first, unsigned count)
{
        struct export *p = export_take(gpu, block, block->address + first * EXTENT, count * EXTENT);

        assert_non_null(p);
        assert_int_equal(export_extents(p), count);
        assert_int_equal(export_bytes(p), count * EXTENT);
        assert_ptr_equal(export_gpu(p), gpu);
        return p;
}

/* Checks that a call wakes threads that wait for an export, and kicks the agent. */
#define CHECK_WAKES(call)                                        \
        do {                                                     \
                uint32_t rung = bell_listen(&core.changed);      \
                unsigned kicks = request_kicks;                  \
                                                                 \
                call;                                            \
                assert_true(bell_listen(&core.changed) != rung); \
                assert_true(request_kicks != kicks);             \
        } while (0)

static void the_extents_that_hold_the_bytes_are_exported(void **state)
{
        static const struct {
                uint64_t at, bytes;
                unsigned first, count;
        } cases[] = {{0, 1, 0, 1},           {EXTENT - 1, 1, 0, 1},     {EXTENT - 1, 2, 0, 2},
                     {EXTENT, EXTENT, 1, 1}, {1, 4 * EXTENT - 1, 0, 4}, {3 * EXTENT + 5, 7, 3, 1}};

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                struct export *p =
                        export_take(gpu, block, block->address + cases[i].at, cases[i].bytes);

                assert_int_equal(export_extents(p), cases[i].count);
                for (unsigned k = 0; k < cases[i].count; k++)
                        assert_ptr_equal(export_extent(p, k), &block->extents[cases[i].first + k]);
                assert_int_equal(gpu->export_requested, cases[i].count * EXTENT);
                export_release(p);
                assert_int_equal(gpu->export_requested, 0);
        }
}

static void an_export_waits_for_the_daemons_answer(void **state)
{
        struct export *p;
        uint32_t heard;

        request_kicks = 0;
        p = take(0, 2);
        assert_int_not_equal(request_kicks, 0);
        assert_int_equal(export_state(p), EXPORT_WAITING);
        assert_int_equal(gpu->export_requested, 2 * EXTENT);
        assert_int_equal(gpu->export_granted, 0);
        assert_false(block->extents[0].exported);
        export_allowed(gpu, EXTENT); /* the answer to an earlier, smaller request */
        assert_int_equal(export_state(p), EXPORT_WAITING);
        assert_int_equal(gpu->export_granted, 0);
        heard = bell_listen(&core.changed);
        export_allowed(gpu, 2 * EXTENT);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_int_equal(export_state(p), EXPORT_READY);
        assert_int_equal(gpu->export_granted, 2 * EXTENT);
        assert_true(block->extents[0].exported && block->extents[1].exported);
        assert_false(block->extents[2].exported);
        CHECK_WAKES(export_release(p));
        assert_int_equal(gpu->export_granted, 0);
        assert_int_equal(gpu->export_requested, 0);
        assert_false(block->extents[0].exported || block->extents[0].stay);
}

static void an_export_that_is_allowed_already_is_granted_at_once(void **state)
{
        struct export *a, *b;

        export_allowed(gpu, EXTENT);
        a = take(0, 1);
        assert_int_equal(export_state(a), EXPORT_READY);
        b = take(1, 1);
        assert_int_equal(export_state(b), EXPORT_WAITING);
        export_release(a);
        export_release(b);
        /* Without a daemon no memory moves, so an export needs no grant. */
        gpu->limit = UINT64_MAX;
        a = take(0, 4);
        assert_int_equal(export_state(a), EXPORT_READY);
        export_release(a);
}

static void a_refusal_ends_exports_that_were_not_granted(void **state)
{
        struct export *a, *b;
        uint32_t heard;

        export_allowed(gpu, EXTENT);
        a = take(0, 1);
        b = take(1, 2);
        heard = bell_listen(&core.changed);
        export_refused(gpu);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_int_equal(export_state(a), EXPORT_READY);
        assert_int_equal(export_state(b), EXPORT_REFUSED);
        assert_int_equal(gpu->export_requested, EXTENT);
        assert_int_equal(gpu->export_granted, EXTENT);
        assert_null(block->extents[1].stay);
        export_release(b);
        assert_int_equal(gpu->export_requested, EXTENT);
        export_release(a);
}

static void an_export_waits_until_its_extents_are_resident_and_not_busy(void **state)
{
        struct export *p;

        export_allowed(gpu, 4 * EXTENT);
        p = take(0, 2);
        block->extents[1].state = EXTENT_EVICTED;
        assert_int_equal(export_state(p), EXPORT_WAITING);
        block->extents[1].state = EXTENT_RESIDENT;
        block->extents[1].busy = true;
        assert_int_equal(export_state(p), EXPORT_WAITING);
        block->extents[1].busy = false;
        assert_int_equal(export_state(p), EXPORT_READY);
        block->extents[0].state = EXTENT_MAPPED;
        assert_int_equal(export_state(p), EXPORT_REFUSED);
        block->extents[0].state = EXTENT_RESIDENT;
        export_release(p);
}

static void an_extent_exported_twice_stays_until_both_are_released(void **state)
{
        struct export *a, *b, *c;

        export_allowed(gpu, 4 * EXTENT);
        a = take(0, 2);
        b = take(1, 2);
        c = take(3, 1);
        assert_int_equal(gpu->export_requested, 4 * EXTENT);
        assert_int_equal(gpu->export_granted, 4 * EXTENT);
        assert_true(export_shares(a, b) && export_shares(b, a));
        assert_false(export_shares(a, c) || export_shares(c, b));
        export_release(a);
        assert_int_equal(gpu->export_granted, 3 * EXTENT);
        assert_false(block->extents[0].exported);
        assert_true(block->extents[1].exported);
        assert_int_equal(export_state(b), EXPORT_READY);
        export_release(b);
        export_release(c);
        assert_int_equal(gpu->export_granted, 0);
}

/* Releases the memory of an extent as swap.c does, which then subtracts the extent's own bytes. */
static void die(unsigned i)
{
        struct extent *e = &block->extents[i];

        export_extent_dies(gpu, e);
        e->state = EXTENT_UNBACKED;
        gpu->heap.backed -= EXTENT;
        gpu->heap.resident -= EXTENT;
        heap_settle(&gpu->heap, e);
}

static void freed_bytes_that_others_have_open_count_until_released(void **state)
{
        struct export *p;

        export_allowed(gpu, 4 * EXTENT);
        p = take(0, 2);
        export_given(p);
        CHECK_WAKES(die(0));
        assert_int_equal(export_state(p), EXPORT_GHOST);
        assert_int_equal(gpu->export_ghosts, EXTENT);
        assert_int_equal(gpu->heap.allocated, 4 * EXTENT);
        assert_int_equal(gpu->heap.backed, 4 * EXTENT);
        assert_int_equal(gpu->heap.resident, 4 * EXTENT);
        assert_int_equal(gpu->export_granted, 2 * EXTENT);
        assert_int_equal(gpu->export_requested, 2 * EXTENT);
        assert_null(block->extents[0].stay);
        gpu->usage_dirty = false;
        CHECK_WAKES(export_release(p));
        assert_true(gpu->usage_dirty); /* the daemon may give the room to other programs */
        assert_int_equal(gpu->export_ghosts, 0);
        assert_int_equal(gpu->heap.allocated, 3 * EXTENT);
        assert_int_equal(gpu->heap.backed, 3 * EXTENT);
        assert_int_equal(gpu->heap.resident, 3 * EXTENT);
        assert_int_equal(gpu->export_granted, 0);
        assert_int_equal(gpu->export_requested, 0);
}

static void freed_bytes_that_no_process_has_open_are_gone_at_once(void **state)
{
        struct export *p;

        export_allowed(gpu, 4 * EXTENT);
        p = take(0, 2);
        CHECK_WAKES(die(0));
        assert_int_equal(export_state(p), EXPORT_REFUSED);
        assert_int_equal(gpu->export_ghosts, 0);
        assert_int_equal(gpu->heap.backed, 3 * EXTENT);
        assert_int_equal(gpu->export_granted, EXTENT);
        export_release(p);
        assert_int_equal(gpu->export_granted, 0);
        /* An export may be open but no longer granted, because its memory was evicted. */
        p = take(1, 1);
        export_given(p);
        gpu->export_granted -= EXTENT;
        block->extents[1].exported = false;
        die(1);
        assert_int_equal(gpu->export_ghosts, 0);
        assert_int_equal(export_state(p), EXPORT_REFUSED);
        assert_int_equal(gpu->export_requested, 0);
        export_release(p);
}

static void memory_exported_to_a_device_stays_until_it_is_freed(void **state)
{
        struct export *p;

        export_allowed(gpu, 4 * EXTENT);
        export_for_good(take(0, 1));
        assert_true(block->extents[0].exported);
        export_for_good(take(0, 2)); /* a second export counts an extent only once */
        assert_int_equal(gpu->export_requested, 2 * EXTENT);
        p = take(0, 1);
        export_given(p);
        die(0);
        assert_int_equal(gpu->export_requested, 2 * EXTENT);
        export_release(p);
        assert_int_equal(gpu->export_requested, EXTENT);
        die(1);
        assert_int_equal(gpu->export_requested, 0);
        assert_int_equal(gpu->export_granted, 0);
        die(2); /* an extent without an export */
}

/* A program that connects to a daemon again reports only exported bytes on the card. */
static void exports_of_evicted_memory_are_requested_again(void **state)
{
        struct export *p;

        export_allowed(gpu, 4 * EXTENT);
        p = take(0, 3);
        block->extents[0].state = EXTENT_EVICTED;
        block->extents[1].busy = true;
        export_back(gpu);
        assert_int_equal(gpu->export_granted, 2 * EXTENT);
        assert_int_equal(gpu->export_requested, 3 * EXTENT);
        assert_false(block->extents[0].exported);
        assert_true(block->extents[1].exported && block->extents[2].exported);
        block->extents[0].state = EXTENT_RESIDENT;
        block->extents[1].busy = false;
        assert_int_equal(export_state(p), EXPORT_WAITING);
        export_allowed(gpu, 3 * EXTENT);
        assert_int_equal(export_state(p), EXPORT_READY);
        export_release(p);
}

/* Exports may overlap: the bytes of their union are requested. */
static void the_figures_count_each_exported_extent_once(void **state)
{
        struct {
                struct export *export;
                unsigned first, count;
        } open[EXPORTS] = {0};
        uint32_t random = 7;

        for (unsigned i = 0; i < 2000; i++) {
                unsigned k, wanted = 0, granted = 0;

                random = random * 1664525u + 1013904223u;
                k = (random >> 8) % EXPORTS;
                if (open[k].export) {
                        export_release(open[k].export);
                        open[k].export = NULL;
                } else {
                        open[k].first = (random >> 12) % 4;
                        open[k].count = 1 + (random >> 16) % (4 - open[k].first);
                        open[k].export = take(open[k].first, open[k].count);
                }
                if ((random >> 20) % 3 == 0)
                        export_allowed(gpu, (random >> 24) % 5 * EXTENT);
                else if ((random >> 20) % 7 == 0)
                        export_refused(gpu);
                for (unsigned e = 0; e < 4; e++) {
                        const struct extent *x = &block->extents[e];
                        bool any = false;

                        for (unsigned n = 0; n < EXPORTS; n++)
                                any = any || (open[n].export && e >= open[n].first &&
                                              e < open[n].first + open[n].count);
                        wanted += x->stay != NULL;
                        granted += x->exported;
                        assert_true(any || !x->stay);
                        assert_true(x->stay || !x->exported);
                }
                assert_int_equal(gpu->export_requested, wanted * EXTENT);
                assert_int_equal(gpu->export_granted, granted * EXTENT);
        }
        for (unsigned k = 0; k < EXPORTS; k++)
                if (open[k].export)
                        export_release(open[k].export);
        assert_int_equal(gpu->export_requested, 0);
        assert_int_equal(gpu->export_granted, 0);
}

#define EXPORT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                EXPORT_TEST(the_extents_that_hold_the_bytes_are_exported),
                EXPORT_TEST(an_export_waits_for_the_daemons_answer),
                EXPORT_TEST(an_export_that_is_allowed_already_is_granted_at_once),
                EXPORT_TEST(a_refusal_ends_exports_that_were_not_granted),
                EXPORT_TEST(an_export_waits_until_its_extents_are_resident_and_not_busy),
                EXPORT_TEST(an_extent_exported_twice_stays_until_both_are_released),
                EXPORT_TEST(freed_bytes_that_others_have_open_count_until_released),
                EXPORT_TEST(freed_bytes_that_no_process_has_open_are_gone_at_once),
                EXPORT_TEST(memory_exported_to_a_device_stays_until_it_is_freed),
                EXPORT_TEST(exports_of_evicted_memory_are_requested_again),
                EXPORT_TEST(the_figures_count_each_exported_extent_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
