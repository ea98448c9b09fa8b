/* test_sched_turns.c: the scheduler's policy by example: which client runs, and which one gives
 * way, when and for which other client. test_sched.c tests charges and promises. */
#include "sched_bench.h"

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* Makes a client that holds so many bytes, none of them resident, and asks to run. */
static struct tenant *waiter(struct bench *b, int priority, uint64_t bytes)
{
        return comes_to_run(b, (struct sched_origin){.uid = 1000}, priority, bytes);
}

static void a_client_that_lacks_no_memory_runs_at_once(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);

        want_run(b, t, 0);
        assert_int_not_equal(t->lease, 0);
        assert_int_equal(state_of(b, t), SCHED_RUNNING);
}

static void clients_that_fit_run_together_undisturbed(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 480 * MIB), *c = runner(b, 0, 480 * MIB);

        pass(b, 3600 * NSEC_PER_SEC);
        assert_false(a->revoked || c->revoked || a->throttle || c->throttle);
        assert_int_not_equal(a->lease, c->lease);
}

static void the_longest_running_client_is_named_as_blocker(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB), *c = runner(b, 0, 300 * MIB), *t;
        struct sched_client_view v;

        pass(b, NSEC_PER_SEC / 4);
        drained(b, a);
        want_run(b, a, 300 * MIB);
        assert_int_not_equal(a->lease, 0);
        t = waiter(b, 0, 700 * MIB);
        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        assert_true(v.blocker == c->id);
        assert_int_equal(sched_client_view(b->s, a->id, b->now_ns, &v), 0);
        assert_true(v.blocker == 0);
}

static void a_hand_off_moves_only_the_missing_bytes_step_by_step(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 700 * MIB), *t = waiter(b, 0, 700 * MIB);
        struct sched_client_view v;

        assert_int_equal(t->limit[0], 270 * MIB); /* t gets the free bytes */
        assert_int_equal(state_of(b, t), SCHED_RESTORING);
        assert_true(a->throttle == SCHED_THROTTLE_SHORT && t->throttle == SCHED_THROTTLE_SHORT);
        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        assert_true(v.blocker == a->id);
        pass(b, FIXED_QUANTUM_NS - 1);
        assert_false(a->revoked);
        pass(b, 1);
        assert_true(a->revoked);
        assert_int_equal(state_of(b, a), SCHED_DRAINING);

        drained(b, a);
        assert_int_equal(a->limit[0], 270 * MIB);
        assert_int_equal(state_of(b, a), SCHED_EVICTING);
        assert_int_equal(t->limit[0], 270 * MIB);
        usage(b, a); /* an acknowledgement frees no byte */
        assert_int_equal(t->limit[0], 270 * MIB);
        want_run(b, a, 700 * MIB); /* a asks again at once, and queues */
        assert_int_equal(a->limit[0], 270 * MIB);

        a->backed[0] = 600 * MIB;
        usage(b, a);
        assert_int_equal(t->limit[0], 370 * MIB);
        restore(b, t);
        assert_int_equal(t->lease, 0);
        a->backed[0] = 270 * MIB;
        usage(b, a);
        assert_int_equal(t->limit[0], 700 * MIB);
        assert_int_equal(t->lease, 0); /* not before its memory is restored */
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_int_equal(state_of(b, a), SCHED_WAITING);
        assert_false(t->revoked);

        assert_int_equal(sched_client_view(b->s, a->id, b->now_ns, &v), 0);
        assert_int_equal(v.handoffs, 1);
        pass(b, FIXED_QUANTUM_NS);
        assert_true(t->revoked); /* turns alternate */
}

static void unused_bytes_of_a_limit_are_taken_before_a_client_is_disturbed(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 400 * MIB), *t;

        request_commit_of(b, a, 900 * MIB);
        assert_int_equal(a->limit[0], 900 * MIB);
        t = waiter(b, 0, 500 * MIB);
        assert_int_equal(t->limit[0], 70 * MIB);
        assert_int_equal(a->limit[0], 470 * MIB); /* a gives only the missing bytes */
        assert_false(a->revoked);
        usage(b, a);
        assert_int_equal(t->limit[0], 500 * MIB);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void bytes_backed_before_a_lower_limit_arrives_stay(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 400 * MIB);

        request_commit_of(b, a, 900 * MIB);
        (void)waiter(b, 0, 500 * MIB);
        assert_int_equal(a->limit[0], 470 * MIB);
        a->allocated[0] = a->backed[0] = 600 * MIB; /* before the lower limit has reached a */
        usage(b, a);
        assert_int_equal(a->limit[0], 600 * MIB);
        assert_false(a->revoked);
}

static void idle_clients_give_way_the_longest_idle_first(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB), *c = runner(b, 0, 300 * MIB),
                      *d = runner(b, 0, 300 * MIB), *t;

        pass(b, NSEC_PER_SEC / 4);
        idle(b, c, true);
        pass(b, NSEC_PER_SEC / 4);
        idle(b, a, true);
        pass(b, NSEC_PER_SEC / 4);
        t = waiter(b, 0, 300 * MIB); /* 70 MiB are free: one client has to give way */
        assert_true(c->revoked);
        assert_false(a->revoked || d->revoked);
        drained(b, c);
        assert_int_equal(c->limit[0], 70 * MIB); /* it gives no more than is missing */
        evict_to(b, c, 70 * MIB);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_false(d->revoked);
}

static void several_clients_give_way_at_once(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB), *c = runner(b, 0, 300 * MIB),
                      *d = runner(b, 0, 300 * MIB), *t;

        idle(b, c, true);
        idle(b, a, true);
        pass(b, NSEC_PER_SEC / 4);
        t = waiter(b, 0, 500 * MIB); /* 70 MiB are free */
        assert_true(a->revoked && c->revoked);
        assert_false(d->revoked);
        drained(b, c);
        drained(b, a);
        assert_int_equal(a->limit[0] + c->limit[0], 170 * MIB);
        evict_to(b, a, a->limit[0]);
        evict_to(b, c, c->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

/* Otherwise its memory would lie on the host while the bytes wait for the others. */
static void nobody_gives_way_before_all_together_make_enough_room(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB), *c;

        pass(b, FIXED_QUANTUM_NS / 2);
        c = runner(b, 0, 600 * MIB);
        (void)waiter(b, 0, 900 * MIB);
        pass(b, FIXED_QUANTUM_NS / 2);
        assert_false(a->revoked);
        pass(b, FIXED_QUANTUM_NS / 2);
        assert_true(a->revoked && c->revoked);
}

static void an_idle_client_stays_as_long_as_its_hand_off_would_cost(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t;
        /* The time to move all of a's memory at 20 GB/s: half of out and in again, because no gap
         * of a is known; and all of it, because t is new. */
        uint64_t cost = 900 * MIB / 20000 * 1000;

        idle(b, a, true);
        t = waiter(b, 0, 900 * MIB);
        assert_int_equal(t->limit[0], 70 * MIB);
        assert_false(a->revoked);
        pass(b, cost - NSEC_PER_MSEC);
        assert_false(a->revoked);
        idle(b, a, false); /* a is active again: its idle time starts anew */
        idle(b, a, true);
        pass(b, cost - NSEC_PER_MSEC);
        assert_false(a->revoked);
        pass(b, 2 * NSEC_PER_MSEC);
        assert_true(a->revoked);
}

#define MOVE_NS (900 * MIB / 20000 * 1000) /* the time of 900 MiB at 20 GB/s */

/* `from` has the card and waits for `to`, which is away. Returns how long `from` was idle before it
 * was asked. The hand-off takes as long as the bus needs, and then `to` computes for a moment. */
static uint64_t hand_over(struct bench *b, struct tenant *from, struct tenant *to)
{
        uint64_t ns;

        pass(b, 5 * NSEC_PER_MSEC);
        idle(b, from, true);
        want_run(b, to, 900 * MIB); /* what it has waited for has come */
        for (ns = 0; !from->revoked && ns < NSEC_PER_SEC; ns += NSEC_PER_MSEC)
                pass(b, NSEC_PER_MSEC);
        from->waits = true;
        drained(b, from);
        evict_to(b, from, from->limit[0]);
        pass(b, MOVE_NS);
        to->waits = false;
        restore(b, to);
        assert_int_not_equal(to->lease, 0);
        return ns;
}

/* Two ranks that do not fit together. Each is idle until the other one has had a turn, so the time
 * for which it is kept on the card only makes its gap longer. */
static void clients_that_wait_for_a_client_that_is_away_soon_give_way_at_once(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = asks_to_run(b, 900 * MIB);
        uint64_t ns;

        for (unsigned i = 0; i < 20; i++) {
                ns = hand_over(b, a, t);
                assert_in_range(ns, 0, i < 3 ? 2 * MOVE_NS : 2 * NSEC_PER_MSEC);
                ns = hand_over(b, t, a);
                assert_in_range(ns, 0, i < 3 ? 2 * MOVE_NS : 2 * NSEC_PER_MSEC);
        }
}

/* Ranks beside each other wait for one another, too, but not for long. */
static void a_client_with_short_gaps_keeps_its_memory_in_them(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB);

        for (unsigned i = 0; i < 10; i++) {
                pass(b, 5 * NSEC_PER_MSEC);
                idle(b, a, true);
                pass(b, 20 * NSEC_PER_MSEC);
                idle(b, a, false);
        }
        (void)waiter(b, 0, 900 * MIB);
        idle(b, a, true);
        pass(b, 50 * NSEC_PER_MSEC);
        assert_false(a->revoked);
}

static void grow_to(struct bench *b, struct tenant *t, uint64_t bytes)
{
        request_commit_of(b, t, bytes);
        t->allocated[0] = bytes;
        usage(b, t);
        want_run(b, t, bytes);
}

/* By its first piece a growing client takes the other one's turn. */
static void growth_in_pieces_costs_as_much_as_all_at_once(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 800 * MIB), *t = runner(b, 0, 150 * MIB);
        uint64_t cost = 800 * MIB / 20000 * 1000;

        idle(b, a, true);
        grow_to(b, t, 180 * MIB);
        pass(b, cost - NSEC_PER_MSEC);
        assert_false(a->revoked);
        pass(b, 2 * NSEC_PER_MSEC);
        assert_true(a->revoked);
}

static void unevictable_idle_time(struct sched_config *c)
{
        c->idle_release_ns = 300 * NSEC_PER_MSEC;
}

static void a_set_idle_time_replaces_the_measured_one(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(unevictable_idle_time);
        struct tenant *a = runner(b, 0, 900 * MIB);

        idle(b, a, true);
        (void)waiter(b, 0, 900 * MIB);
        pass(b, 299 * NSEC_PER_MSEC);
        assert_false(a->revoked);
        pass(b, NSEC_PER_MSEC);
        assert_true(a->revoked);
}

static void waiting_clients_give_way_before_lease_holders(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = waiter(b, 0, 900 * MIB),
                      *u = waiter(b, 0, 900 * MIB);

        (void)u;
        assert_int_equal(t->limit[0], 370 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        drained(b, a);
        want_run(b, a, 600 * MIB);
        evict_to(b, a, 70 * MIB);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        /* u is the head now; a waits behind it with 70 MiB */
        assert_int_equal(a->limit[0], 70 * MIB);
        assert_false(t->revoked);
        pass(b, FIXED_QUANTUM_NS);
        assert_int_equal(a->limit[0], 0);
        assert_true(t->revoked);
}

static void free_bytes_are_kept_for_the_head_of_the_queue(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = waiter(b, 0, 900 * MIB),
                      *u = waiter(b, 0, 100 * MIB);

        (void)a;
        assert_int_equal(t->limit[0], 370 * MIB);
        assert_int_equal(u->limit[0], 0); /* although u's request is small */
}

static void bytes_useless_to_the_head_go_to_clients_behind_it(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t, *u;

        lost(b, a); /* a's bytes count as unevictable now: 900 MiB can never be free */
        t = waiter(b, 0, 900 * MIB);
        u = waiter(b, 0, 300 * MIB);
        assert_int_equal(t->limit[0], 0);
        assert_int_not_equal(u->lease, 0);
}

static void the_largest_overrun_gives_way_first(void **state)
{
        BENCH;
        struct tenant *a, *c;

        a = runner(b, 0, 400 * MIB);
        pass(b, NSEC_PER_SEC / 10);
        c = runner(b, 0, 400 * MIB);
        pass(b, 5 * NSEC_PER_SEC);
        (void)waiter(b, 0, 500 * MIB);
        assert_true(a->revoked);
        assert_false(c->revoked);
}

static void the_later_of_two_growing_clients_gives_way(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 480 * MIB), *c = runner(b, 0, 480 * MIB);

        request_commit_of(b, a, 600 * MIB);
        request_commit_of(b, c, 600 * MIB);
        a->allocated[0] = c->allocated[0] = 600 * MIB;
        usage(b, a);
        usage(b, c);
        want_run(b, a, 600 * MIB);
        assert_false(a->revoked || c->revoked);
        want_run(b, c, 600 * MIB);
        assert_true(c->revoked);
        assert_false(a->revoked);
        drained(b, c);
        evict_to(b, c, c->limit[0]);
        assert_int_equal(a->limit[0], 600 * MIB);
        assert_int_not_equal(a->lease, 0);
}

static void growth_within_the_quantum_precedes_waiting_clients(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = waiter(b, 0, 900 * MIB);

        assert_int_equal(t->backed[0], 370 * MIB);
        request_commit_of(b, a, 700 * MIB);
        a->allocated[0] = 700 * MIB;
        usage(b, a);
        want_run(b, a, 700 * MIB);
        assert_false(a->revoked);
        assert_int_equal(t->limit[0], 270 * MIB);
        evict_to(b, t, 270 * MIB);
        assert_int_equal(a->limit[0], 700 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        assert_true(a->revoked); /* a's turn ends all the same */
}

static void clients_make_room_for_more_growth_of_the_same_size(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = runner(b, 0, 300 * MIB);

        idle(b, a, true);
        pass(b, NSEC_PER_SEC / 4);
        grow_to(b, t, 400 * MIB);
        assert_true(a->revoked);
        drained(b, a);
        assert_int_equal(a->limit[0], 570 * MIB);
        evict_to(b, a, 570 * MIB);
        restore(b, t);
        grow_to(b, t, 410 * MIB);
        assert_int_equal(a->limit[0], 540 * MIB);
        evict_to(b, a, 540 * MIB);
        restore(b, t);
        grow_to(b, t, 430 * MIB); /* there is room for it already */
        assert_int_equal(t->limit[0], 430 * MIB);
        restore(b, t);
        want_run(b, a, 600 * MIB);
        grow_to(b, t, 440 * MIB);
        assert_int_equal(a->limit[0], 480 * MIB);
        evict_to(b, a, 480 * MIB);
        assert_int_equal(a->limit[0], 480 * MIB); /* the rest is not for a, though a waits */
        restore(b, t);
        grow_to(b, t, 490 * MIB);
        assert_int_equal(t->limit[0], 490 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        drained(b, t);
        assert_int_equal(a->limit[0], 480 * MIB);
        evict_to(b, t, t->limit[0]);
        assert_int_equal(a->limit[0], 600 * MIB);
        restore(b, a);
        want_run(b, t, 490 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_equal(a->limit[0], 480 * MIB);
        pass(b, NSEC_PER_SEC / 4);
        grow_to(b, t, 500 * MIB); /* in another turn */
        assert_int_equal(a->limit[0], 470 * MIB);
}

static void an_exact_piece_of_growth_is_taken_from_several_clients(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB), *c = runner(b, 0, 300 * MIB),
                      *t = runner(b, 0, 300 * MIB);

        idle(b, a, true);
        idle(b, c, true);
        pass(b, NSEC_PER_SEC);
        grow_to(b, t, 770 * MIB);
        drained(b, a);
        drained(b, c);
        assert_int_equal(a->limit[0] + c->limit[0], 200 * MIB);
}

static uint64_t gib_ns(struct bench *b)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        return v.gib_ns;
}

static void the_rate_is_measured_by_moves_that_pin_no_host_memory(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB);

        pass(b, FIXED_QUANTUM_NS);
        drained(b, a);
        pass(b, NSEC_PER_SEC / 2);
        a->moved_out = a->arena = 830 * MIB;
        evict_to(b, a, a->limit[0]);
        assert_int_equal(gib_ns(b), GIB / 20);
        restore(b, t);
        want_run(b, a, 900 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        drained(b, t);
        pass(b, NSEC_PER_SEC / 2);
        t->moved_out = 830 * MIB;
        evict_to(b, t, t->limit[0]);
        assert_in_range(gib_ns(b), GIB / 830 * (NSEC_PER_SEC / 2) / MIB - 1000,
                        GIB / 830 * (NSEC_PER_SEC / 2) / MIB + 1000000);
}

static void a_drain_that_fails_is_tried_again_later_with_more_patience(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 400 * MIB), *c = runner(b, 0, 400 * MIB), *t;
        uint64_t first;

        pass(b, NSEC_PER_SEC);
        t = waiter(b, 0, 400 * MIB);
        assert_true(a->revoked);
        first = a->patience_ns;
        drain_failed(b, a);
        assert_int_equal(state_of(b, a), SCHED_RUNNING);
        assert_true(c->revoked); /* c has to give way instead */
        drain_failed(b, c);
        assert_false(a->revoked);
        assert_int_equal(sched_next_ns(b->s), b->now_ns + 2 * first);
        pass(b, 2 * first);
        assert_true(a->revoked);
        assert_int_equal(a->patience_ns, 2 * first);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void a_client_that_never_drains_is_left_alone_for_a_while(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB);

        (void)waiter(b, 0, 400 * MIB);
        for (unsigned i = 0; i < 3; i++) {
                for (unsigned seconds = 0; !a->revoked && seconds < 60; seconds++)
                        pass(b, NSEC_PER_SEC);
                assert_true(a->revoked);
                drain_failed(b, a);
        }
        assert_true(flags_of(b, a) & SCHED_UNPREEMPTIBLE);
        pass(b, 9 * NSEC_PER_SEC);
        assert_false(a->revoked);
        pass(b, NSEC_PER_SEC);
        assert_false(flags_of(b, a) & SCHED_UNPREEMPTIBLE);
        pass(b, 6 * NSEC_PER_SEC); /* 8 times the first patience since the last try */
        assert_true(a->revoked);
        assert_true(flags_of(b, a) & SCHED_OVERDUE);
        drained(b, a);
        usage(b, a);
        assert_false(flags_of(b, a) & SCHED_OVERDUE);
}

static void a_client_that_never_drains_is_named(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB);
        uint64_t start;

        (void)waiter(b, 0, 400 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        start = b->now_ns;
        for (unsigned i = 0; i < 80 && !a->overdue; i++) {
                if (a->revoked)
                        drain_failed(b, a);
                pass(b, NSEC_PER_SEC / 10);
        }
        assert_true(a->overdue); /* the daemon says so, and may kill it */
        assert_in_range(b->now_ns - start, 7 * NSEC_PER_SEC, 8 * NSEC_PER_SEC);
}

/* Otherwise it would be overdue, and perhaps killed, before it could obey. */
static void a_drain_that_failed_long_ago_changes_nothing(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB);

        pass(b, FIXED_QUANTUM_NS);
        assert_true(a->revoked);
        drain_failed(b, a);
        gone(b, t);
        pass(b, 60 * NSEC_PER_SEC);
        a->revoked = false;
        (void)waiter(b, 0, 900 * MIB);
        assert_true(a->revoked);
        pass(b, 7 * NSEC_PER_SEC - 1); /* patience, not doubled any more, and grace */
        assert_false(a->overdue);
        pass(b, 1);
        assert_true(a->overdue);
}

static void requests_without_work_keep_no_memory(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t;

        drained(b, a);
        t = waiter(b, 0, 900 * MIB);
        for (unsigned i = 0; i < 100; i++) {
                want(b, a, &(struct sched_request){.need = 900 * MIB});
                pass(b, 5 * NSEC_PER_MSEC);
        }
        assert_int_equal(a->limit[0], 70 * MIB);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

/* The host has no room for the client's memory, and the client reports this. */
static void a_client_that_cannot_evict_may_go_on(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 700 * MIB), *t;

        pass(b, NSEC_PER_SEC);
        t = waiter(b, 0, 700 * MIB);
        assert_true(a->revoked);
        drained(b, a);
        a->stays = true;
        usage(b, a);
        want_run(b, a, 700 * MIB);
        assert_int_equal(a->lease, 0);
        pass(b, 5 * NSEC_PER_SEC);
        assert_true(a->overdue);
        assert_int_equal(a->limit[0], 700 * MIB);
        usage(b, a);
        assert_int_not_equal(a->lease, 0);
        assert_int_equal(t->lease, 0);
        assert_false(flags_of(b, a) & SCHED_OVERDUE);
}

static void skipped_time_does_not_use_up_the_grace_period(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 700 * MIB);

        pass(b, NSEC_PER_SEC);
        (void)waiter(b, 0, 700 * MIB);
        assert_true(a->revoked);
        sched_skip(b->s, NSEC_PER_SEC * 60, b->now_ns + NSEC_PER_SEC * 60);
        tick_at(b, b->now_ns + NSEC_PER_SEC * 60);
        pass(b, 6 * NSEC_PER_SEC); /* patience and grace are 7 s */
        assert_false(a->overdue);
        pass(b, 2 * NSEC_PER_SEC);
        assert_true(a->overdue);
}

static void a_client_that_cannot_evict_all_memory_gets_the_rest_back(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 700 * MIB), *t;

        pass(b, NSEC_PER_SEC);
        t = waiter(b, 0, 700 * MIB);
        drained(b, a);
        a->stays = true;
        evict_to(b, a, 500 * MIB);
        want_run(b, a, 700 * MIB);
        restore(b, t);
        assert_int_equal(t->backed[0], 470 * MIB);
        pass(b, 5 * NSEC_PER_SEC);
        assert_true(a->overdue);
        assert_int_equal(a->limit[0], 500 * MIB);
        usage(b, a);
        assert_false(flags_of(b, a) & SCHED_OVERDUE);
        assert_int_equal(t->limit[0], 270 * MIB);
        evict_to(b, t, 270 * MIB);
        restore(b, a);
        assert_int_equal(a->backed[0], 700 * MIB);
        assert_int_not_equal(a->lease, 0);
}

static void bytes_below_an_unacknowledged_limit_are_still_owed(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 700 * MIB), *t;
        uint32_t before;

        pass(b, NSEC_PER_SEC);
        t = waiter(b, 0, 700 * MIB);
        before = a->sequence[0];
        drained(b, a);
        a->stays = true;
        usage_as_of(b, a, 0, before); /* sent before a received the lower limit */
        want_run(b, a, 700 * MIB);
        pass(b, 5 * NSEC_PER_SEC);
        assert_true(a->overdue);
        assert_int_equal(a->limit[0], 270 * MIB);
        usage(b, a);
        pass(b, 5 * NSEC_PER_SEC);
        assert_int_equal(a->limit[0], 700 * MIB);
        assert_int_equal(t->lease, 0);
}

/* If slow clients got their bytes back each time, others would never get them. */
static void a_slow_client_becomes_overdue_and_gives_its_bytes(void **state)
{
        BENCH;
        struct tenant *slow = runner(b, 0, 700 * MIB), *large, *little;

        pass(b, NSEC_PER_SEC);
        large = waiter(b, 0, 700 * MIB);
        little = waiter(b, 0, 100 * MIB);
        drained(b, slow);
        usage(b, slow);
        want_run(b, slow, 700 * MIB);
        pass(b, 5 * NSEC_PER_SEC);
        assert_true(slow->overdue);
        assert_int_equal(slow->limit[0], 270 * MIB);
        assert_int_equal(large->limit[0], 170 * MIB); /* other clients give way in the meantime */
        evict_to(b, large, 170 * MIB);
        restore(b, little);
        assert_int_not_equal(little->lease, 0);
        evict_to(b, slow, 270 * MIB);
        assert_false(flags_of(b, slow) & SCHED_OVERDUE);
        restore(b, large);
        assert_int_equal(slow->limit[0], 170 * MIB);
        evict_to(b, slow, 170 * MIB);
        restore(b, large);
        assert_int_not_equal(large->lease, 0);
}

static void a_silent_client_is_overdue_and_the_next_client_gives_way(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 400 * MIB), *c = runner(b, 0, 400 * MIB), *t;

        pass(b, NSEC_PER_SEC);
        t = waiter(b, 0, 400 * MIB);
        assert_true(a->revoked);
        pass(b, 6 * NSEC_PER_SEC);
        assert_false(a->overdue);
        pass(b, NSEC_PER_SEC); /* 2 s patience, 5 s grace */
        assert_true(a->overdue);
        assert_true(flags_of(b, a) & SCHED_OVERDUE);
        assert_true(c->revoked);
        a->overdue = false;
        pass(b, NSEC_PER_SEC);
        assert_false(a->overdue); /* OVERDUE is sent once */
        drained(b, c);
        evict_to(b, c, c->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);

        drained(b, a); /* the overdue client drains after all */
        assert_false(flags_of(b, a) & SCHED_OVERDUE);
        want_run(b, a, 400 * MIB);
        assert_int_not_equal(a->lease, 0);
}

static uint64_t run_time(struct bench *b, const struct tenant *t)
{
        struct sched_client_view v;

        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        return v.run_ns;
}

/* The client is stopped, or runs a kernel that does not end: the daemon cannot see which. */
static void an_overdue_client_earns_no_gpu_time_until_it_answers(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB);
        uint64_t until_overdue;

        (void)waiter(b, 0, 600 * MIB);
        pass(b, FIXED_QUANTUM_NS);
        assert_true(a->revoked);
        while (!(flags_of(b, a) & SCHED_OVERDUE))
                pass(b, NSEC_PER_SEC / 10);
        until_overdue = run_time(b, a);
        assert_true(until_overdue >= FIXED_QUANTUM_NS);
        pass(b, 3600 * NSEC_PER_SEC);
        assert_int_equal(run_time(b, a) / NSEC_PER_SEC, until_overdue / NSEC_PER_SEC);
        drained(b, a);
        assert_false(flags_of(b, a) & SCHED_OVERDUE);
}

static void an_eviction_without_progress_is_overdue(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB);

        (void)t;
        pass(b, NSEC_PER_SEC);
        drained(b, a);
        usage(b, a);
        pass(b, 4 * NSEC_PER_SEC);
        a->backed[0] -= 200 * MIB; /* buys 105 ms, at a tenth of 20 GB/s */
        usage(b, a);
        pass(b, 1100 * NSEC_PER_MSEC);
        assert_false(a->overdue);
        pass(b, 10 * NSEC_PER_MSEC);
        assert_true(a->overdue);
        a->backed[0] -= 200 * MIB;
        usage(b, a);
        assert_false(flags_of(b, a) & SCHED_OVERDUE);
}

/* A client may not keep its memory by moving very little of it. */
static void a_byte_now_and_then_is_no_progress(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 500 * MIB), *c = runner(b, 0, 400 * MIB),
                      *t = waiter(b, 0, 400 * MIB);

        pass(b, NSEC_PER_SEC);
        assert_true(a->revoked);
        drained(b, a);
        usage(b, a);
        for (unsigned i = 0; i < 8; i++) {
                pass(b, 3 * NSEC_PER_SEC / 4);
                a->backed[0]--;
                usage(b, a);
        }
        assert_true(flags_of(b, a) & SCHED_OVERDUE);
        assert_true(c->revoked); /* it gives way instead */
        drained(b, c);
        evict_to(b, c, c->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void moving_bytes_to_and_fro_is_no_progress(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB);

        (void)waiter(b, 0, 900 * MIB);
        pass(b, NSEC_PER_SEC);
        drained(b, a);
        usage(b, a);
        for (unsigned i = 0; i < 60; i++) {
                a->backed[0] += (i % 2 ? 1 : -1) * 100 * (int64_t)MIB;
                usage(b, a);
                pass(b, NSEC_PER_SEC / 10);
        }
        assert_true(flags_of(b, a) & SCHED_OVERDUE);
}

static void a_client_that_moves_one_gpu_after_another_is_not_overdue(void **state)
{
        BENCH;
        struct tenant *t = &b->t[b->tenants++];

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 1, &(struct sched_attach){.usage = {.allocated = 500 * MIB}});
        usage_as_of(b, t, 1, t->sequence[1]);
        attach(b, t, 0, &(struct sched_attach){.usage = {.allocated = 500 * MIB}, .run = true});
        assert_int_equal(t->limit[1], 500 * MIB);
        usage_as_of(b, t, 1, t->sequence[1]);
        pass(b, 4990 * NSEC_PER_MSEC);
        t->backed[0] += 400 * MIB; /* buys 210 ms for the other GPU, too */
        usage(b, t);
        pass(b, 200 * NSEC_PER_MSEC);
        assert_false(t->overdue);
        pass(b, 50 * NSEC_PER_MSEC);
        assert_true(t->overdue);
}

static void a_client_that_does_not_restore_holds_up_nobody(void **state)
{
        BENCH;
        struct tenant *t = &b->t[b->tenants++], *u;

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.usage = {.allocated = 400 * MIB}, .run = true});
        assert_int_equal(t->limit[0], 0);
        usage(b, t);
        assert_int_equal(t->limit[0], 400 * MIB); /* t's process is stopped here */
        u = waiter(b, 0, 900 * MIB);
        pass(b, 5 * NSEC_PER_SEC);
        assert_true(t->overdue);
        gone(b, t);
        restore(b, u);
        assert_int_not_equal(u->lease, 0);
}

static void a_rising_limit_does_not_excuse_a_client_that_restores_nothing(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t;

        pass(b, NSEC_PER_SEC);
        t = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.usage = {.allocated = 900 * MIB}, .run = true});
        usage(b, t); /* t's process is stopped after this */
        assert_int_equal(t->limit[0], 70 * MIB);
        drained(b, a);
        usage(b, a);
        for (unsigned i = 0; i < 2; i++) {
                pass(b, 2 * NSEC_PER_SEC);
                a->backed[0] -= 100 * MIB;
                usage(b, a);
        }
        assert_int_equal(t->limit[0], 270 * MIB);
        pass(b, NSEC_PER_SEC);
        assert_true(t->overdue);
        a->backed[0] -= 100 * MIB;
        usage(b, a);
        assert_int_equal(t->limit[0], 0); /* it can restore nothing any more */
}

/* t gets the room that is free beside a again and again, and fills nothing of it. */
static void free_room_does_not_prolong_the_penalty_of_a_slow_restore(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = &b->t[b->tenants++];

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.usage = {.allocated = 600 * MIB}, .run = true});
        usage(b, t);
        for (unsigned chance = 0; chance < 3; chance++) {
                for (unsigned i = 0; !a->revoked; i++) {
                        assert_in_range(i, 0, 32);
                        pass(b, NSEC_PER_SEC);
                        usage(b, t); /* acknowledges its limit */
                }
                drained(b, a);
                want_run(b, a, 600 * MIB);
                a->backed[0] = a->limit[0];
                usage(b, a);
                assert_int_equal(t->limit[0], 600 * MIB);
                for (unsigned i = 0; !a->lease; i++) {
                        assert_in_range(i, 0, 6);
                        pass(b, NSEC_PER_SEC);
                        usage(b, t);
                        restore(b, a);
                }
                assert_int_equal(t->limit[0], 370 * MIB);
                a->revoked = false;
        }
        assert_int_equal(t->lease, 0);
}

/* An extent has at least 2 MiB. */
static void a_rest_smaller_than_an_extent_makes_no_client_overdue(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_of(16 * MIB, NULL);
        struct tenant *t;

        (void)runner(b, 5, 8 * MIB);
        t = waiter(b, 0, 12 * MIB);
        assert_in_range(t->limit[0], 7 * MIB, 8 * MIB - 1);
        t->backed[0] = 6 * MIB;
        usage(b, t);
        pass(b, 10 * NSEC_PER_SEC);
        assert_false(t->overdue);
}

static void bytes_are_not_kept_for_a_silent_client(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 5, 700 * MIB), *t, *u;

        t = waiter(b, 0, 700 * MIB);
        assert_int_equal(t->backed[0], 270 * MIB);
        t->backed[0] = 200 * MIB; /* as if its restore had stopped halfway */
        usage(b, t);
        u = waiter(b, 0, 600 * MIB);
        pass(b, 6 * NSEC_PER_SEC);
        assert_true(t->overdue);
        gone(b, a);
        assert_int_equal(t->limit[0], 200 * MIB);
        assert_int_equal(u->limit[0], 600 * MIB);
}

static void an_old_usage_above_a_lower_limit_gives_no_lease(void **state)
{
        BENCH;
        struct tenant *a = join(b, 0), *t;
        uint32_t old;

        request_commit_of(b, a, 900 * MIB);
        old = a->sequence[0];
        t = waiter(b, 0, 500 * MIB);
        /* a has not received this limit yet, and will evict down to it. */
        assert_int_equal(a->limit[0], 470 * MIB);
        gone(b, t);
        a->allocated[0] = 600 * MIB;
        want_run(b, a, 600 * MIB);
        assert_int_equal(a->limit[0], 600 * MIB);
        a->backed[0] = 600 * MIB;
        usage_as_of(b, a, 0, old);
        assert_int_equal(a->lease, 0);
        a->backed[0] = 500 * MIB; /* a has evicted, and restores now */
        usage(b, a);
        assert_int_equal(a->lease, 0);
        restore(b, a);
        assert_int_not_equal(a->lease, 0);
}

static void freeing_while_waiting_lowers_the_need(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = waiter(b, 0, 900 * MIB);

        (void)a;
        assert_int_equal(t->lease, 0);
        t->allocated[0] = 370 * MIB;
        usage(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void a_higher_commit_does_not_restore_an_idle_client(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = runner(b, 0, 300 * MIB);

        idle(b, a, true);
        pass(b, NSEC_PER_SEC);
        request_commit_of(b, t, 600 * MIB);
        t->allocated[0] = 600 * MIB;
        usage(b, t);
        want_run(b, t, 600 * MIB);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        pass(b, 3 * NSEC_PER_SEC); /* nobody contests the card any more */
        gone(b, t);
        request_commit_of(b, a, 700 * MIB);
        assert_int_equal(a->commit[0], 700 * MIB);
        assert_int_equal(a->limit[0], 370 * MIB);
}

static void a_client_that_drained_in_vain_keeps_its_memory(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB);

        pass(b, NSEC_PER_SEC);
        assert_true(a->revoked);
        gone(b, t);
        drained(b, a);
        assert_int_equal(a->limit[0], 900 * MIB);
        (void)waiter(b, 0, 900 * MIB);
        assert_int_equal(a->limit[0], 900 * MIB); /* a keeps it as long as a hand-off would cost */
        assert_true(sched_next_ns(b->s) <= b->now_ns + NSEC_PER_SEC / 10);
        tick_at(b, sched_next_ns(b->s));
        assert_int_equal(a->limit[0], 70 * MIB);
}

static void a_client_that_lost_its_turn_queues_behind_waiters(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *c = runner(b, 9, 360 * MIB), *t, *high;

        request_commit_of(b, a, 700 * MIB);
        a->allocated[0] = 700 * MIB;
        usage(b, a);
        want_run(b, a, 700 * MIB); /* a grows, and asks before t does */
        t = waiter(b, 0, 300 * MIB);
        high = waiter(b, 5, 500 * MIB);
        assert_true(a->revoked);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, high);
        assert_int_not_equal(high->lease, 0);
        gone(b, high);
        assert_int_equal(t->limit[0], 300 * MIB);
        assert_false(c->revoked);
}

static void the_higher_priority_is_served_at_once(void **state)
{
        BENCH;
        struct tenant *low = runner(b, 0, 900 * MIB), *first = waiter(b, 0, 900 * MIB), *high;

        high = waiter(b, 5, 500 * MIB);
        /* The client `first` has waited longer than `high`, but gives its bytes back. */
        assert_int_equal(first->limit[0], 0);
        evict_to(b, first, 0);
        assert_true(low->revoked); /* even within its quantum */
        drained(b, low);
        evict_to(b, low, low->limit[0]);
        restore(b, high);
        assert_int_not_equal(high->lease, 0);
        assert_int_equal(first->lease, 0);
}

static void a_priority_that_is_raised_counts_at_once(void **state)
{
        BENCH;
        struct tenant *low = runner(b, 0, 900 * MIB), *other = waiter(b, 0, 900 * MIB);
        struct sched_actions out = {0};

        assert_false(low->revoked);
        assert_int_equal(sched_client_priority(b->s, other->id, 5, b->now_ns, &out), 0);
        assert_int_equal(out.n, 1);
        assert_int_equal(out.list[0].type, SCHED_DO_REVOKE); /* even within its quantum */
        assert_true(out.list[0].client == low->id);
        assert_int_equal(sched_client_priority(b->s, other->id + 1000, 5, b->now_ns, &out),
                         -ESTALE);
}

static void a_lower_priority_never_ends_a_higher_ones_turn(void **state)
{
        BENCH;
        struct tenant *high = runner(b, 5, 900 * MIB);

        (void)waiter(b, 0, 900 * MIB);
        pass(b, 10 * FIXED_QUANTUM_NS);
        assert_false(high->revoked);
        idle(b, high, true);
        assert_false(high->revoked);
        pass(b, NSEC_PER_SEC);
        assert_true(high->revoked);
}

static void a_lower_priority_gets_one_turn_in_twenty(void **state)
{
        BENCH;
        struct tenant *high = runner(b, 5, 900 * MIB), *low = waiter(b, 0, 900 * MIB);
        const uint64_t start = b->now_ns;
        uint64_t until;

        while (!high->revoked && b->now_ns < start + 100 * NSEC_PER_SEC)
                pass(b, NSEC_PER_SEC / 10);
        assert_in_range(b->now_ns - start, 15 * NSEC_PER_SEC, 30 * NSEC_PER_SEC);
        drained(b, high);
        want_run(b, high, 900 * MIB);
        evict_to(b, high, high->limit[0]);
        restore(b, low);
        assert_int_not_equal(low->lease, 0);
        until = b->now_ns + FIXED_QUANTUM_NS;
        pass(b, FIXED_QUANTUM_NS - NSEC_PER_MSEC);
        assert_false(low->revoked);
        pass(b, NSEC_PER_MSEC);
        assert_true(low->revoked);
        assert_int_equal(b->now_ns, until);
}

static void a_contested_card_is_reported_until_2_seconds_after_the_contest(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 400 * MIB);

        assert_int_equal(a->throttle, SCHED_THROTTLE_SHORT);
        idle(b, a, true);
        pass(b, NSEC_PER_SEC);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_true(a->throttle == SCHED_THROTTLE_SHORT && t->throttle == SCHED_THROTTLE_SHORT);
        gone(b, a);
        pass(b, 1900 * NSEC_PER_MSEC);
        assert_int_equal(t->throttle, SCHED_THROTTLE_SHORT);
        pass(b, 200 * NSEC_PER_MSEC);
        assert_int_equal(t->throttle, SCHED_THROTTLE_NONE);
        pass(b, 600 * NSEC_PER_SEC);
        assert_int_equal(t->throttle, SCHED_THROTTLE_NONE);
}

static void work_is_throttled_if_not_all_memory_fits_though_nobody_waits(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 400 * MIB);

        idle(b, a, true);
        pass(b, NSEC_PER_SEC);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        pass(b, 600 * NSEC_PER_SEC); /* a is idle, but may ask at any moment */
        assert_true(a->throttle == SCHED_THROTTLE_AHEAD && t->throttle == SCHED_THROTTLE_AHEAD);
        a->allocated[0] = a->backed[0] = 400 * MIB;
        usage(b, a);
        pass(b, 1900 * NSEC_PER_MSEC);
        assert_true(a->throttle == SCHED_THROTTLE_AHEAD && t->throttle == SCHED_THROTTLE_AHEAD);
        pass(b, 200 * NSEC_PER_MSEC);
        assert_true(a->throttle == SCHED_THROTTLE_NONE && t->throttle == SCHED_THROTTLE_NONE);
}

static void work_beside_a_higher_priority_is_throttled_before_it_asks(void **state)
{
        BENCH;
        struct tenant *low = runner(b, 0, 400 * MIB), *high;

        assert_int_equal(low->throttle, SCHED_THROTTLE_NONE);
        high = join(b, 3);
        assert_int_equal(low->throttle, SCHED_THROTTLE_SHORT);
        assert_int_equal(high->throttle, SCHED_THROTTLE_NONE);
        pass(b, 600 * NSEC_PER_SEC);
        assert_int_equal(low->throttle, SCHED_THROTTLE_SHORT);
        gone(b, high);
        assert_int_equal(low->throttle, SCHED_THROTTLE_NONE);
}

static void auto_quantum(struct sched_config *c)
{
        c->quantum_ns = 0;
}

static uint64_t quantum_of(struct bench *b)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        return v.quantum_ns;
}

static void the_quantum_follows_the_cost_of_hand_offs(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(auto_quantum);
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB);
        struct sched_actions out = {0};
        struct sched_config config;

        sched_config_default(&config);
        /* The first guess is 19 times the time for half a card at 20 GB/s. */
        assert_in_range(quantum_of(b), 400 * NSEC_PER_MSEC, 600 * NSEC_PER_MSEC);
        pass(b, NSEC_PER_SEC);
        if (!a->revoked)
                fail_msg("the quantum did not end");
        pass(b, 20 * NSEC_PER_MSEC);
        drained(b, a);
        pass(b, 80 * NSEC_PER_MSEC);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_true(quantum_of(b) > 19 * 100 * NSEC_PER_MSEC);
        assert_true(quantum_of(b) < 19 * 700 * NSEC_PER_MSEC);
        config.quantum_ns = 3 * NSEC_PER_SEC;
        sched_set_config(b->s, &config, b->now_ns, &out);
        assert_int_equal(quantum_of(b), 3 * NSEC_PER_SEC);
}

static void long_quantum(struct sched_config *c)
{
        c->quantum_ns = 20 * NSEC_PER_SEC;
}

static void a_shorter_quantum_shortens_the_turn_that_has_begun(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(long_quantum);
        struct tenant *a = runner(b, 0, 900 * MIB);
        struct sched_actions out = {0};
        struct sched_config config;

        sched_config_default(&config);
        config.quantum_ns = 5 * NSEC_PER_SEC;
        (void)waiter(b, 0, 900 * MIB);
        pass(b, 2 * NSEC_PER_SEC);
        sched_set_config(b->s, &config, b->now_ns, &out);
        pass(b, 3 * NSEC_PER_SEC - 1);
        assert_false(a->revoked);
        pass(b, 1);
        assert_true(a->revoked);
}

static void automatic(struct sched_config *c)
{
        c->quantum_ns = 0;
        c->quantum_min_ns = NSEC_PER_SEC;
        c->handoff_permille = 1; /* turns are as long as allowed */
}

static void turns_are_short_once_the_card_is_exclusive_and_nothing_moves(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(automatic);
        struct tenant *a = runner(b, 0, 300 * MIB), *c = runner(b, 0, 300 * MIB);
        struct sched_actions out = {0};

        assert_int_equal(sched_set_mode(b->s, SCHED_MODE_EXCLUSIVE, b->now_ns, &out), 0);
        assert_int_equal(out.n, 1);
        drained(b, c);
        want_run(b, c, 300 * MIB);
        pass(b, NSEC_PER_SEC - 1);
        assert_false(a->revoked);
        pass(b, 1);
        assert_true(a->revoked);
}

static void next_turn_in(struct bench *b, uint64_t move_ns, struct tenant *from, struct tenant *to)
{
        await_revoke(b, from);
        drained(b, from);
        want_run(b, from, from->allocated[0]);
        pass(b, move_ns);
        evict_to(b, from, from->limit[0]);
        restore(b, to);
        assert_int_not_equal(to->lease, 0);
}

static void one_slow_hand_off_changes_no_turn(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(auto_quantum);
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB);

        for (unsigned i = 0; i < 3; i++) {
                next_turn_in(b, NSEC_PER_SEC / 10, a, t);
                next_turn_in(b, NSEC_PER_SEC / 10, t, a);
        }
        next_turn_in(b, 3 * NSEC_PER_SEC, a, t);
        assert_in_range(quantum_of(b), 19 * 90 * NSEC_PER_MSEC, 19 * 200 * NSEC_PER_MSEC);
}

static void a_lease_covers_all_gpus_of_a_process(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = &b->t[b->tenants++];

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 1,
               &(struct sched_attach){.usage = {.allocated = 500 * MIB, .backed = 500 * MIB}});
        attach(b, t, 0, &(struct sched_attach){.usage = {.allocated = 300 * MIB}, .run = true});
        usage_as_of(b, t, 1, t->sequence[1]);
        restore(b, t);
        assert_int_equal(t->lease, 0); /* t is resident on one GPU only */
        pass(b, NSEC_PER_SEC);
        assert_true(a->revoked);
        drained(b, a);
        evict_to(b, a, a->limit[0]);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void exclusive(struct sched_config *c)
{
        c->mode = SCHED_MODE_EXCLUSIVE;
}

static void exclusive_mode_gives_one_lease_at_a_time_and_moves_nothing(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(exclusive);
        struct tenant *a = runner(b, 0, 300 * MIB), *t, *u;

        t = waiter(b, 0, 300 * MIB);
        u = waiter(b, 0, 300 * MIB);
        assert_int_equal(t->backed[0], 300 * MIB);
        assert_int_equal(t->lease, 0);
        pass(b, FIXED_QUANTUM_NS - 1);
        assert_false(a->revoked);
        pass(b, 1);
        assert_true(a->revoked);
        drained(b, a);
        assert_int_equal(a->limit[0], 300 * MIB);
        assert_int_not_equal(t->lease, 0);
        assert_int_equal(u->lease, 0);
        want_run(b, a, 300 * MIB);
        assert_int_equal(a->lease, 0); /* a is resident, but queues behind u */
        idle(b, t, true);
        assert_true(t->revoked); /* t is idle, and giving way costs nothing */
        drained(b, t);
        assert_int_not_equal(u->lease, 0);
}

static void in_exclusive_mode_a_program_that_lacks_memory_overtakes_no_resident_one(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(exclusive);
        struct tenant *a = runner(b, 0, 450 * MIB), *resident, *lacks;

        resident = waiter(b, 0, 300 * MIB);
        lacks = waiter(b, 0, 450 * MIB);
        assert_int_equal(resident->backed[0], 300 * MIB);
        assert_true(lacks->limit[0] < 450 * MIB);
        await_revoke(b, a);
        drained(b, a);
        want_run(b, a, 450 * MIB);
        assert_int_not_equal(resident->lease, 0);
        evict_to(b, a, a->limit[0]); /* memory moves meanwhile */
        restore(b, lacks);
        assert_int_equal(lacks->backed[0], 450 * MIB);
        assert_int_equal(lacks->lease, 0);
        await_revoke(b, resident);
        drained(b, resident);
        assert_int_not_equal(lacks->lease, 0);
}

static void a_change_to_exclusive_mode_leaves_one_lease(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB), *c = runner(b, 0, 300 * MIB),
                      *d = runner(b, 0, 300 * MIB);
        struct sched_actions out = {0};

        assert_int_equal(sched_set_mode(b->s, SCHED_MODE_EXCLUSIVE, b->now_ns, &out), 0);
        assert_int_equal(out.n, 1);
        assert_int_equal(out.list[0].type, SCHED_DO_REVOKE);
        assert_true(out.list[0].client == d->id);
        drained(b, d);
        assert_true(c->revoked);
        drained(b, c);
        assert_false(a->revoked);
}

static void mode_off_is_refused_while_memory_is_evicted(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 400 * MIB);
        struct sched_actions out = {0};

        assert_int_equal(sched_set_mode(b->s, SCHED_MODE_OFF, b->now_ns, &out), -EBUSY);
        gone(b, a);
        restore(b, t);
        assert_int_equal(sched_set_mode(b->s, SCHED_MODE_OFF, b->now_ns, &out), 0);
}

static void mode_off_behaves_like_the_plain_driver(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = join(b, 0);
        struct sched_actions out = {0};

        assert_int_equal(sched_set_mode(b->s, SCHED_MODE_OFF, b->now_ns, &out), 0);
        request_commit_of(b, t, 400 * MIB);
        assert_int_equal(t->refused, -ENOMEM);
        request_commit_of(b, t, 300 * MIB);
        assert_int_equal(t->limit[0], 300 * MIB);
        request_unevictable_of(b, t, 100 * MIB);
        assert_int_equal(t->refused, -ENOSPC);
        pass(b, 600 * NSEC_PER_SEC);
        assert_false(a->revoked);
}

static void many(struct sched_config *c)
{
        c->clients_max = 2000;
}

static void more_actions_than_a_list_holds_are_returned_by_sched_pump(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(many);
        struct sched_actions out = {0};
        const struct sched_attach none = {0};
        unsigned told = 0;
        sched_client id;

        for (unsigned i = 0; i < 1500; i++) {
                assert_int_equal(
                        sched_client_add(b->s, (struct sched_origin){.uid = i}, 0, b->now_ns, &id),
                        0);
                out.n = 0;
                assert_int_equal(sched_client_attach(b->s, id, 0, &none, b->now_ns, &out), 0);
        }
        out.n = 0;
        assert_int_equal(sched_client_attach(b->s, id, 1,
                                             &(struct sched_attach){
                                                     .usage = {.allocated = 10 * MIB}, .run = true},
                                             b->now_ns, &out),
                         0);
        assert_false(out.more);
        out.n = 0;
        sched_gpu_foreign(b->s, 0, 100 * MIB, b->now_ns, &out);
        /* One waiting client makes GPU 0 contested for every client there. */
        assert_int_equal(sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &id),
                         0);
        out.n = 0;
        sched_gpu_foreign(b->s, 0, 0, b->now_ns, &out);
        assert_int_equal(
                sched_client_attach(b->s, id, 0,
                                    &(struct sched_attach){
                                            .usage = {.allocated = 900 * MIB, .backed = 900 * MIB},
                                            .running = true},
                                    b->now_ns, &out),
                0);
        assert_int_equal(sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &id),
                         0);
        out.n = 0;
        assert_int_equal(
                sched_client_attach(
                        b->s, id, 0,
                        &(struct sched_attach){.usage = {.allocated = 900 * MIB}, .run = true},
                        b->now_ns, &out),
                0);
        for (;;) {
                for (unsigned i = 0; i < out.n; i++)
                        told += out.list[i].type == SCHED_DO_CONTESTED;
                if (!out.more)
                        break;
                assert_int_equal(out.n, SCHED_ACTIONS_MAX);
                out.n = 0;
                sched_pump(b->s, b->now_ns, &out);
        }
        assert_int_equal(told, 1502);
        assert_null(sched_check(b->s, b->now_ns));
}

static void a_message_about_another_lease_is_ignored(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 300 * MIB);
        struct sched_actions out = {0};

        assert_int_equal(sched_client_drained(b->s, a->id, a->lease + 1, b->now_ns, &out), 0);
        assert_int_equal(sched_client_idle(b->s, a->id, a->lease - 1, true, b->now_ns, &out), 0);
        assert_int_equal(
                sched_client_drain_failed(b->s, a->id, a->lease, NSEC_PER_SEC, b->now_ns, &out), 0);
        assert_int_equal(out.n, 0);
        assert_int_equal(state_of(b, a), SCHED_RUNNING);
}

static void the_status_shows_the_time_run_and_waited(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB);
        struct sched_client_view v;

        pass(b, NSEC_PER_SEC / 2);
        idle(b, a, true);
        pass(b, NSEC_PER_SEC / 20);
        assert_int_equal(sched_client_view(b->s, a->id, b->now_ns, &v), 0);
        assert_int_equal(v.run_ns, NSEC_PER_SEC / 2);
        assert_true(v.idle);
        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns + 5, &v), 0);
        assert_int_equal(v.waited_ns, NSEC_PER_SEC / 2 + NSEC_PER_SEC / 20 + 5);
}

static void the_expected_time_of_a_turn_counts_the_turns_and_moves_before_it(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = waiter(b, 0, 900 * MIB),
                      *u = waiter(b, 0, 900 * MIB);
        struct sched_expected list[4] = {0};
        const uint64_t move_ns = GIB / 20 * 900 / 1024; /* 20 GB/s before a move was measured */

        assert_int_equal(sched_gpu_expected(b->s, 0, b->now_ns, list, 4), 2);
        assert_true(list[0].client == t->id && list[1].client == u->id);
        assert_in_range(list[0].ns, FIXED_QUANTUM_NS, FIXED_QUANTUM_NS + move_ns);
        assert_in_range(list[1].ns, list[0].ns + FIXED_QUANTUM_NS,
                        list[0].ns + FIXED_QUANTUM_NS + move_ns);
        assert_int_equal(sched_gpu_expected(b->s, 0, b->now_ns, list, 1), 1);

        idle(b, a, true); /* nothing is left of its turn */
        assert_int_equal(sched_gpu_expected(b->s, 0, b->now_ns, list, 4), 2);
        assert_in_range(list[0].ns, 1, move_ns);
        assert_int_equal(sched_gpu_expected(b->s, 9, b->now_ns, list, 4), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_client_that_lacks_no_memory_runs_at_once),
                cmocka_unit_test(clients_that_fit_run_together_undisturbed),
                cmocka_unit_test(the_longest_running_client_is_named_as_blocker),
                cmocka_unit_test(a_hand_off_moves_only_the_missing_bytes_step_by_step),
                cmocka_unit_test(unused_bytes_of_a_limit_are_taken_before_a_client_is_disturbed),
                cmocka_unit_test(bytes_backed_before_a_lower_limit_arrives_stay),
                cmocka_unit_test(idle_clients_give_way_the_longest_idle_first),
                cmocka_unit_test(several_clients_give_way_at_once),
                cmocka_unit_test(nobody_gives_way_before_all_together_make_enough_room),
                cmocka_unit_test(an_idle_client_stays_as_long_as_its_hand_off_would_cost),
                cmocka_unit_test(clients_that_wait_for_a_client_that_is_away_soon_give_way_at_once),
                cmocka_unit_test(a_client_with_short_gaps_keeps_its_memory_in_them),
                cmocka_unit_test(growth_in_pieces_costs_as_much_as_all_at_once),
                cmocka_unit_test(a_set_idle_time_replaces_the_measured_one),
                cmocka_unit_test(waiting_clients_give_way_before_lease_holders),
                cmocka_unit_test(free_bytes_are_kept_for_the_head_of_the_queue),
                cmocka_unit_test(bytes_useless_to_the_head_go_to_clients_behind_it),
                cmocka_unit_test(the_largest_overrun_gives_way_first),
                cmocka_unit_test(the_later_of_two_growing_clients_gives_way),
                cmocka_unit_test(growth_within_the_quantum_precedes_waiting_clients),
                cmocka_unit_test(clients_make_room_for_more_growth_of_the_same_size),
                cmocka_unit_test(an_exact_piece_of_growth_is_taken_from_several_clients),
                cmocka_unit_test(the_rate_is_measured_by_moves_that_pin_no_host_memory),
                cmocka_unit_test(a_drain_that_fails_is_tried_again_later_with_more_patience),
                cmocka_unit_test(a_client_that_never_drains_is_left_alone_for_a_while),
                cmocka_unit_test(a_client_that_cannot_evict_may_go_on),
                cmocka_unit_test(a_slow_client_becomes_overdue_and_gives_its_bytes),
                cmocka_unit_test(a_silent_client_is_overdue_and_the_next_client_gives_way),
                cmocka_unit_test(bytes_below_an_unacknowledged_limit_are_still_owed),
                cmocka_unit_test(an_overdue_client_earns_no_gpu_time_until_it_answers),
                cmocka_unit_test(skipped_time_does_not_use_up_the_grace_period),
                cmocka_unit_test(a_client_that_cannot_evict_all_memory_gets_the_rest_back),
                cmocka_unit_test(an_eviction_without_progress_is_overdue),
                cmocka_unit_test(a_byte_now_and_then_is_no_progress),
                cmocka_unit_test(moving_bytes_to_and_fro_is_no_progress),
                cmocka_unit_test(requests_without_work_keep_no_memory),
                cmocka_unit_test(a_drain_that_failed_long_ago_changes_nothing),
                cmocka_unit_test(a_client_that_never_drains_is_named),
                cmocka_unit_test(a_rising_limit_does_not_excuse_a_client_that_restores_nothing),
                cmocka_unit_test(free_room_does_not_prolong_the_penalty_of_a_slow_restore),
                cmocka_unit_test(a_rest_smaller_than_an_extent_makes_no_client_overdue),
                cmocka_unit_test(a_client_that_moves_one_gpu_after_another_is_not_overdue),
                cmocka_unit_test(a_client_that_does_not_restore_holds_up_nobody),
                cmocka_unit_test(bytes_are_not_kept_for_a_silent_client),
                cmocka_unit_test(an_old_usage_above_a_lower_limit_gives_no_lease),
                cmocka_unit_test(freeing_while_waiting_lowers_the_need),
                cmocka_unit_test(a_higher_commit_does_not_restore_an_idle_client),
                cmocka_unit_test(a_client_that_drained_in_vain_keeps_its_memory),
                cmocka_unit_test(a_client_that_lost_its_turn_queues_behind_waiters),
                cmocka_unit_test(the_higher_priority_is_served_at_once),
                cmocka_unit_test(a_priority_that_is_raised_counts_at_once),
                cmocka_unit_test(a_lower_priority_never_ends_a_higher_ones_turn),
                cmocka_unit_test(a_lower_priority_gets_one_turn_in_twenty),
                cmocka_unit_test(a_contested_card_is_reported_until_2_seconds_after_the_contest),
                cmocka_unit_test(work_is_throttled_if_not_all_memory_fits_though_nobody_waits),
                cmocka_unit_test(work_beside_a_higher_priority_is_throttled_before_it_asks),
                cmocka_unit_test(a_shorter_quantum_shortens_the_turn_that_has_begun),
                cmocka_unit_test(turns_are_short_once_the_card_is_exclusive_and_nothing_moves),
                cmocka_unit_test(the_quantum_follows_the_cost_of_hand_offs),
                cmocka_unit_test(one_slow_hand_off_changes_no_turn),
                cmocka_unit_test(a_lease_covers_all_gpus_of_a_process),
                cmocka_unit_test(exclusive_mode_gives_one_lease_at_a_time_and_moves_nothing),
                cmocka_unit_test(
                        in_exclusive_mode_a_program_that_lacks_memory_overtakes_no_resident_one),
                cmocka_unit_test(a_change_to_exclusive_mode_leaves_one_lease),
                cmocka_unit_test(mode_off_is_refused_while_memory_is_evicted),
                cmocka_unit_test(mode_off_behaves_like_the_plain_driver),
                cmocka_unit_test(more_actions_than_a_list_holds_are_returned_by_sched_pump),
                cmocka_unit_test(a_message_about_another_lease_is_ignored),
                cmocka_unit_test(the_status_shows_the_time_run_and_waited),
                cmocka_unit_test(the_expected_time_of_a_turn_counts_the_turns_and_moves_before_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
