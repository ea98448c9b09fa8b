/* test_sched_foreign.c: the scheduler beside foreign processes. It counts the bytes that clients
 * lack because of them, and idle clients give way to the needs of peer daemons. */
#include "sched_bench.h"

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* Makes a client of 600 MiB, 300 MiB resident, that waits for bytes of foreign processes. */
static struct tenant *half_there(struct bench *b)
{
        struct tenant *t = runner(b, 0, 600 * MIB);

        idle(b, t, true);
        foreign(b, 670 * MIB);
        pass(b, NSEC_PER_SEC);
        drained(b, t);
        evict_to(b, t, 300 * MIB);
        want_run(b, t, 600 * MIB);
        assert_int_equal(t->limit[0], 300 * MIB);
        assert_int_equal(state_of(b, t), SCHED_WAITING);
        return t;
}

/* Makes a client whose quantum is over but that still runs, because no other client waits. */
static struct tenant *busy(struct bench *b, int priority)
{
        struct tenant *t = runner(b, priority, 600 * MIB);

        pass(b, 10 * FIXED_QUANTUM_NS);
        assert_true(t->lease);
        return t;
}

static void bytes_of_foreign_processes_are_lacking_until_they_are_free(void **state)
{
        BENCH;
        struct tenant *t;

        assert_int_equal(sched_gpu_lacks(b->s, 0), 0);
        assert_int_equal(sched_gpu_lacks(b->s, SCHED_GPUS_MAX), 0);
        t = half_there(b);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(sched_gpu_lacks(b->s, 0), 300 * MIB);
        foreign(b, 470 * MIB);
        assert_int_equal(sched_gpu_lacks(b->s, 0), 100 * MIB);
        foreign(b, 370 * MIB);
        assert_int_equal(sched_gpu_lacks(b->s, 0), 0);
        assert_int_equal(t->limit[0], 600 * MIB);
        restore(b, t);
        assert_true(t->lease);
}

static void bytes_of_our_own_clients_are_not_foreign_needs(void **state)
{
        BENCH;
        struct tenant *r = runner(b, 0, 600 * MIB), *t = join(b, 0);

        request_commit_of(b, t, 600 * MIB);
        t->allocated[0] = 600 * MIB;
        usage(b, t);
        want_run(b, t, 600 * MIB);
        assert_int_equal(sched_gpu_lacks(b->s, 0), 0);
        pass(b, NSEC_PER_SEC);
        assert_true(r->revoked);
}

static void an_idle_client_gives_way_to_a_foreign_process(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB);

        idle(b, t, true);
        yield_to(b, 200 * MIB);
        /* Idle clients give way after the idle time, as to a client of this daemon. */
        assert_false(t->revoked);
        pass(b, NSEC_PER_SEC);
        assert_true(t->revoked);
        drained(b, t);
        assert_int_equal(t->limit[0], 400 * MIB);
        evict_to(b, t, 400 * MIB);
        pass(b, 10 * NSEC_PER_SEC);
        assert_int_equal(t->limit[0], 400 * MIB); /* each request is served once */
        yield_to(b, UINT64_MAX);
        assert_int_equal(t->limit[0], 0);
}

/* A request repeated while the memory is still moving out is not served twice. */
static void moving_bytes_are_not_asked_for_again(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB);

        idle(b, t, true);
        yield_to(b, 200 * MIB);
        pass(b, NSEC_PER_SEC);
        drained(b, t);
        assert_int_equal(t->limit[0], 400 * MIB);
        yield_to(b, 200 * MIB);
        evict_to(b, t, 400 * MIB);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(t->limit[0], 400 * MIB);
}

static void a_busy_client_never_gives_way_whatever_its_priority(void **state)
{
        for (int priority = -5; priority <= 5; priority += 5) {
                BENCH;
                struct tenant *t = busy(b, priority);

                for (unsigned second = 0; second < 20; second++) {
                        yield_to(b, UINT64_MAX);
                        pass(b, NSEC_PER_SEC);
                }
                assert_false(t->revoked);
                assert_int_equal(t->limit[0], 600 * MIB);
        }
}

static void a_client_with_new_work_keeps_its_memory(void **state)
{
        BENCH;
        struct tenant *r = runner(b, 0, 400 * MIB), *t = runner(b, 0, 300 * MIB);

        idle(b, t, true);
        request_commit_of(b, t, 800 * MIB);
        t->allocated[0] = 800 * MIB;
        usage(b, t);
        idle(b, t, false);
        want_run(b, t, 800 * MIB);
        assert_int_equal(state_of(b, t), SCHED_RUNNING);
        yield_to(b, UINT64_MAX);
        assert_true(t->limit[0] >= 300 * MIB);
        assert_true(r->limit[0] >= 400 * MIB);
        assert_false(t->revoked);
}

static void a_client_that_becomes_busy_again_keeps_its_memory(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB);

        idle(b, t, true);
        yield_to(b, 200 * MIB);
        pass(b, NSEC_PER_SEC);
        assert_true(t->revoked);
        idle(b, t, false);
        drained(b, t);
        assert_int_equal(t->limit[0], 600 * MIB);
        want_run(b, t, 600 * MIB);
        assert_true(t->lease);
}

static void our_own_clients_come_before_foreign_processes(void **state)
{
        BENCH;
        struct tenant *idler = runner(b, 0, 600 * MIB), *t = join(b, 0);

        idle(b, idler, true);
        request_commit_of(b, t, 600 * MIB);
        t->allocated[0] = 600 * MIB;
        usage(b, t);
        want_run(b, t, 600 * MIB);
        yield_to(b, 100 * MIB);
        pass(b, NSEC_PER_SEC);
        drained(b, idler);
        evict_to(b, idler, idler->limit[0]);
        restore(b, t);
        assert_true(t->lease);
        assert_false(t->revoked);
}

static void a_peer_daemon_that_waits_no_longer_gets_nothing(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB);

        yield_to(b, 200 * MIB);
        idle(b, t, true);
        yield_to(b, 0);
        pass(b, 10 * NSEC_PER_SEC);
        assert_false(t->revoked);
}

/* The program could not run beside the foreign processes anyway, so a small context costs it
 * nothing. */
static void a_context_gets_room_beside_an_evicted_waiting_program(void **state)
{
        BENCH;
        struct tenant *t = half_there(b), *u;

        pass(b, 10 * NSEC_PER_SEC);
        evict_to(b, t, t->limit[0]);
        u = join(b, 0);
        want(b, u, &(struct sched_request){.unevictable = 20 * MIB});
        assert_int_equal(u->unevictable_allowed[0], 20 * MIB);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bytes_of_foreign_processes_are_lacking_until_they_are_free),
                cmocka_unit_test(bytes_of_our_own_clients_are_not_foreign_needs),
                cmocka_unit_test(an_idle_client_gives_way_to_a_foreign_process),
                cmocka_unit_test(moving_bytes_are_not_asked_for_again),
                cmocka_unit_test(a_busy_client_never_gives_way_whatever_its_priority),
                cmocka_unit_test(a_client_with_new_work_keeps_its_memory),
                cmocka_unit_test(a_client_that_becomes_busy_again_keeps_its_memory),
                cmocka_unit_test(our_own_clients_come_before_foreign_processes),
                cmocka_unit_test(a_peer_daemon_that_waits_no_longer_gets_nothing),
                cmocka_unit_test(a_context_gets_room_beside_an_evicted_waiting_program),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
