/* test_sched_strangers.c: two daemons on one card: what one of them does with the need of the
 * other, and what it asks for itself. Who is only in the way is test_sched.c. */
#include "sched_bench.h"

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* What another daemon asks for. */
static struct tenant *stranger(struct bench *b, uint32_t uid, uint64_t bytes, uint64_t since_ns)
{
        struct tenant *t = &b->t[b->tenants++];
        const struct sched_attach a = {
                .usage.allocated = bytes, .run = true, .stranger_since_ns = since_ns};

        assert_int_equal(sched_client_add(b->s, uid, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &a);
        usage(b, t);
        return t;
}

/* It has what it asked for: from now on that is others' use. */
static void taken(struct bench *b, struct tenant *t, uint64_t foreign_bytes)
{
        restore(b, t);
        assert_true(t->lease);
        left(b, t, foreign_bytes);
}

static uint64_t lacks(struct bench *b, uint64_t *ret_since_ns)
{
        return sched_gpu_lacks(b->s, 0, ret_since_ns);
}

/* A tenant of 600 MiB of which 300 are there, and waits for the rest, which is with strangers. */
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

static void what_strangers_hold_is_lacking_until_its_client_runs(void **state)
{
        BENCH;
        uint64_t since_ns, began_ns;
        struct tenant *t;

        assert_int_equal(lacks(b, &since_ns), 0);
        t = half_there(b);
        began_ns = b->now_ns;
        pass(b, NSEC_PER_SEC);
        assert_int_equal(lacks(b, &since_ns), 300 * MIB);
        assert_int_equal(since_ns, began_ns);
        /* They gave way: it is free, and not in use yet. */
        foreign(b, 370 * MIB);
        assert_int_equal(t->limit[0], 600 * MIB);
        assert_int_equal(lacks(b, &since_ns), 300 * MIB);
        t->backed[0] = 500 * MIB;
        usage(b, t);
        assert_int_equal(lacks(b, &since_ns), 100 * MIB);
        restore(b, t);
        assert_true(t->lease);
        assert_int_equal(lacks(b, &since_ns), 0);
        assert_int_equal(since_ns, 0);
}

static void what_only_our_own_hold_is_not_asked_of_strangers(void **state)
{
        BENCH;
        struct tenant *r = runner(b, 0, 600 * MIB), *t = join(b, 0);
        uint64_t since_ns;

        want_commit(b, t, 600 * MIB);
        t->allocated[0] = 600 * MIB;
        usage(b, t);
        want_run(b, t, 600 * MIB);
        assert_int_equal(lacks(b, &since_ns), 0);
        pass(b, NSEC_PER_SEC);
        assert_true(r->revoked);
}

/* Each of two daemons holds half of what the other lacks. */
static void who_has_waited_longer_than_a_stranger_keeps_what_it_has(void **state)
{
        BENCH;
        struct tenant *t = half_there(b), *l;

        l = stranger(b, 2000, 500 * MIB, b->now_ns);
        pass(b, NSEC_PER_SEC);
        l = stranger(b, 2001, 280 * MIB, b->now_ns - NSEC_PER_SEC / 2);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(t->limit[0], 300 * MIB);
        assert_int_equal(l->limit[0], 0);
}

static void who_has_waited_less_than_a_stranger_gives_way_at_once(void **state)
{
        BENCH;
        uint64_t before_ns = b->now_ns;
        struct tenant *t = half_there(b), *l = stranger(b, 2000, 280 * MIB, before_ns);

        assert_int_equal(t->limit[0], 20 * MIB);
        evict_to(b, t, 20 * MIB);
        assert_int_equal(l->limit[0], 280 * MIB);
}

/* It holds its lease and grows. */
static void the_same_holds_for_who_runs_and_lacks_more(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 400 * MIB), *l;
        uint64_t began_ns;

        want_commit(b, t, 600 * MIB);
        foreign(b, 500 * MIB);
        t->allocated[0] = 600 * MIB;
        usage(b, t);
        want_run(b, t, 600 * MIB);
        began_ns = b->now_ns;
        tick_at(b, b->now_ns + NSEC_PER_MSEC);
        l = stranger(b, 2000, 200 * MIB, b->now_ns);
        assert_false(t->revoked);
        gone(b, l);
        l = stranger(b, 2000, 200 * MIB, began_ns - 1);
        assert_true(t->revoked);
        drained(b, t);
        evict_to(b, t, t->limit[0]);
        assert_int_equal(l->limit[0], 200 * MIB);
}

static void what_strangers_gave_is_for_who_asked_and_not_for_their_next_need(void **state)
{
        BENCH;
        struct tenant *t = half_there(b), *l;

        tick_at(b, b->now_ns + NSEC_PER_MSEC);
        /* Its daemon has given way, and asks again at once. Whatever has been counted here. */
        l = stranger(b, 2000, 300 * MIB, b->now_ns);
        foreign(b, 370 * MIB);
        assert_int_equal(t->limit[0], 600 * MIB);
        assert_int_equal(l->limit[0], 0);
        restore(b, t);
        assert_true(t->lease);
        assert_false(t->revoked);
        pass(b, FIXED_QUANTUM_NS);
        assert_true(t->revoked);
        drained(b, t);
        want_run(b, t, 600 * MIB);
        /* Its turn was had: it goes behind. */
        assert_int_equal(t->limit[0], 300 * MIB);
        evict_to(b, t, 300 * MIB);
        assert_int_equal(l->limit[0], 300 * MIB);
        taken(b, l, 670 * MIB);
        assert_int_equal(state_of(b, t), SCHED_WAITING);
}

static void what_was_left_to_a_stranger_is_not_taken_back_for_others(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB), *l = stranger(b, 2000, 500 * MIB, 1), *u;

        pass(b, FIXED_QUANTUM_NS);
        drained(b, t);
        evict_to(b, t, t->limit[0]);
        assert_int_equal(l->limit[0], 500 * MIB);
        usage(b, l);
        u = join(b, 0);
        want_commit(b, u, 600 * MIB);
        u->allocated[0] = 600 * MIB;
        usage(b, u);
        want_run(b, u, 600 * MIB);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(l->limit[0], 500 * MIB);
        taken(b, l, 500 * MIB);
}

/* Does what it was told last. */
static void obey(struct bench *b, struct tenant *t)
{
        if (t->revoked) {
                drained(b, t);
                want_run(b, t, t->allocated[0]);
        }
        if (t->backed[0] > t->limit[0])
                evict_to(b, t, t->limit[0]);
        else
                restore(b, t);
}

/* Whoever they are: a turn elsewhere is a turn. */
static void a_stranger_has_one_turn_in_a_round_of_all_users(void **state)
{
        BENCH;
        struct tenant *t[3], *l;
        unsigned turns = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
                t[i] = &b->t[b->tenants++];
                assert_int_equal(sched_client_add(b->s, 3000 + i, 0, b->now_ns, &t[i]->id), 0);
                attach(b, t[i], 0, &(struct sched_attach){.sequence = 1});
                usage(b, t[i]);
                want_commit(b, t[i], 900 * MIB);
                t[i]->allocated[0] = 900 * MIB;
                usage(b, t[i]);
                want_run(b, t[i], 900 * MIB);
        }
        restore(b, t[0]);
        assert_true(t[0]->lease);
        l = stranger(b, 2000, 900 * MIB, b->now_ns);
        for (unsigned round = 0; round < 40; round++) {
                pass(b, FIXED_QUANTUM_NS / 4);
                for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
                        obey(b, t[i]);
                if (l->limit[0] == 900 * MIB) {
                        turns++;
                        taken(b, l, 0); /* has had it, gives way and asks again */
                        b->tenants--;
                        *l = (struct tenant){0};
                        l = stranger(b, 2000, 900 * MIB, b->now_ns);
                }
        }
        /* 10 s, and three turns of a second and a bit each between two of its own */
        assert_in_range(turns, 2, 4);
}

/* A private daemon lets its user name any priority: that is no claim on another user's share. */
static void a_high_priority_gives_way_to_a_stranger_after_its_quantum(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 5, 600 * MIB), *l = stranger(b, 2000, 500 * MIB, b->now_ns);

        pass(b, FIXED_QUANTUM_NS - 2 * NSEC_PER_MSEC);
        assert_false(t->revoked);
        pass(b, 4 * NSEC_PER_MSEC);
        assert_true(t->revoked);
        drained(b, t);
        want_run(b, t, 600 * MIB); /* and does not overtake it */
        evict_to(b, t, t->limit[0]);
        assert_int_equal(l->limit[0], 500 * MIB);
        taken(b, l, 500 * MIB);
}

static void a_low_priority_has_its_quantum_before_a_stranger(void **state)
{
        BENCH;
        struct tenant *t = runner(b, -5, 600 * MIB);

        (void)stranger(b, 2000, 500 * MIB, b->now_ns);
        pass(b, FIXED_QUANTUM_NS - 2 * NSEC_PER_MSEC);
        assert_false(t->revoked);
        pass(b, 4 * NSEC_PER_MSEC);
        assert_true(t->revoked);
}

/* It takes turns with a client of a high priority, and does not wait with those of a low one. */
static void a_stranger_ranks_with_the_first_of_ours_that_wants_the_card(void **state)
{
        BENCH;
        struct tenant *high = runner(b, 5, 600 * MIB), *low = join(b, 0), *l;

        want_commit(b, low, 600 * MIB);
        low->allocated[0] = 600 * MIB;
        usage(b, low);
        want_run(b, low, 600 * MIB);
        l = stranger(b, 2000, 600 * MIB, b->now_ns);
        pass(b, FIXED_QUANTUM_NS);
        drained(b, high);
        for (unsigned i = 0; i < 2 && l->limit[0] < 600 * MIB; i++) {
                evict_to(b, high, high->limit[0]);
                evict_to(b, low, low->limit[0]);
        }
        assert_int_equal(l->limit[0], 600 * MIB);
}

/* No neighbour: between half and one and a half grace periods. One that offers what is missing gets
 * the time of a turn before. */
static void what_is_half_there_stays_for_a_turn_where_strangers_offer_the_rest(void **state)
{
        BENCH;
        struct tenant *t = half_there(b);
        struct sched_actions out = {0};

        sched_gpu_movable(b->s, 0, 400 * MIB, b->now_ns, &out);
        pass(b, 60 * NSEC_PER_SEC);
        assert_int_equal(t->limit[0], 300 * MIB);
        pass(b, 10 * NSEC_PER_SEC);
        assert_int_equal(t->limit[0], 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_strangers_hold_is_lacking_until_its_client_runs),
                cmocka_unit_test(what_only_our_own_hold_is_not_asked_of_strangers),
                cmocka_unit_test(who_has_waited_longer_than_a_stranger_keeps_what_it_has),
                cmocka_unit_test(who_has_waited_less_than_a_stranger_gives_way_at_once),
                cmocka_unit_test(the_same_holds_for_who_runs_and_lacks_more),
                cmocka_unit_test(what_strangers_gave_is_for_who_asked_and_not_for_their_next_need),
                cmocka_unit_test(what_was_left_to_a_stranger_is_not_taken_back_for_others),
                cmocka_unit_test(a_stranger_has_one_turn_in_a_round_of_all_users),
                cmocka_unit_test(a_high_priority_gives_way_to_a_stranger_after_its_quantum),
                cmocka_unit_test(a_low_priority_has_its_quantum_before_a_stranger),
                cmocka_unit_test(a_stranger_ranks_with_the_first_of_ours_that_wants_the_card),
                cmocka_unit_test(
                        what_is_half_there_stays_for_a_turn_where_strangers_offer_the_rest),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
