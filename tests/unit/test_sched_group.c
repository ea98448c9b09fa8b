/* test_sched_group.c: clients that run together have one lease, one place in the queue, one share
 * of the time and one promise of memory. */
#include "sched_bench.h"

#define WHOLE (920 * MIB) /* all that a program sees of the card */
#define HALF  (460 * MIB)

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* Adds a client without memory. with: a client to run together with; NULL: it is alone. */
static struct tenant *client_of(struct bench *b, uint32_t uid, const struct tenant *with)
{
        struct tenant *t = &b->t[b->tenants++];

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = uid}, 0, b->now_ns, &t->id), 0);
        if (with)
                assert_int_equal(sched_client_join(b->s, t->id, with->id), 0);
        attach(b, t, 0, &(struct sched_attach){.sequence = 1});
        usage(b, t);
        return t;
}

/* The same with so many bytes, of which none are resident. */
static struct tenant *holder_of(struct bench *b, uint32_t uid, const struct tenant *with,
                                uint64_t bytes)
{
        struct tenant *t = client_of(b, uid, with);

        request_commit_of(b, t, bytes);
        assert_int_equal(t->commit[0], bytes);
        t->allocated[0] = bytes;
        usage(b, t);
        return t;
}

/* Makes two clients that run together. */
static void two_that_run(struct bench *b, struct tenant **x, uint64_t x_bytes, struct tenant **y,
                         uint64_t y_bytes)
{
        *x = holder_of(b, 1, NULL, x_bytes);
        *y = holder_of(b, 1, *x, y_bytes);
        want_run(b, *x, x_bytes);
        want_run(b, *y, y_bytes);
        restore(b, *x);
        restore(b, *y);
        assert_true((*x)->lease && (*y)->lease);
}

/* Makes a client of another user that waits to run. */
static struct tenant *waiter(struct bench *b, uint64_t bytes)
{
        struct tenant *t = holder_of(b, 2, NULL, bytes);

        want_run(b, t, bytes);
        return t;
}

static void both_run_once_the_memory_of_both_is_there(void **state)
{
        BENCH;
        struct tenant *x, *y;

        x = holder_of(b, 1, NULL, HALF);
        y = holder_of(b, 1, x, HALF);
        want_run(b, x, HALF);
        want_run(b, y, HALF);
        restore(b, x);
        assert_int_equal(x->lease, 0);
        restore(b, y);
        assert_int_not_equal(x->lease, 0);
        assert_int_not_equal(y->lease, 0);
}

static void both_give_way_and_the_next_one_runs_when_both_have(void **state)
{
        BENCH;
        struct tenant *x, *y, *other;

        two_that_run(b, &x, HALF, &y, HALF);
        other = waiter(b, WHOLE);
        await_revoke(b, x);
        assert_true(y->revoked);
        drained(b, x);
        evict_to(b, x, x->limit[0]);
        want_run(b, x, HALF); /* it asks again before the other one has given way */
        assert_int_equal(x->lease, 0);
        restore(b, other);
        assert_int_equal(other->lease, 0);
        drained(b, y);
        evict_to(b, y, y->limit[0]);
        evict_to(b, x, x->limit[0]);
        restore(b, other);
        assert_int_not_equal(other->lease, 0);
        assert_int_equal(x->lease, 0);
}

static void who_comes_during_a_turn_takes_part_in_it(void **state)
{
        BENCH;
        struct tenant *x, *y;

        x = holder_of(b, 1, NULL, HALF);
        y = holder_of(b, 1, x, HALF);
        want_run(b, x, HALF);
        restore(b, x);
        restore(b, y);
        assert_int_not_equal(x->lease, 0);
        assert_int_equal(y->lease, 0); /* it has not asked */
        (void)waiter(b, WHOLE);
        assert_false(x->revoked);
        want_run(b, y, HALF);
        assert_int_not_equal(y->lease, 0);
        assert_int_not_equal(y->lease, x->lease); /* so a late answer ends no other lease */
}

static void idle_means_that_all_are_idle(void **state)
{
        BENCH;
        struct tenant *x, *y;

        two_that_run(b, &x, HALF, &y, HALF);
        (void)waiter(b, WHOLE);
        idle(b, y, true);
        pass(b, NSEC_PER_SEC / 2);
        assert_false(x->revoked);
        idle(b, x, true);
        pass(b, NSEC_PER_SEC / 4);
        assert_true(x->revoked && y->revoked);
}

static void what_they_may_allocate_fits_at_one_time(void **state)
{
        BENCH;
        struct tenant *x, *y;

        x = holder_of(b, 1, NULL, 600 * MIB);
        y = client_of(b, 1, x);
        request_commit_of(b, y, 400 * MIB);
        assert_int_equal(y->refused, -ENOMEM);
        request_commit_of(b, y, 300 * MIB);
        assert_int_equal(y->refused, 0);
        assert_int_equal(y->commit[0], 300 * MIB);
        /* Another client may fill the card: it takes turns with them. */
        (void)holder_of(b, 1, NULL, 900 * MIB);
}

static void a_commit_goes_back_when_the_card_becomes_smaller(void **state)
{
        BENCH;
        struct tenant *x, *y;

        x = holder_of(b, 1, NULL, 300 * MIB);
        y = client_of(b, 1, x);
        request_commit_of(b, y, 500 * MIB);
        assert_int_equal(y->commit[0], 500 * MIB);
        foreign(b, 370 * MIB);                     /* 600 MiB are left */
        assert_int_equal(x->commit[0], 300 * MIB); /* allocated */
        assert_int_equal(y->commit[0], 300 * MIB);
}

static void together_they_have_one_share_of_the_time(void **state)
{
        uint64_t turns[2] = {0};
        BENCH;
        struct tenant *t[3];

        t[0] = holder_of(b, 1, NULL, HALF);
        t[1] = holder_of(b, 1, t[0], HALF);
        t[2] = holder_of(b, 1, NULL, WHOLE);
        for (unsigned i = 0; i < 3; i++)
                want_run(b, t[i], t[i]->allocated[0]);
        for (unsigned step = 0; step < 4000; step++) {
                for (unsigned i = 0; i < 3; i++) {
                        if (t[i]->revoked) {
                                drained(b, t[i]);
                                want_run(b, t[i], t[i]->allocated[0]);
                        }
                        if (t[i]->backed[0] > t[i]->limit[0])
                                evict_to(b, t[i], t[i]->limit[0]);
                        if (!t[i]->lease && t[i]->backed[0] < t[i]->limit[0])
                                restore(b, t[i]);
                }
                turns[0] += t[0]->lease && t[1]->lease;
                turns[1] += t[2]->lease != 0;
                pass(b, 10 * NSEC_PER_MSEC);
        }
        assert_in_range(turns[0], 1900, 2000);
        assert_in_range(turns[1], 1900, 2000);
}

static void the_death_of_one_ends_no_turn_of_the_others(void **state)
{
        BENCH;
        struct tenant *x, *y, *other;

        two_that_run(b, &x, HALF, &y, HALF);
        other = waiter(b, HALF);
        lost(b, y);
        gone(b, y);
        restore(b, other); /* into the room that y has left */
        assert_int_not_equal(other->lease, 0);
        assert_false(x->revoked);
}

static void one_that_fails_to_drain_keeps_the_lease_for_all(void **state)
{
        BENCH;
        struct tenant *x, *y, *other;

        two_that_run(b, &x, HALF, &y, HALF);
        other = waiter(b, WHOLE);
        await_revoke(b, x);
        drain_failed(b, x);
        assert_int_equal(state_of(b, y), SCHED_DRAINING);
        drained(b, y);
        want_run(b, y, HALF);
        assert_int_not_equal(y->lease, 0); /* the turn goes on */
        await_revoke(b, x);                /* and both are asked again */
        assert_true(y->revoked);
        drained(b, x);
        drained(b, y);
        evict_to(b, x, x->limit[0]);
        evict_to(b, y, y->limit[0]);
        restore(b, other);
        assert_int_not_equal(other->lease, 0);
}

static void the_one_that_is_late_is_named(void **state)
{
        BENCH;
        struct tenant *x, *y;

        two_that_run(b, &x, HALF, &y, HALF);
        (void)waiter(b, WHOLE);
        await_revoke(b, x);
        drained(b, x);
        evict_to(b, x, x->limit[0]);
        pass(b, 10 * NSEC_PER_SEC);
        assert_true(y->overdue);
        assert_false(x->overdue);
        assert_true(flags_of(b, y) & SCHED_OVERDUE);
        assert_false(flags_of(b, x) & SCHED_OVERDUE);
}

/* Two clients that run, one with nearly all memory of the card, and a third one that waits. */
static void a_large_and_a_small(struct bench *b, struct tenant **x, struct tenant **y,
                                struct tenant **other)
{
        two_that_run(b, x, 900 * MIB, y, 1 * MIB);
        *other = waiter(b, 500 * MIB);
}

/* The large client gives way within 20 s, although the small one does not. */
static void assert_the_large_one_gives_way(struct bench *b, struct tenant *x, struct tenant *other)
{
        for (unsigned i = 0; i < 200 && !other->lease; i++) {
                pass(b, 100 * NSEC_PER_MSEC);
                if (x->revoked) {
                        drained(b, x);
                        want_run(b, x, 900 * MIB);
                }
                if (x->backed[0] > x->limit[0])
                        evict_to(b, x, x->limit[0]);
                restore(b, other);
        }
        assert_int_not_equal(other->lease, 0);
}

static void a_silent_one_holds_back_its_own_bytes_alone(void **state)
{
        BENCH;
        struct tenant *x, *y, *other;

        a_large_and_a_small(b, &x, &y, &other);
        assert_the_large_one_gives_way(b, x, other);
        assert_true(y->overdue);
        assert_false(x->overdue);
}

static void a_frozen_one_holds_back_its_own_bytes_alone(void **state)
{
        BENCH;
        struct tenant *x, *y, *other;

        a_large_and_a_small(b, &x, &y, &other);
        stands(b, y, true);
        assert_the_large_one_gives_way(b, x, other);
        assert_false(y->revoked);
}

static void leases_given_back_in_turn_do_not_keep_the_card(void **state)
{
        unsigned others = 0;
        BENCH;
        struct tenant *x, *y, *other;

        two_that_run(b, &x, HALF, &y, HALF);
        other = waiter(b, WHOLE);
        for (unsigned i = 0; i < 1000; i++) {
                struct tenant *t[] = {x, y, other};

                pass(b, 100 * NSEC_PER_MSEC);
                if (y->revoked)
                        drain_failed(b, y);
                if (x->revoked)
                        drained(b, x);
                if (y->lease && x->lease)
                        drained(b, y);
                for (unsigned k = 0; k < 3; k++) {
                        if (t[k]->backed[0] > t[k]->limit[0])
                                evict_to(b, t[k], t[k]->limit[0]);
                        else if (!t[k]->lease && t[k]->backed[0] < t[k]->limit[0])
                                restore(b, t[k]);
                        if (!t[k]->lease)
                                want_run(b, t[k], t[k]->allocated[0]);
                }
                others += other->lease != 0;
        }
        assert_in_range(others, 400, 1000);
}

static void one_that_restores_during_a_turn_is_no_gap(void **state)
{
        BENCH;
        struct tenant *x, *y, *other;

        x = holder_of(b, 1, NULL, 300 * MIB);
        y = holder_of(b, 1, x, 300 * MIB);
        want_run(b, x, 300 * MIB);
        restore(b, x);
        restore(b, y);
        other = holder_of(b, 2, NULL, WHOLE);
        idle(b, x, true);
        want_run(b, other, WHOLE);
        request_commit_of(b, y, 500 * MIB);
        y->allocated[0] = 500 * MIB;
        usage(b, y);
        want_run(b, y, 500 * MIB);
        pass(b, NSEC_PER_SEC / 2);
        assert_false(x->revoked);
}

static void a_lost_one_takes_no_room_from_its_successor(void **state)
{
        BENCH;
        struct tenant *x, *y, *successor;

        x = holder_of(b, 1, NULL, HALF);
        y = holder_of(b, 1, x, HALF);
        lost(b, y);
        successor = client_of(b, 1, x);
        request_commit_of(b, successor, HALF);
        assert_int_equal(successor->refused, 0);
}

static void a_lost_one_that_owes_an_answer_does_not_stop_the_others(void **state)
{
        BENCH;
        struct tenant *x, *y, *other;

        two_that_run(b, &x, 300 * MIB, &y, 300 * MIB);
        other = waiter(b, 500 * MIB);
        await_revoke(b, x);
        drained(b, x);
        drained(b, y);
        assert_true(x->limit[0] < 300 * MIB);
        lost(b, x); /* before it has acknowledged the lower limit */
        gone(b, other);
        want_run(b, y, 300 * MIB);
        restore(b, y);
        assert_int_not_equal(y->lease, 0);
}

static void the_lowest_priority_counts(void **state)
{
        BENCH;
        struct tenant *x;
        struct sched_client_view v;
        sched_client low;

        x = client_of(b, 1, NULL);
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, -3, b->now_ns, &low), 0);
        assert_int_equal(sched_client_join(b->s, low, x->id), 0);
        assert_int_equal(sched_client_view(b->s, x->id, b->now_ns, &v), 0);
        assert_int_equal(v.priority, -3);
}

static void only_clients_of_one_user_and_container_run_together(void **state)
{
        BENCH;
        struct tenant *x;
        sched_client stranger, late, contained;

        x = client_of(b, 1, NULL);
        late = client_of(b, 1, NULL)->id;
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 2}, 0, b->now_ns, &stranger),
                0);
        assert_int_equal(sched_client_join(b->s, stranger, x->id), -EINVAL);
        assert_int_equal(sched_client_add(b->s, (struct sched_origin){.uid = 1, .container = 1}, 0,
                                          b->now_ns, &contained),
                         0);
        assert_int_equal(sched_client_join(b->s, contained, x->id), -EINVAL);
        assert_int_equal(sched_client_join(b->s, late, x->id), -EINVAL); /* it uses a GPU already */
        assert_int_equal(sched_client_join(b->s, x->id + 77, x->id), -ESTALE);
}

/* ---- ranks of a job, which need not fit together ---- */

#define JOB 7

/* Makes a client of a job with so many bytes, which wants to run. */
static struct tenant *rank_of(struct bench *b, uint32_t uid, uint64_t job, uint64_t bytes)
{
        struct tenant *t = &b->t[b->tenants++];
        const struct sched_origin origin = {.uid = uid, .container = job, .job = job};

        assert_int_equal(sched_client_add(b->s, origin, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.sequence = 1});
        usage(b, t);
        request_commit_of(b, t, bytes);
        assert_int_equal(t->commit[0], bytes);
        t->allocated[0] = bytes;
        usage(b, t);
        want_run(b, t, bytes);
        return t;
}

static void exclusive(struct sched_config *c)
{
        c->mode = SCHED_MODE_EXCLUSIVE;
}

static void ranks_of_a_job_run_beside_each_other_on_an_exclusive_card(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(exclusive);
        struct tenant *x, *y, *other, *rival;

        x = rank_of(b, 1, JOB, 200 * MIB);
        y = rank_of(b, 1, JOB, 200 * MIB);
        other = rank_of(b, 1, JOB + 1, 200 * MIB);
        rival = rank_of(b, 1, JOB + 1, 200 * MIB);
        restore(b, x);
        restore(b, y);
        restore(b, other);
        restore(b, rival);
        assert_true(x->lease && y->lease && !other->lease && !rival->lease);
        await_revoke(b, x);
        drained(b, x);
        assert_int_equal(other->lease, 0); /* y has its lease yet */
        want_run(b, x, 200 * MIB);
        assert_int_equal(x->lease, 0); /* the others come first */
        await_revoke(b, y);
        drained(b, y);
        assert_true(other->lease && rival->lease && !x->lease);
}

static void ranks_of_a_job_need_not_fit_together(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(exclusive);
        struct tenant *x, *y;

        x = rank_of(b, 1, JOB, WHOLE);
        y = rank_of(b, 1, JOB, WHOLE);
        restore(b, x);
        assert_int_not_equal(x->lease, 0);
        await_revoke(b, x);
        drained(b, x);
        evict_to(b, x, x->limit[0]);
        restore(b, y);
        assert_int_not_equal(y->lease, 0);
}

static void a_job_and_a_program_each_get_half_of_an_exclusive_card(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(exclusive);
        unsigned turns[2] = {0};
        struct tenant *t[3];

        for (unsigned i = 0; i < 3; i++) {
                t[i] = rank_of(b, 1, i < 2 ? JOB : 0, 200 * MIB);
                restore(b, t[i]);
        }
        for (unsigned step = 0; step < 4000; step++) {
                for (unsigned i = 0; i < 3; i++) {
                        if (!t[i]->revoked)
                                continue;
                        drained(b, t[i]);
                        want_run(b, t[i], t[i]->allocated[0]);
                }
                turns[0] += t[0]->lease || t[1]->lease;
                turns[1] += t[2]->lease != 0;
                pass(b, 10 * NSEC_PER_MSEC);
        }
        assert_in_range(turns[0], 1900, 2100);
        assert_in_range(turns[1], 1900, 2100);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(both_run_once_the_memory_of_both_is_there),
                cmocka_unit_test(both_give_way_and_the_next_one_runs_when_both_have),
                cmocka_unit_test(who_comes_during_a_turn_takes_part_in_it),
                cmocka_unit_test(idle_means_that_all_are_idle),
                cmocka_unit_test(what_they_may_allocate_fits_at_one_time),
                cmocka_unit_test(a_commit_goes_back_when_the_card_becomes_smaller),
                cmocka_unit_test(together_they_have_one_share_of_the_time),
                cmocka_unit_test(the_death_of_one_ends_no_turn_of_the_others),
                cmocka_unit_test(one_that_fails_to_drain_keeps_the_lease_for_all),
                cmocka_unit_test(the_one_that_is_late_is_named),
                cmocka_unit_test(a_silent_one_holds_back_its_own_bytes_alone),
                cmocka_unit_test(a_frozen_one_holds_back_its_own_bytes_alone),
                cmocka_unit_test(leases_given_back_in_turn_do_not_keep_the_card),
                cmocka_unit_test(one_that_restores_during_a_turn_is_no_gap),
                cmocka_unit_test(a_lost_one_takes_no_room_from_its_successor),
                cmocka_unit_test(a_lost_one_that_owes_an_answer_does_not_stop_the_others),
                cmocka_unit_test(the_lowest_priority_counts),
                cmocka_unit_test(only_clients_of_one_user_and_container_run_together),
                cmocka_unit_test(ranks_of_a_job_run_beside_each_other_on_an_exclusive_card),
                cmocka_unit_test(ranks_of_a_job_need_not_fit_together),
                cmocka_unit_test(a_job_and_a_program_each_get_half_of_an_exclusive_card),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
