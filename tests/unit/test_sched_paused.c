/* test_sched_paused.c: a client that is paused with a lease keeps its memory until it goes on. */
#include "sched_bench.h"

#include <errno.h>

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* Lets a client behave as if paused: it is idle at once, and refuses to drain. */
static void pause_and_refuse(struct bench *b, struct tenant *t)
{
        idle(b, t, true);
        for (unsigned tenths = 0; !t->revoked && tenths < 50; tenths++)
                pass(b, NSEC_PER_SEC / 10);
        assert_true(t->revoked);
        drain_failed(b, t);
        stands(b, t, true);
}

static struct tenant *waits_for(struct bench *b, uint64_t bytes)
{
        struct tenant *t = asks_to_run(b, bytes);

        restore(b, t); /* restores as much as the limit allows */
        return t;
}

static void a_paused_client_is_not_asked_again_until_it_goes_on(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waits_for(b, 400 * MIB);

        pause_and_refuse(b, a);
        pass(b, 3600 * NSEC_PER_SEC);
        assert_false(a->revoked);
        assert_false(a->overdue);
        assert_true(flags_of(b, a) & SCHED_UNPREEMPTIBLE);
        assert_int_equal(t->lease, 0);

        stands(b, a, false);
        assert_false(flags_of(b, a) & SCHED_UNPREEMPTIBLE);
        assert_true(a->revoked); /* t has waited long enough */
        assert_int_equal(a->patience_ns, 2 * NSEC_PER_SEC);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void a_waiting_client_is_told_which_paused_client_blocks_it(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waits_for(b, 400 * MIB);
        struct sched_client_view v;

        pause_and_refuse(b, a);
        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        assert_true(v.blocker == a->id);
}

static void another_client_gives_way_instead_of_a_paused_one(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 400 * MIB), *c = runner(b, 0, 400 * MIB), *t;

        t = waits_for(b, 400 * MIB);
        pause_and_refuse(b, a);
        for (unsigned tenths = 0; !c->revoked && tenths < 50; tenths++)
                pass(b, NSEC_PER_SEC / 10);
        assert_true(c->revoked);
        drained(b, c);
        evict_to(b, c, c->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_int_equal(a->backed[0], 400 * MIB);
}

static void exclusive(struct sched_config *c)
{
        c->mode = SCHED_MODE_EXCLUSIVE;
}

static void a_paused_clients_lease_blocks_nobody_in_exclusive_mode(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(exclusive);
        struct tenant *a = runner(b, 0, 300 * MIB), *t = waits_for(b, 300 * MIB);

        assert_int_equal(t->lease, 0);
        pause_and_refuse(b, a);
        assert_int_not_equal(t->lease, 0);
        pass(b, 60 * NSEC_PER_SEC);
        assert_false(t->revoked);

        stands(b, a, false); /* only one of the two may keep its lease */
        assert_true(t->revoked || a->revoked);
}

static void a_paused_client_that_gives_its_lease_back_gives_way(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waits_for(b, 400 * MIB);

        pause_and_refuse(b, a);
        drained(b, a);
        assert_false(flags_of(b, a) & SCHED_UNPREEMPTIBLE);
        pass(b, NSEC_PER_SEC);
        assert_true(a->limit[0] <= 600 * MIB);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void a_pause_without_a_lease_changes_nothing(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB);

        idle(b, a, true);
        drained(b, a);
        stands(b, a, true);
        assert_false(flags_of(b, a) & SCHED_UNPREEMPTIBLE);
        lost(b, a);
        assert_int_equal(
                sched_client_stands(b->s, a->id, true, b->now_ns, &(struct sched_actions){0}),
                -ESTALE);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_paused_client_is_not_asked_again_until_it_goes_on),
                cmocka_unit_test(a_waiting_client_is_told_which_paused_client_blocks_it),
                cmocka_unit_test(another_client_gives_way_instead_of_a_paused_one),
                cmocka_unit_test(a_paused_clients_lease_blocks_nobody_in_exclusive_mode),
                cmocka_unit_test(a_paused_client_that_gives_its_lease_back_gives_way),
                cmocka_unit_test(a_pause_without_a_lease_changes_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
