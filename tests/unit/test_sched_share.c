/* test_sched_share.c: the GPU is shared over several turns, between users, between turns of
 * different lengths and between peaks. test_sched_turns.c tests which client gives way at one
 * moment. */
#include "sched_bench.h"

#define WHOLE (970 * MIB) /* all usable bytes */

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* Makes a client of this user, in a container or in none (0), that holds so many bytes, none of
 * them resident, and asks to run. */
static struct tenant *waiter_in(struct bench *b, uint32_t uid, uint64_t container, uint64_t bytes)
{
        return comes_to_run(b, (struct sched_origin){.uid = uid, .container = container}, 0, bytes);
}

static struct tenant *waiter_of(struct bench *b, uint32_t uid, uint64_t bytes)
{
        return waiter_in(b, uid, 0, bytes);
}

/* Ends the client's turn, and lets it ask for another. */
static void hand_over(struct bench *b, struct tenant *t)
{
        assert_true(t->revoked);
        drained(b, t);
        want_run(b, t, t->allocated[0]);
        evict_to(b, t, t->limit[0]);
}

static void hand_over_idle(struct bench *b, struct tenant *from, struct tenant *to)
{
        assert_true(from->revoked);
        drained(b, from);
        evict_to(b, from, from->limit[0]);
        restore(b, to);
        assert_int_not_equal(to->lease, 0);
}

static void long_quantum(struct sched_config *c)
{
        c->quantum_ns = 20 * NSEC_PER_SEC;
}

static void next_turn_after(struct bench *b, uint64_t ns, struct tenant *from, struct tenant *to)
{
        pass(b, ns);
        hand_over(b, from);
        restore(b, to);
        assert_int_not_equal(to->lease, 0);
}

static void next_turn(struct bench *b, struct tenant *from, struct tenant *to)
{
        next_turn_after(b, FIXED_QUANTUM_NS, from, to);
}

static void three_share_every_second_turn(struct bench *b, struct tenant *a[3], struct tenant *c)
{
        for (unsigned i = 0; i < 3; i++) {
                next_turn(b, a[i], c);
                next_turn(b, c, a[(i + 1) % 3]);
        }
}

static void many_processes_get_a_user_no_more_turns_than_one(void **state)
{
        BENCH;
        struct tenant *a[3], *c;

        for (unsigned i = 0; i < 3; i++)
                a[i] = waiter_of(b, 1, WHOLE);
        assert_int_not_equal(a[0]->lease, 0);
        c = waiter_of(b, 2, WHOLE); /* c is the last to ask */
        three_share_every_second_turn(b, a, c);
}

/* The roots of all containers are one user here. */
static void many_processes_get_a_container_no_more_turns_than_one(void **state)
{
        BENCH;
        struct tenant *a[3], *c;

        for (unsigned i = 0; i < 3; i++)
                a[i] = waiter_in(b, 0, 1, WHOLE);
        c = waiter_in(b, 0, 2, WHOLE);
        three_share_every_second_turn(b, a, c);
}

static void many_containers_get_a_user_no_more_turns_than_one(void **state)
{
        BENCH;
        struct tenant *a[3], *c;

        for (unsigned i = 0; i < 3; i++)
                a[i] = waiter_in(b, 1, 1 + i, WHOLE);
        c = waiter_in(b, 2, 1, WHOLE); /* a container of another user, with the same number */
        for (unsigned i = 0; i < 2; i++)
                three_share_every_second_turn(b, a, c);
}

static void a_container_counts_as_one_program_of_its_user(void **state)
{
        BENCH;
        struct tenant *a[2], *c;

        for (unsigned i = 0; i < 2; i++)
                a[i] = waiter_in(b, 1, 1, WHOLE);
        c = waiter_of(b, 1, WHOLE);
        next_turn(b, a[0], c);
        next_turn(b, c, a[1]);
        next_turn(b, a[1], c);
        next_turn(b, c, a[0]);
}

/* Seven clients connect, request most of the card, and read nothing. */
static void silent_clients_take_no_turns_from_another_user(void **state)
{
        BENCH;
        struct tenant *u;

        for (unsigned i = 0; i < 7; i++) {
                struct tenant *t = &b->t[b->tenants++];

                assert_int_equal(sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0,
                                                  b->now_ns, &t->id),
                                 0);
                attach(b, t, 0, &(struct sched_attach){.sequence = 1});
                want(b, t,
                     &(struct sched_request){.commit = 700 * MIB, .need = 700 * MIB, .run = true});
        }
        pass(b, 20 * NSEC_PER_SEC);
        u = waiter_of(b, 2, 100 * MIB);
        assert_int_not_equal(u->lease, 0);
        pass(b, 20 * NSEC_PER_SEC);
        assert_false(u->revoked);
}

static void processes_of_one_user_take_turns_in_the_order_in_which_they_asked(void **state)
{
        BENCH;
        struct tenant *a[3];

        for (unsigned i = 0; i < 3; i++)
                a[i] = waiter_of(b, 1, WHOLE);
        for (unsigned i = 0; i < 6; i++)
                next_turn(b, a[i % 3], a[(i + 1) % 3]);
}

static void an_hour_alone_on_the_card_is_no_debt(void **state)
{
        BENCH;
        struct tenant *a = waiter_of(b, 1, WHOLE), *c;

        pass(b, 3600 * NSEC_PER_SEC); /* a is alone on the card */
        c = waiter_of(b, 2, WHOLE);
        hand_over(b, a);
        restore(b, c);
        assert_int_not_equal(c->lease, 0);
        for (unsigned i = 0; i < 3; i++) {
                next_turn(b, c, a);
                next_turn(b, a, c);
        }
}

static void a_long_kernel_is_paid_for_in_full(void **state)
{
        BENCH;
        struct tenant *a = waiter_of(b, 1, WHOLE), *c = waiter_of(b, 2, WHOLE);
        unsigned turns = 0;

        pass(b, FIXED_QUANTUM_NS);
        assert_true(a->revoked);
        pass(b, 6 * NSEC_PER_SEC); /* a long kernel */
        hand_over(b, a);
        restore(b, c);
        for (; !c->revoked && turns < 20; turns++)
                pass(b, FIXED_QUANTUM_NS);
        /* a has had 7 s. A debt of one turn counts as none. */
        assert_in_range(turns, 5, 7);
}

static void few(struct sched_config *c)
{
        c->clients_max = 4;
}

/* A program ends after a long kernel. Then so many users and containers come and go. Returns for
 * how many turns another one has the card when the next program of the first one's origin waits. */
static unsigned turns_before_the_next(struct sched_origin first, struct sched_origin other,
                                      unsigned passers)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(few);
        struct tenant *a = waiter_in(b, first.uid, first.container, WHOLE);
        struct tenant *c = waiter_in(b, other.uid, other.container, WHOLE);
        unsigned turns = 0;

        pass(b, FIXED_QUANTUM_NS + 6 * NSEC_PER_SEC); /* a long kernel */
        gone(b, a);
        restore(b, c);
        assert_int_not_equal(c->lease, 0);
        for (unsigned i = 0; i < passers; i++) {
                const struct sched_origin origin = {.uid = 1000 + i, .container = 1};
                struct tenant t = {0};

                assert_int_equal(sched_client_add(b->s, origin, 0, b->now_ns, &t.id), 0);
                gone(b, &t);
        }
        (void)waiter_in(b, first.uid, first.container, WHOLE);
        for (; !c->revoked && turns < 20; turns++)
                pass(b, FIXED_QUANTUM_NS);
        return turns;
}

static void a_debt_outlives_the_last_process(void **state)
{
        const struct sched_origin user = {.uid = 1}, another = {.uid = 2};
        const struct sched_origin container = {.uid = 1, .container = 1};
        const struct sched_origin beside = {.uid = 1, .container = 2};

        assert_in_range(turns_before_the_next(user, another, 0), 5, 7);
        assert_in_range(turns_before_the_next(container, beside, 0), 5, 7);
        assert_int_equal(turns_before_the_next(user, user, 0), 1); /* a program has none */
        /* There are more users and containers than the scheduler remembers. */
        assert_in_range(turns_before_the_next(user, another, 10), 5, 7);
        assert_in_range(turns_before_the_next(container, beside, 10), 5, 7);
}

static void a_short_burst_interrupts_a_long_turn(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(long_quantum);
        struct tenant *burst = waiter_of(b, 1, WHOLE), *batch;

        for (unsigned i = 0; i < 3; i++) { /* bursts of 100 ms */
                pass(b, NSEC_PER_SEC / 10);
                idle(b, burst, true);
                pass(b, 10 * NSEC_PER_SEC);
                idle(b, burst, false);
        }
        idle(b, burst, true);
        pass(b, 10 * NSEC_PER_SEC);
        batch = waiter_of(b, 2, WHOLE);
        hand_over_idle(b, burst, batch);
        pass(b, NSEC_PER_SEC);
        want_run(b, burst, WHOLE);
        assert_true(batch->revoked);
}

/* Two like jobs do not move each other out in the middle of their work, even if the bursts of one
 * are not known yet. */
static void a_burst_is_not_interrupted_before_it_is_longer_than_the_others(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(long_quantum);
        struct tenant *first = waiter_of(b, 1, WHOLE), *second;

        for (unsigned i = 0; i < 3; i++) {
                idle(b, first, false);
                pass(b, 5 * NSEC_PER_SEC);
                idle(b, first, true);
                pass(b, NSEC_PER_SEC);
        }
        second = waiter_of(b, 1, WHOLE);
        hand_over_idle(b, first, second);
        pass(b, 4 * NSEC_PER_SEC);
        want_run(b, first, WHOLE); /* now three bursts are known */
        assert_false(second->revoked);
        pass(b, 2 * NSEC_PER_SEC);
        assert_true(second->revoked);
}

static void auto_quantum(struct sched_config *c)
{
        c->quantum_ns = 0;
}

/* A client of which nothing is known asks for a shorter turn than one whose hand-offs are known to
 * cost more. */
static void unknown_bursts_interrupt_nobody(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(auto_quantum);
        struct tenant *first = waiter_of(b, 1, WHOLE), *batch = waiter_of(b, 2, WHOLE);

        await_revoke(b, first);
        drained(b, first);
        pass(b, NSEC_PER_SEC);
        evict_to(b, first, first->limit[0]);
        restore(b, batch);
        assert_int_not_equal(batch->lease, 0);
        gone(b, first);
        (void)waiter_of(b, 3, WHOLE);
        pass(b, 15 * NSEC_PER_SEC);
        assert_false(batch->revoked);
        pass(b, 5 * NSEC_PER_SEC);
        assert_true(batch->revoked);
}

static void clients_that_are_to_be_alone_take_turns_and_no_longer_when_they_are_not(void **state)
{
        BENCH;
        struct tenant *one = waiter_of(b, 1, 200 * MIB), *two = waiter_of(b, 2, 200 * MIB);
        struct sched_actions out = {0};

        assert_true(one->lease && two->lease);
        assert_int_equal(sched_client_alone(b->s, one->id + 1000, true, b->now_ns, &out), -ESTALE);
        assert_int_equal(set_alone(b, one, true), 0);
        assert_int_equal(set_alone(b, two, true), 0);
        pass(b, NSEC_PER_SEC);
        assert_true(one->revoked != two->revoked);
        drained(b, one->revoked ? one : two);
        pass(b, NSEC_PER_SEC);
        assert_true(!one->lease != !two->lease);
        want_run(b, one->lease ? two : one, 200 * MIB);
        assert_true(!one->lease != !two->lease);
        assert_int_equal(set_alone(b, one, false), 0);
        assert_int_equal(set_alone(b, two, false), 0);
        pass(b, NSEC_PER_SEC);
        assert_true(one->lease && two->lease);
}

static void a_card_is_exclusive_while_an_exclusive_class_wants_it(void **state)
{
        BENCH;
        struct tenant *one = waiter_of(b, 1, 200 * MIB), *two = waiter_of(b, 2, 200 * MIB);
        struct tenant *alone = &b->t[b->tenants++];
        const struct sched_origin origin = {
                .uid = 3, .class_number = 7, .terms = {.exclusive = true}};

        assert_int_not_equal(one->lease, 0);
        assert_int_not_equal(two->lease, 0);
        assert_int_equal(sched_client_add(b->s, origin, 0, b->now_ns, &alone->id), 0);
        attach(b, alone, 0, &(struct sched_attach){.usage = {.allocated = 200 * MIB}});
        usage(b, alone);
        restore(b, alone);
        pass(b, 10 * NSEC_PER_SEC);
        assert_false(one->revoked || two->revoked); /* the exclusive one does not compute */
        want_run(b, alone, 200 * MIB);
        restore(b, alone);
        assert_true(two->revoked);
        drained(b, two);
        await_revoke(b, one);
        drained(b, one);
        assert_int_not_equal(alone->lease, 0);
        want_run(b, one, 200 * MIB);
        want_run(b, two, 200 * MIB);
        assert_int_equal(one->lease | two->lease, 0);
        idle(b, alone, true);
        assert_true(alone->revoked);
        drained(b, alone);
        assert_int_not_equal(one->lease, 0);
        assert_int_not_equal(two->lease, 0);
}

/* Returns how long a client that had such gaps may be idle while another one waits. A hand-off of
 * its memory costs 2 x 51 ms. */
static uint64_t idle_after(const unsigned *gaps_ms, unsigned n)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(long_quantum);
        struct tenant *a = &b->t[b->tenants++];
        uint64_t from_ns;

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &a->id), 0);
        attach(b, a, 0, &(struct sched_attach){.usage = {.allocated = WHOLE}});
        usage(b, a);
        pass(b, NSEC_PER_SEC); /* this is no gap: the program starts */
        want_run(b, a, WHOLE);
        restore(b, a);

        for (unsigned i = 0; i < n; i++) {
                pass(b, 10 * NSEC_PER_MSEC);
                idle(b, a, true);
                pass(b, gaps_ms[i] * NSEC_PER_MSEC);
                idle(b, a, false);
        }
        pass(b, 10 * NSEC_PER_MSEC);
        (void)waiter_of(b, 2, WHOLE);
        idle(b, a, true);
        from_ns = b->now_ns;
        while (!a->revoked)
                tick_at(b, sched_next_ns(b->s));
        return b->now_ns - from_ns;
}

static void an_idle_client_gives_way_when_that_would_have_cost_least(void **state)
{
        const uint64_t cost = 2 * WHOLE / 20000 * 1000;

        assert_in_range(idle_after((unsigned[]){30, 30, 30, 30}, 4), cost / 2 - NSEC_PER_MSEC,
                        cost / 2 + NSEC_PER_MSEC);
        assert_in_range(idle_after((unsigned[]){30, 30, 30, 30, 30}, 5), cost - NSEC_PER_MSEC,
                        cost + NSEC_PER_MSEC);
        assert_in_range(idle_after((unsigned[]){30, 30, 30, 900, 900}, 5), 30 * NSEC_PER_MSEC,
                        33 * NSEC_PER_MSEC);
        /* So short are the gaps of a program that fills its memory. */
        assert_in_range(idle_after((unsigned[]){0, 0, 0, 0, 0, 0, 0, 0, 900}, 9),
                        cost / 2 - NSEC_PER_MSEC, cost / 2 + NSEC_PER_MSEC);
        /* To wait for the end of one short gap in ten is not worth its while. */
        assert_in_range(
                idle_after((unsigned[]){30, 900, 900, 900, 900, 900, 900, 900, 900, 900}, 10), 0,
                NSEC_PER_MSEC);
}

static void exclusive(struct sched_config *c)
{
        c->mode = SCHED_MODE_EXCLUSIVE;
}

/* Otherwise its debt would grow as it waits, and the other one would have turn after turn. */
static void a_client_that_lacks_only_the_lease_pays_nothing(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(exclusive);
        struct tenant *a = waiter_of(b, 1, 100 * MIB), *c = waiter_of(b, 1, 500 * MIB);

        for (unsigned i = 0; i < 10; i++) {
                struct tenant *from = i % 2 ? c : a, *to = i % 2 ? a : c;

                for (unsigned turns = 0; !from->revoked && turns < 20; turns++)
                        pass(b, FIXED_QUANTUM_NS);
                hand_over(b, from);
                assert_int_not_equal(to->lease, 0);
        }
}

static void memory_that_idles_on_the_card_is_paid_for(void **state)
{
        BENCH;
        struct tenant *a = waiter_of(b, 1, WHOLE), *c = waiter_of(b, 2, WHOLE);

        for (unsigned turn = 0; turn < 4; turn++) {
                for (unsigned i = 0; i < 10; i++) { /* too short gaps for a hand-off */
                        assert_false(a->revoked);
                        idle(b, a, true);
                        pass(b, 50 * NSEC_PER_MSEC);
                        if (!a->revoked)
                                idle(b, a, false);
                        pass(b, 50 * NSEC_PER_MSEC);
                }
                hand_over(b, a);
                restore(b, c);
                assert_int_not_equal(c->lease, 0);
                next_turn(b, c, a);
        }
}

/* Otherwise a client could keep its memory from all others while a higher priority computes. */
static void a_wait_for_growth_does_not_prolong_a_turn(void **state)
{
        BENCH;
        struct tenant *a, *t, *high;

        high = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 5, b->now_ns, &high->id),
                0);
        attach(b, high, 1,
               &(struct sched_attach){.usage = {.allocated = 800 * MIB, .backed = 800 * MIB},
                                      .running = true});
        a = runner(b, 0, 500 * MIB);
        attach(b, a, 1, &(struct sched_attach){.usage = {.allocated = 300 * MIB}, .run = true});
        assert_int_equal(a->limit[1], 170 * MIB);
        usage_as_of(b, a, 1, a->sequence[1]);
        t = waiter_of(b, 1, 500 * MIB);
        pass(b, FIXED_QUANTUM_NS - NSEC_PER_MSEC);
        assert_false(a->revoked);
        pass(b, NSEC_PER_MSEC);
        assert_true(a->revoked);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

/* Reconnects a running client of this user: the daemon cannot know since when it has run. */
static struct tenant *returner_of(struct bench *b, uint32_t uid, uint64_t allocated,
                                  uint64_t backed)
{
        struct tenant *t = &b->t[b->tenants++];

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = uid}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0,
               &(struct sched_attach){.usage = {.allocated = allocated, .backed = backed},
                                      .running = true});
        assert_int_not_equal(t->lease, 0); /* t runs already, so it gets a lease */
        usage(b, t);
        return t;
}

/* The client's claim that it runs may be false. */
static void a_client_that_claims_to_run_does_not_overtake_waiters(void **state)
{
        BENCH;
        struct tenant *a = waiter_of(b, 1, WHOLE), *c = waiter_of(b, 2, WHOLE), *liar;

        liar = returner_of(b, 3, WHOLE, 0);
        want_run(b, liar, WHOLE);
        next_turn(b, a, c);
        assert_int_equal(liar->limit[0], 0);
}

static void a_turn_does_not_begin_anew_with_a_connection(void **state)
{
        BENCH;
        struct tenant *a = waiter_of(b, 1, WHOLE), *c = waiter_of(b, 2, WHOLE), *again;

        pass(b, FIXED_QUANTUM_NS / 2);
        lost(b, a);
        again = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &again->id),
                0);
        assert_int_equal(sched_client_returned(b->s, again->id, a->id), 0);
        attach(b, again, 0,
               &(struct sched_attach){.usage = {.allocated = WHOLE, .backed = WHOLE},
                                      .running = true});
        usage(b, again);
        assert_false(again->revoked);
        next_turn_after(b, FIXED_QUANTUM_NS / 2, again, c);
}

static void room_for_the_next_peak_is_not_lent(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 800 * MIB), *t;

        a->allocated[0] = a->backed[0] = 100 * MIB; /* a is between two peaks */
        usage(b, a);
        t = waiter_of(b, 1, 400 * MIB);
        assert_int_equal(t->limit[0], 170 * MIB);
        assert_int_equal(a->limit[0], 800 * MIB);
        pass(b, FIXED_QUANTUM_NS); /* a's turn ends all the same */
        drained(b, a);
        assert_int_equal(a->limit[0], 570 * MIB); /* no memory has to move for this limit */
        usage(b, a);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        /* The next turn of a needs room for its peak, so that the two peaks never coincide. */
        want_run(b, a, 100 * MIB);
        assert_int_equal(a->lease, 0);
        pass(b, FIXED_QUANTUM_NS);
        assert_true(t->revoked);
}

/* a waits for room for its peak. Another client's unevictable bytes take that room for good: then a
 * has all that it can get, and runs at once. */
static void a_client_does_not_wait_for_bytes_it_can_never_have(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 800 * MIB), *t, *last;

        a->allocated[0] = a->backed[0] = 100 * MIB;
        usage(b, a);
        t = waiter_of(b, 1, 400 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        drained(b, a);
        usage(b, a);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        want_run(b, a, 100 * MIB);
        assert_int_equal(a->lease, 0);
        last = join(b, -1);
        request_unevictable_of(b, last, 400 * MIB);
        assert_int_equal(a->commit[0], 570 * MIB);
        assert_int_not_equal(a->lease, 0);
}

static void a_peak_is_forgotten_as_the_client_runs(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 9, 800 * MIB), *t;

        a->allocated[0] = a->backed[0] = 100 * MIB;
        usage(b, a);
        t = waiter_of(b, 1, 500 * MIB);
        assert_int_equal(t->lease, 0);
        restore(b, t);
        pass(b, 5 * NSEC_PER_SEC); /* the remembered peak is 600 MiB by now */
        assert_in_range(a->limit[0], 590 * MIB, 640 * MIB);
        usage(b, a);
        for (unsigned i = 0; i < 5; i++) {
                pass(b, NSEC_PER_SEC);
                usage(b, a);
                restore(b, t);
        }
        /* It is 400 MiB by now: the rest is enough for t. */
        assert_int_equal(a->limit[0], 470 * MIB);
        usage(b, a);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_false(a->revoked);
}

static void an_idle_client_keeps_no_room_for_peaks(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 800 * MIB), *t;

        a->allocated[0] = a->backed[0] = 100 * MIB;
        usage(b, a);
        idle(b, a, true);
        t = waiter_of(b, 1, 600 * MIB);
        usage(b, a);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_false(a->revoked);
}

/* The client was idle when asked to drain, and had work again before it had drained. */
static void a_drained_client_that_is_next_keeps_its_memory(void **state)
{
        BENCH;
        struct tenant *high = runner(b, 5, 900 * MIB), *t;

        idle(b, high, true);
        t = waiter_of(b, 1, 900 * MIB);
        pass(b, NSEC_PER_SEC);
        assert_true(high->revoked);
        idle(b, high, false);
        want_run(b, high, 900 * MIB); /* its threads wait to run already */
        drained(b, high);
        want_run(b, high, 900 * MIB);
        if (!high->lease)
                restore(b, high);
        assert_int_not_equal(high->lease, 0);
        assert_int_equal(t->lease, 0);
}

static void bursts_of_a_higher_priority_keep_their_memory_for_a_hand_offs_cost(void **state)
{
        BENCH;
        struct tenant *high = runner(b, 5, 900 * MIB), *t;
        /* The time to move 900 MiB out and in again at 20 GB/s. */
        uint64_t cost = 2 * 900 * MIB / 20000 * 1000;

        t = waiter_of(b, 1, 900 * MIB);
        for (unsigned i = 0; i < 20; i++) {
                idle(b, high, true);
                pass(b, cost - NSEC_PER_MSEC);
                idle(b, high, false);
                pass(b, 10 * NSEC_PER_MSEC);
        }
        assert_false(high->revoked);
        idle(b, high, true);
        pass(b, cost + NSEC_PER_MSEC);
        assert_true(high->revoked);
        assert_int_equal(t->lease, 0);
}

static void half_a_second_idle(struct sched_config *c)
{
        c->idle_release_ns = NSEC_PER_SEC / 2;
}

static void bursts_of_a_higher_priority_keep_their_memory_for_the_set_idle_time(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(half_a_second_idle);
        struct tenant *high = runner(b, 5, 900 * MIB);

        (void)waiter_of(b, 1, 900 * MIB); /* evicting and restoring costs 87 ms */
        idle(b, high, true);
        pass(b, NSEC_PER_SEC / 2 - NSEC_PER_MSEC);
        assert_false(high->revoked);
        pass(b, NSEC_PER_MSEC);
        assert_true(high->revoked);
}

/* Other clients have had turns beside this client: its request for more memory counts from now, not
 * from the start of its turn. */
static void growth_past_the_end_of_a_turn_does_not_overtake_waiters(void **state)
{
        BENCH;
        struct tenant *x = runner(b, 0, 300 * MIB), *p = waiter_of(b, 3000, 400 * MIB), *y;

        for (unsigned i = 0; i < 3; i++) {
                assert_int_not_equal(p->lease, 0);
                pass(b, FIXED_QUANTUM_NS);
                drained(b, p);
                want_run(b, p, 400 * MIB);
        }
        gone(b, p);
        y = waiter_of(b, 2000, 700 * MIB);
        assert_int_equal(y->limit[0], 670 * MIB);
        assert_true(x->revoked);
        drain_failed(b, x); /* x is left alone for a while */
        request_commit_of(b, x, 400 * MIB);
        x->allocated[0] = 400 * MIB;
        usage(b, x);
        want_run(b, x, 400 * MIB);
        assert_int_equal(x->limit[0], 300 * MIB);
        assert_int_equal(y->limit[0], 670 * MIB);
}

/* Its drains fail, and then it gives its lease back and asks again: that is a late answer. */
static void a_late_drain_gives_way(void **state)
{
        unsigned others = 0;
        BENCH;
        struct tenant *a = waiter_of(b, 1, WHOLE), *c = waiter_of(b, 2, WHOLE);

        for (unsigned i = 0; i < 1000; i++) {
                struct tenant *t[] = {a, c};

                pass(b, 100 * NSEC_PER_MSEC);
                if (a->revoked) {
                        drain_failed(b, a);
                        drained(b, a);
                }
                if (c->revoked)
                        drained(b, c);
                for (unsigned k = 0; k < 2; k++) {
                        if (!t[k]->lease)
                                want_run(b, t[k], WHOLE);
                        if (t[k]->backed[0] > t[k]->limit[0])
                                evict_to(b, t[k], t[k]->limit[0]);
                        else if (!t[k]->lease)
                                restore(b, t[k]);
                }
                others += c->lease != 0;
        }
        assert_in_range(others, 400, 600);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(growth_past_the_end_of_a_turn_does_not_overtake_waiters),
                cmocka_unit_test(many_processes_get_a_user_no_more_turns_than_one),
                cmocka_unit_test(many_processes_get_a_container_no_more_turns_than_one),
                cmocka_unit_test(many_containers_get_a_user_no_more_turns_than_one),
                cmocka_unit_test(a_container_counts_as_one_program_of_its_user),
                cmocka_unit_test(silent_clients_take_no_turns_from_another_user),
                cmocka_unit_test(processes_of_one_user_take_turns_in_the_order_in_which_they_asked),
                cmocka_unit_test(an_hour_alone_on_the_card_is_no_debt),
                cmocka_unit_test(a_long_kernel_is_paid_for_in_full),
                cmocka_unit_test(a_late_drain_gives_way),
                cmocka_unit_test(a_debt_outlives_the_last_process),
                cmocka_unit_test(a_short_burst_interrupts_a_long_turn),
                cmocka_unit_test(a_burst_is_not_interrupted_before_it_is_longer_than_the_others),
                cmocka_unit_test(unknown_bursts_interrupt_nobody),
                cmocka_unit_test(
                        clients_that_are_to_be_alone_take_turns_and_no_longer_when_they_are_not),
                cmocka_unit_test(a_card_is_exclusive_while_an_exclusive_class_wants_it),
                cmocka_unit_test(an_idle_client_gives_way_when_that_would_have_cost_least),
                cmocka_unit_test(memory_that_idles_on_the_card_is_paid_for),
                cmocka_unit_test(a_client_that_lacks_only_the_lease_pays_nothing),
                cmocka_unit_test(a_wait_for_growth_does_not_prolong_a_turn),
                cmocka_unit_test(a_client_that_claims_to_run_does_not_overtake_waiters),
                cmocka_unit_test(a_turn_does_not_begin_anew_with_a_connection),
                cmocka_unit_test(room_for_the_next_peak_is_not_lent),
                cmocka_unit_test(a_client_does_not_wait_for_bytes_it_can_never_have),
                cmocka_unit_test(a_peak_is_forgotten_as_the_client_runs),
                cmocka_unit_test(an_idle_client_keeps_no_room_for_peaks),
                cmocka_unit_test(a_drained_client_that_is_next_keeps_its_memory),
                cmocka_unit_test(
                        bursts_of_a_higher_priority_keep_their_memory_for_a_hand_offs_cost),
                cmocka_unit_test(
                        bursts_of_a_higher_priority_keep_their_memory_for_the_set_idle_time),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
