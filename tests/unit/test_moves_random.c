/* test_moves_random.c: memory of programs leaves the card and comes back, while each call of the
 * driver fails once or calls fail at random. No contents are lost, and no memory is left over. */
#include "unit.h"

#include "fakes/preload.h"
#include "moves_bench.h"

#include "base/macros.h"
#include "fakes/driver.h"

/* Runs one program from its first allocation to its last free. Failed calls are tried again. */
static void live(void)
{
        struct block *pool;
        struct thing *t;

        (void)allocate(9);
        (void)allocate(4);
        (void)adopt(3);
        gpu->home.answer = HOME_LEAVES;
        pool = heap_take_pool(&gpu->heap, 2 * EXTENT, EXTENT);
        heap_use(&gpu->heap, pool, pool->address + PAGE, 5 * PAGE);
        t = add(pool->address + PAGE, 5);
        t->pool = pool;
        for (unsigned turn = 0; turn < 3; turn++) {
                restore_to(UINT64_MAX);
                run_program();
                evict_to(turn == 1 ? EXTENT : 0);
                see_who_is_out();
                assert_true(gpu->heap.backed <= gpu->limit);
        }
        restore_to(UINT64_MAX);
        run_program();
        give_back(t);
        evict_to(0);
        heap_bury(&gpu->heap, pool);
}

static void a_failed_driver_call_loses_no_contents(void **state)
{
        unsigned calls, begun;

        asks = true;
        live();
        (void)end_moves(NULL);
        (void)begin_moves(NULL);
        asks = true;
        begun = driver.calls;
        live();
        calls = driver.calls - begun;
        assert_in_range(calls, 60, 1000);
        for (unsigned n = 2; n < calls; n++) { /* the first call is the heap's reservation */
                (void)end_moves(NULL);
                (void)begin_moves(NULL);
                asks = true;
                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                live();
        }
}

static void act(struct block *pool, bool passes)
{
        uint64_t limit = draw(10) * EXTENT + draw(4) * PAGE, most = 72 * MIB;

        switch (draw(12)) {
        case 0:
        case 1:
                if (thing_count < THINGS - 1 && gpu->heap.allocated < most - 16 * MIB)
                        (void)allocate(1 + draw(8));
                break;
        case 2:
                if (thing_count < THINGS - 1 && gpu->heap.allocated < most - 8 * MIB)
                        (void)adopt(1 + draw(4));
                break;
        case 3:
        case 4: {
                uint64_t at = draw(14), n = 1 + draw(3);

                if (thing_count == THINGS - 1)
                        break;
                for (struct thing *t = things; t < things + thing_count; t++)
                        if (t->pool && pool->address + at * PAGE < t->at + t->pages * PAGE &&
                            t->at < pool->address + (at + n) * PAGE)
                                return; /* an allocation uses these pages */
                heap_use(&gpu->heap, pool, pool->address + at * PAGE, n * PAGE);
                add(pool->address + at * PAGE, n)->pool = pool;
                break;
        }
        case 5:
        case 6:
                if (thing_count)
                        give_back(&things[draw(thing_count)]);
                break;
        case 7:
                gpu->limit = limit;
                for (unsigned i = draw(6); i-- > 0;) {
                        (void)swap_step(gpu, true, false);
                        (void)driver_run(draw(3));
                }
                break;
        case 8:
                gpu->limit = limit;
                for (unsigned i = draw(6); i-- > 0;) {
                        (void)swap_step(gpu, false, true);
                        (void)driver_run(draw(3));
                }
                break;
        case 9:
                evict_to(limit);
                break;
        case 10:
                if (passes && draw(2))
                        passed_add(&gpu->passed, driver_foreign(EXTENT, UINT64_C(0xbad)));
                swap_unpin(gpu, UINT64_MAX);
                break;
        default:
                restore_to(UINT64_MAX);
                if (heap_missing(&gpu->heap) == 0)
                        run_program();
                break;
        }
        passed_close(&gpu->leaving);
}

static uint32_t first_seed = 1, seeds = 40;

static void random_moves_and_failures_lose_no_contents(void **state)
{
        for (uint32_t seed = first_seed; seed < first_seed + seeds; seed++) {
                struct block *pool;

                (void)end_moves(NULL);
                (void)begin_moves(NULL);
                random_state = seed;
                asks = seed % 3 != 0;
                gpu->passes = gpu->attached = gpu->may_pass = seed % 2;
                gpu->home.answer = HOME_LEAVES;
                pool = heap_take_pool(&gpu->heap, 4 * EXTENT, EXTENT);
                for (unsigned i = 0; i < 120; i++) {
                        driver_fail(draw(3) ? 0 : 1 + draw(20), CUDA_ERROR_OUT_OF_MEMORY);
                        host_room = draw(12) ? UINT64_MAX : 0;
                        act(pool, seed % 2);
                        see_who_is_out();
                        check_accounts();
                }
                driver_fail(0, CUDA_SUCCESS);
                host_room = UINT64_MAX;
                restore_to(UINT64_MAX);
                run_program();
                evict_to(0);
                assert_int_equal(gpu->heap.backed, 0);
                restore_to(UINT64_MAX);
                run_program();
                while (thing_count)
                        give_back(&things[0]);
                evict_to(0);
                heap_bury(&gpu->heap, pool);
        }
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                MOVE_TEST(a_failed_driver_call_loses_no_contents),
                MOVE_TEST(random_moves_and_failures_lose_no_contents),
        };

        if (argc > 1)
                first_seed = (uint32_t)strtoul(argv[1], NULL, 10);
        if (argc > 2)
                seeds = (uint32_t)strtoul(argv[2], NULL, 10);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
