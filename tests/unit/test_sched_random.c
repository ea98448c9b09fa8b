/* test_sched_random.c: random worlds, every invariant after every event.
 * Owns the choice of seeds. A failure names the seed; SCHED_SEED=N runs that one alone. */
#include "unit.h"

#include "sched_world.h"

#define WORLDS 200
#define STEPS  2000

static void run_world(uint64_t seed, unsigned steps, struct world_counts *sum)
{
        struct world_options o;
        struct world_counts c;
        struct world *w;

        world_options_random(seed, &o);
        w = world_new(&o);
        assert_non_null(w);
        for (unsigned i = 0; i < steps; i++) {
                const char *broken = world_step(w);

                if (broken)
                        fail_msg("seed %llu, step %u: %s", (unsigned long long)seed, i, broken);
        }
        world_counts(w, &c);
        world_free(w);
#define ADD(f) sum->f += c.f
        ADD(steps);
        ADD(grants);
        ADD(revokes);
        ADD(restores);
        ADD(refusals);
        ADD(deaths);
        ADD(restarts);
        ADD(overdue);
        ADD(shorts);
        ADD(returns);
        ADD(drain_failures);
        ADD(fixed_growth);
#undef ADD
        if (c.longest_wait_ns > sum->longest_wait_ns)
                sum->longest_wait_ns = c.longest_wait_ns;
}

static void every_invariant_holds_after_every_event(void **state)
{
        const char *one = getenv("SCHED_SEED"), *many = getenv("SCHED_WORLDS");
        const char *longer = getenv("SCHED_STEPS");
        unsigned worlds = many ? (unsigned)strtoul(many, NULL, 10) : WORLDS;
        unsigned steps = longer ? (unsigned)strtoul(longer, NULL, 10) : STEPS;
        struct world_counts sum = {0};

        (void)state;
        if (one)
                run_world(strtoull(one, NULL, 10), steps, &sum);
        else
                for (uint64_t seed = 1; seed <= worlds; seed++)
                        run_world(seed, steps, &sum);
        print_message(
                "%llu events: %llu grants, %llu revokes, %llu restores, %llu refusals, %llu "
                "deaths, "
                "%llu restarts, %llu returns, %llu overdue, %llu short, %llu failed drains, %llu "
                "fixed; longest wait %.1f s\n",
                (unsigned long long)sum.steps, (unsigned long long)sum.grants,
                (unsigned long long)sum.revokes, (unsigned long long)sum.restores,
                (unsigned long long)sum.refusals, (unsigned long long)sum.deaths,
                (unsigned long long)sum.restarts, (unsigned long long)sum.returns,
                (unsigned long long)sum.overdue, (unsigned long long)sum.shorts,
                (unsigned long long)sum.drain_failures, (unsigned long long)sum.fixed_growth,
                (double)sum.longest_wait_ns / 1e9);
        /* A world in which nothing happens proves nothing. */
        if (!one) {
                assert_true(sum.grants > worlds);
                assert_true(sum.revokes > worlds / 2);
                assert_true(sum.restores > worlds);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_invariant_holds_after_every_event),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
