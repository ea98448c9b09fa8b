/* test_sched_evict.c: what a person's order to evict a client does. */
#include "sched_bench.h"

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

static void an_idle_client_gives_its_lease_and_all_its_memory_back(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB);

        idle(b, a, true);
        assert_int_equal(evict(b, a), 0);
        assert_true(a->revoked);
        assert_int_equal(a->limit[0], 600 * MIB);
        drained(b, a);
        assert_int_equal(a->limit[0], 0);
        evict_to(b, a, 0);
        assert_int_equal(state_of(b, a), SCHED_IDLE);
        pass(b, 60 * NSEC_PER_SEC);
        assert_int_equal(a->limit[0], 0);

        want_run(b, a, 600 * MIB);
        restore(b, a);
        assert_int_not_equal(a->lease, 0);
        pass(b, 60 * NSEC_PER_SEC);
        assert_false(a->revoked);
}

static void a_client_without_a_lease_is_evicted_at_once(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB);

        idle(b, a, true);
        drained(b, a);
        assert_int_equal(evict(b, a), 0);
        assert_int_equal(a->limit[0], 0);
        assert_int_equal(state_of(b, a), SCHED_EVICTING);
}

static void a_client_that_computes_or_waits_is_not_evicted(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = asks_to_run(b, 400 * MIB);

        assert_int_equal(evict(b, a), -EAGAIN); /* its library may still test its GPU */
        assert_int_equal(evict(b, t), -EBUSY);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(evict(b, a), -EBUSY);
}

static void a_client_that_works_again_before_it_was_asked_keeps_its_memory(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB);

        idle(b, a, true);
        assert_int_equal(evict(b, a), 0);
        idle(b, a, false);
        drain_failed(b, a);
        pass(b, 60 * NSEC_PER_SEC);
        assert_int_equal(a->limit[0], 600 * MIB);
        assert_false(a->revoked);
}

static void exported_memory_stays_on_the_card(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB);

        export(b, a, 100 * MIB);
        idle(b, a, true);
        drained(b, a);
        assert_int_equal(evict(b, a), 0);
        assert_int_equal(a->limit[0], 100 * MIB);
}

static void little_host_memory(struct sched_config *c)
{
        c->host_budget_bytes = 500 * MIB;
}

static void host_memory_for_all_that_is_evicted_is_within_the_budget(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(little_host_memory);
        struct tenant *a = runner(b, 0, 400 * MIB), *c = runner(b, 0, 200 * MIB);

        idle(b, a, true);
        drained(b, a);
        assert_int_equal(evict(b, a), 0);
        evict_to(b, a, 0);
        idle(b, c, true);
        drained(b, c);
        assert_int_equal(evict(b, c), -ENOMEM);
        assert_int_equal(c->limit[0], 200 * MIB);
}

static void off(struct sched_config *c)
{
        c->mode = SCHED_MODE_OFF;
}

static void nothing_is_evicted_in_mode_off(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(off);
        struct tenant *a = runner(b, 0, 400 * MIB);

        idle(b, a, true);
        assert_int_equal(evict(b, a), -EPERM);
}

static void a_client_that_has_lost_its_connection_takes_no_order(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 400 * MIB);

        lost(b, a);
        assert_int_equal(evict(b, a), -ESTALE);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_idle_client_gives_its_lease_and_all_its_memory_back),
                cmocka_unit_test(a_client_without_a_lease_is_evicted_at_once),
                cmocka_unit_test(a_client_that_computes_or_waits_is_not_evicted),
                cmocka_unit_test(a_client_that_works_again_before_it_was_asked_keeps_its_memory),
                cmocka_unit_test(exported_memory_stays_on_the_card),
                cmocka_unit_test(host_memory_for_all_that_is_evicted_is_within_the_budget),
                cmocka_unit_test(nothing_is_evicted_in_mode_off),
                cmocka_unit_test(a_client_that_has_lost_its_connection_takes_no_order),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
