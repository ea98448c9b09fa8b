/* test_preempt.c: which of the clients with leases the GPU runs now. The daemon can take each of
 * them off the GPU. */
#include "sched_bench.h"

#define MS NSEC_PER_MSEC

#define BENCH_WITH(change) struct bench *b __attribute__((cleanup(done))) = bench_new(change)
#define BENCH              BENCH_WITH(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* Adds a running client with 10 MiB of a user of its own, that the daemon can preempt. */
static struct tenant *runs_with(struct bench *b, struct sched_share share, int priority)
{
        const struct sched_origin origin = {.uid = 1 + b->tenants, .share = share};
        struct tenant *t = comes_to_run(b, origin, priority, 10 * MIB);

        set_preemptible(b, t, true);
        assert_int_not_equal(t->lease, 0);
        return t;
}

static struct tenant *runs(struct bench *b, unsigned weight)
{
        return runs_with(b, (struct sched_share){.weight = weight}, 0);
}

/* Lets time pass, and returns how much of it t was on the GPU. */
static uint64_t ran(struct bench *b, const struct tenant *t, uint64_t ns)
{
        const uint64_t end = b->now_ns + ns;
        uint64_t sum = 0;

        while (b->now_ns < end) {
                const uint64_t next = MIN(end, sched_next_ns(b->s)), before = b->now_ns;
                const bool on = !t->preempted;

                assert_true(next > before); /* otherwise a daemon would spin */
                tick_at(b, next);
                sum += on ? next - before : 0;
        }
        return sum;
}

static bool is_serial(struct bench *b)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        return v.serial;
}

/* ---- shares ---- */

static void assert_parts(unsigned weight, unsigned other, uint64_t percent)
{
        BENCH;
        struct tenant *t = runs(b, weight);

        (void)runs(b, other);
        assert_true(is_serial(b));
        for (unsigned i = 0; i < 20; i++)
                assert_in_range(ran(b, t, NSEC_PER_SEC), (percent - 1) * 10 * MS,
                                (percent + 1) * 10 * MS);
}

static void parts_of_the_time_are_kept_within_a_point(void **state)
{
        assert_parts(50, 950, 5);
        assert_parts(950, 50, 95);
        assert_parts(200, 800, 20);
}

/* A daemon wakes up late by some microseconds. */
static void sides_run_in_the_same_order_in_each_window(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.minimum = 500}, 0);
        unsigned turns = 0, late_us = 1;
        bool on;

        (void)runs(b, 0);
        pass(b, NSEC_PER_SEC);
        on = !t->preempted;
        for (uint64_t end = b->now_ns + 10 * NSEC_PER_SEC; b->now_ns < end;) {
                late_us = late_us * 37 % 401;
                tick_at(b, sched_next_ns(b->s) + (uint64_t)late_us * 1000);
                turns += t->preempted == on;
                on = !t->preempted;
        }
        assert_in_range(turns, 195, 205);
}

static void a_part_too_short_for_a_change_is_saved(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 5);

        (void)runs(b, 995);
        assert_in_range(ran(b, t, 2 * NSEC_PER_SEC), 8 * MS, 12 * MS);
}

static void equal_parts_run_beside_each_other(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 0), *u = runs(b, 0);

        assert_false(is_serial(b));
        pass(b, NSEC_PER_SEC);
        assert_false(t->preempted || u->preempted);
}

static void beside_a_minimum_equal_parts_are_kept_in_windows(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.minimum = 500}, 0);

        assert_false(is_serial(b));
        (void)runs(b, 0);
        assert_true(is_serial(b));
        for (unsigned i = 0; i < 20; i++)
                assert_in_range(ran(b, t, NSEC_PER_SEC), 490 * MS, 510 * MS);
}

static void an_idle_program_changes_no_part_of_others(void **state)
{
        BENCH;
        struct tenant *idles, *t;

        idles = runs(b, 500);
        idle(b, idles, true);
        t = runs(b, 0);
        (void)runs(b, 0);
        assert_false(is_serial(b));
        assert_false(t->preempted);
}

static void an_idle_part_is_lent_and_taken_back(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 200), *u = runs(b, 800);

        idle(b, u, true);
        assert_int_equal(ran(b, t, 330 * MS), 330 * MS);
        assert_false(u->preempted);
        idle(b, u, false);
        assert_true(t->preempted && !u->preempted);
        assert_in_range(ran(b, t, NSEC_PER_SEC), 190 * MS, 230 * MS);
}

static void short_requests_interrupt_within_their_part(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 250), *u = runs(b, 750);

        for (unsigned i = 0; i < 20; i++) {
                idle(b, t, true);
                assert_int_equal(ran(b, u, 45 * MS), 45 * MS);
                idle(b, t, false);
                assert_true(u->preempted && !t->preempted);
                assert_int_equal(ran(b, t, 5 * MS), 5 * MS);
        }
}

/* Lets t work and idle by turns, and returns the percentage of the time that it has. */
static uint64_t part_with_gaps(struct bench *b, struct tenant *t, uint64_t work_ns, uint64_t gap_ns)
{
        const uint64_t begin_ns = b->now_ns, end_ns = begin_ns + 5 * NSEC_PER_SEC;
        uint64_t sum = 0;

        while (b->now_ns < end_ns) {
                uint64_t done = 0;

                while (done < work_ns)
                        done += ran(b, t, MS / 10);
                sum += done;
                idle(b, t, true);
                pass(b, gap_ns);
                idle(b, t, false);
        }
        return sum * 100 / (b->now_ns - begin_ns);
}

static void a_minimum_is_kept_for_a_program_with_short_gaps(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.minimum = 500}, 0);

        (void)runs(b, 0);
        /* A window may end during a gap, and with it what is left of the part. */
        assert_in_range(part_with_gaps(b, t, MS, MS / 5), 46, 60);
        assert_in_range(part_with_gaps(b, t, 5 * MS, 2 * MS), 44, 60);
}

static void parts_of_three_are_kept_although_one_has_gaps(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 600);

        (void)runs(b, 100);
        (void)runs(b, 300);
        assert_in_range(part_with_gaps(b, t, 3 * MS, MS), 52, 65);
}

static void requests_get_no_more_than_their_part(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 50);
        uint64_t sum = 0;

        (void)runs(b, 950);
        for (unsigned i = 0; i < 200; i++) {
                idle(b, t, true);
                pass(b, 5 * MS);
                idle(b, t, false);
                sum += ran(b, t, 5 * MS);
        }
        assert_in_range(sum, 40 * MS, 130 * MS); /* of 2 s */
}

/* ---- priorities ---- */

static void a_higher_priority_preempts_at_once(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);
        struct tenant *high = runs_with(b, (struct sched_share){0}, 1);

        assert_true(low->preempted && !high->preempted);
        idle(b, high, true);
        assert_false(low->preempted || high->preempted);
        pass(b, 37 * MS);
        idle(b, high, false);
        assert_true(low->preempted && !high->preempted);
}

static void lower_priorities_get_the_floor(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);

        (void)runs_with(b, (struct sched_share){0}, 1);
        /* of each 11 ms that it is due, the changes of sides cost 1 */
        assert_in_range(ran(b, low, 11 * NSEC_PER_SEC), 490 * MS, 510 * MS);
}

static void requests_of_a_higher_priority_with_gaps_are_not_interrupted(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0), *high;

        high = runs_with(b, (struct sched_share){0}, 1);
        for (unsigned i = 0; i < 400; i++) {
                idle(b, high, true);
                pass(b, 25 * MS);
                idle(b, high, false);
                assert_int_equal(ran(b, low, 5 * MS), 0);
        }
}

static void short_gaps_of_a_higher_priority_do_not_use_up_the_floor(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0), *high;
        uint64_t sum = 0;

        high = runs_with(b, (struct sched_share){0}, 1);
        for (unsigned i = 0; i < 2000; i++) {
                idle(b, high, true);
                pass(b, MS);
                idle(b, high, false);
                sum += ran(b, low, 5 * MS);
        }
        assert_in_range(sum, 400 * MS, 500 * MS); /* a piece ends at each request */
}

static void a_higher_priority_that_begins_ends_the_floors_piece(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);
        struct tenant *high = runs_with(b, (struct sched_share){0}, 1), *other;

        other = runs_with(b, (struct sched_share){0}, 1);
        idle(b, other, true);
        for (unsigned i = 0; low->preempted && i < 1000; i++)
                pass(b, MS);
        assert_true(!low->preempted && high->preempted);
        idle(b, other, false);
        assert_true(low->preempted && !other->preempted);
}

static void each_lower_priority_has_a_part_of_the_floor(void **state)
{
        BENCH;
        struct tenant *lowest = runs_with(b, (struct sched_share){0}, -1);
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);
        uint64_t sums[2] = {0};

        (void)runs_with(b, (struct sched_share){0}, 1);
        for (unsigned i = 0; i < 11000; i++) {
                pass(b, MS);
                sums[0] += !lowest->preempted;
                sums[1] += !low->preempted;
        }
        assert_in_range(sums[0], 230, 270);
        assert_in_range(sums[1], 230, 270);
}

/* ---- mode exclusive ---- */

static void exclusively(struct sched_config *c)
{
        c->mode = SCHED_MODE_EXCLUSIVE;
}

static void in_mode_exclusive_a_request_begins_at_once(void **state)
{
        BENCH_WITH(exclusively);
        struct tenant *t = runs(b, 0), *u = runs(b, 0);

        assert_true(is_serial(b));
        for (unsigned i = 0; i < 20; i++) {
                idle(b, t, true);
                assert_int_equal(ran(b, u, 100 * MS), 100 * MS);
                idle(b, t, false);
                assert_true(u->preempted && !t->preempted);
                assert_int_equal(ran(b, t, 5 * MS), 5 * MS);
        }
        assert_false(t->revoked || u->revoked);
}

static void in_mode_exclusive_one_runs_at_a_time(void **state)
{
        BENCH_WITH(exclusively);
        struct tenant *t = runs(b, 0), *u = runs(b, 0);

        for (unsigned i = 0; i < 100; i++) {
                assert_true(t->preempted != u->preempted);
                pass(b, 7 * MS);
        }
        assert_in_range(ran(b, t, NSEC_PER_SEC), 490 * MS, 510 * MS);
}

static void beside_one_that_cannot_be_preempted_leases_exist_one_at_a_time(void **state)
{
        BENCH_WITH(exclusively);
        struct tenant *t = runs(b, 0), *u = runs(b, 0);

        set_preemptible(b, t, false);
        assert_true(u->revoked && !t->revoked);
        assert_false(u->preempted);
        drained(b, u);
        want_run(b, u, 10 * MIB);
        set_preemptible(b, t, true);
        assert_false(t->revoked);
        assert_true(is_serial(b)); /* both have a lease again */
}

/* ---- the maximum ---- */

static void a_maximum_holds_in_each_window(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.maximum = 200}, 0);

        pass(b, 100 * MS - b->now_ns % (100 * MS));
        for (unsigned i = 0; i < 50; i++)
                assert_in_range(ran(b, t, 100 * MS), 19 * MS, 21 * MS);
        assert_false(t->revoked);
}

static void a_maximum_holds_beside_others(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.maximum = 200}, 0);
        struct tenant *u = runs(b, 0);
        uint64_t sum = 0;

        for (unsigned i = 0; i < 1000; i++) {
                pass(b, MS);
                sum += t->preempted ? 0 : 1;
                assert_false(u->preempted);
        }
        assert_in_range(sum, 190, 220);
}

/* Beside each other, each would have half of what its maximum allows. */
static void programs_with_maxima_take_turns(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.maximum = 200}, 0);
        struct tenant *u = runs_with(b, (struct sched_share){.maximum = 300}, 0);
        uint64_t t_ms = 0, u_ms = 0;

        pass(b, 20 * NSEC_PER_SEC);
        for (unsigned i = 0; i < 2000; i++) {
                pass(b, MS);
                assert_true(t->preempted || u->preempted);
                t_ms += !t->preempted;
                u_ms += !u->preempted;
        }
        assert_in_range(t_ms, 390, 420);
        assert_in_range(u_ms, 590, 620);
}

static void a_used_up_maximum_makes_no_program_with_gaps_take_turns(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.maximum = 200}, 0), *u, *gaps;

        u = runs(b, 0);
        gaps = runs(b, 0);
        for (unsigned i = 0; i < 5000; i++) {
                idle(b, gaps, true);
                pass(b, 2 * MS);
                idle(b, gaps, false);
                pass(b, 2 * MS);
                if (t->preempted && i > 4000)
                        assert_false(u->preempted && gaps->preempted);
        }
        while (!t->preempted)
                pass(b, MS);
        assert_false(is_serial(b));
        assert_false(u->preempted || gaps->preempted);
}

static void time_not_used_of_a_maximum_is_lost(void **state)
{
        BENCH;
        struct tenant *t = runs_with(b, (struct sched_share){.maximum = 200}, 0);

        idle(b, t, true);
        pass(b, 10 * NSEC_PER_SEC);
        pass(b, 100 * MS - b->now_ns % (100 * MS));
        idle(b, t, false);
        assert_in_range(ran(b, t, 100 * MS), 19 * MS, 21 * MS);
}

static void a_maximum_of_a_user_counts_for_all_his_clients(void **state)
{
        BENCH;
        const struct sched_origin origin = {.uid = 5, .share = {.maximum = 300}};
        struct tenant *t = comes_to_run(b, origin, 0, 10 * MIB);
        struct tenant *u = comes_to_run(b, origin, 0, 10 * MIB);

        set_preemptible(b, t, true);
        set_preemptible(b, u, true);
        pass(b, 10 * NSEC_PER_SEC); /* what the bucket had saved is gone */
        pass(b, 100 * MS - b->now_ns % (100 * MS));
        assert_in_range(ran(b, t, NSEC_PER_SEC), 145 * MS, 155 * MS);
        assert_in_range(ran(b, u, NSEC_PER_SEC), 145 * MS, 155 * MS);
}

/* ---- overdue clients ---- */

static void an_overdue_client_leaves_the_time_to_others(void **state)
{
        BENCH;
        struct tenant *t = comes_to_run(b, (struct sched_origin){.uid = 99}, 0, 500 * MIB), *u;

        set_preemptible(b, t, true);
        u = runs(b, 0);
        pass(b, 2 * NSEC_PER_SEC);
        (void)comes_to_run(b, (struct sched_origin){.uid = 98}, 0, 600 * MIB);
        assert_true(t->revoked && !u->revoked && !t->preempted);
        for (unsigned i = 0; !t->overdue && i < 8000; i++)
                pass(b, MS);
        assert_true(t->overdue && t->preempted && !u->preempted);
        assert_int_equal(ran(b, t, 150 * MS), 0);
        assert_in_range(ran(b, t, 2 * NSEC_PER_SEC), 90 * MS, 110 * MS);
        assert_true(t->preempted && !u->preempted);
        idle(b, u, true);
        assert_false(t->preempted); /* nobody else works */
        idle(b, u, false);
        assert_true(t->preempted);
        drained(b, t);
        assert_false(t->preempted);
}

/* ---- programs without gaps ---- */

static void programs_without_gaps_take_turns(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 0), *u = runs(b, 0);

        pass(b, 999 * MS);
        assert_false(is_serial(b));
        pass(b, 2 * MS);
        assert_true(is_serial(b));
        assert_in_range(ran(b, t, 10 * NSEC_PER_SEC), 4950 * MS, 5050 * MS);
        for (unsigned i = 0; i < 20; i++) { /* a gap of 1 ms after each 60 ms */
                idle(b, u, true);
                pass(b, MS);
                assert_false(t->preempted);
                idle(b, u, false);
                pass(b, 60 * MS);
                assert_true(is_serial(b));
        }
        for (unsigned i = 0; i < 6; i++) { /* and of 10 ms */
                idle(b, u, true);
                pass(b, 10 * MS);
                idle(b, u, false);
                pass(b, 10 * MS);
        }
        assert_false(is_serial(b) || t->preempted || u->preempted);
}

/* Each change of sides costs the same. */
static void turns_of_many_programs_are_as_long_as_those_of_two(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 0);
        unsigned changes = 0;

        for (unsigned i = 0; i < 7; i++)
                (void)runs(b, 0);
        pass(b, 2 * NSEC_PER_SEC);
        for (unsigned i = 0; i < 4000; i++) {
                const bool was = t->preempted;

                pass(b, MS);
                changes += was && !t->preempted;
        }
        assert_in_range(changes, 9, 11); /* 8 turns of 50 ms in a window */
}

static void a_request_begins_at_once(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 0), *u = runs(b, 0), *guest = runs(b, 0);

        idle(b, guest, true);
        pass(b, 2 * NSEC_PER_SEC);
        for (unsigned i = 0; i < 50; i++) {
                idle(b, guest, false);
                assert_true(t->preempted && u->preempted && !guest->preempted);
                pass(b, 5 * MS);
                idle(b, guest, true);
                assert_true(t->preempted != u->preempted);
                pass(b, 20 * MS);
        }
}

static void a_long_request_has_its_part_of_the_windows(void **state)
{
        BENCH;
        struct tenant *guest;

        (void)runs(b, 0);
        (void)runs(b, 0);
        guest = runs(b, 0);
        idle(b, guest, true);
        pass(b, 2 * NSEC_PER_SEC);
        idle(b, guest, false);
        assert_false(guest->preempted);
        assert_in_range(ran(b, guest, 3 * NSEC_PER_SEC), 950 * MS, 1060 * MS);
}

static void programs_with_gaps_run_beside_each_other(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 0), *u = runs(b, 0);

        for (unsigned i = 0; i < 100; i++) {
                idle(b, i % 2 ? t : u, true);
                pass(b, 23 * MS);
                idle(b, i % 2 ? t : u, false);
                pass(b, 42 * MS);
                assert_false(is_serial(b) || t->preempted || u->preempted);
        }
}

static void beside_one_that_cannot_be_preempted_nobody_takes_turns(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 0), *other;

        (void)runs(b, 0);
        other = runs(b, 0);
        set_preemptible(b, other, false);
        pass(b, 2 * NSEC_PER_SEC);
        assert_false(is_serial(b));
        idle(b, other, true);
        assert_true(is_serial(b));
        idle(b, other, false);
        assert_false(is_serial(b) || t->preempted);
}

/* ---- who is never preempted ---- */

static void a_preempted_client_runs_when_it_is_to_give_way(void **state)
{
        BENCH;
        struct tenant *low = comes_to_run(b, (struct sched_origin){.uid = 99}, 0, 500 * MIB);

        set_preemptible(b, low, true);
        (void)runs_with(b, (struct sched_share){0}, 1);
        assert_true(low->preempted);
        (void)comes_to_run(b, (struct sched_origin){.uid = 98}, 1, 600 * MIB);
        assert_true(low->revoked && !low->preempted);
        drained(b, low);
        assert_false(low->preempted);
}

static void a_client_that_idles_runs_again(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);

        (void)runs_with(b, (struct sched_share){0}, 1);
        assert_true(low->preempted);
        idle(b, low, true);
        assert_false(low->preempted);
        idle(b, low, false);
        assert_true(low->preempted);
}

static void a_client_that_cannot_be_preempted_runs(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);

        (void)runs_with(b, (struct sched_share){0}, 1);
        set_preemptible(b, low, false);
        pass(b, NSEC_PER_SEC);
        assert_false(low->preempted);
        set_preemptible(b, low, true);
        assert_true(low->preempted);
        lost(b, low);
        assert_false(low->preempted);
}

static void a_program_on_several_gpus_is_not_preempted(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);

        (void)runs_with(b, (struct sched_share){0}, 1);
        attach(b, low, 1, &(struct sched_attach){.sequence = 2});
        assert_false(low->preempted);
}

static void beside_mps_nobody_of_it_is_preempted(void **state)
{
        BENCH;
        struct tenant *low = runs_with(b, (struct sched_share){0}, 0);

        (void)runs_with(b, (struct sched_share){0}, 1);
        set_mps(b, low, true);
        assert_false(low->preempted);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(parts_of_the_time_are_kept_within_a_point),
                cmocka_unit_test(sides_run_in_the_same_order_in_each_window),
                cmocka_unit_test(a_part_too_short_for_a_change_is_saved),
                cmocka_unit_test(equal_parts_run_beside_each_other),
                cmocka_unit_test(beside_a_minimum_equal_parts_are_kept_in_windows),
                cmocka_unit_test(an_idle_program_changes_no_part_of_others),
                cmocka_unit_test(an_idle_part_is_lent_and_taken_back),
                cmocka_unit_test(short_requests_interrupt_within_their_part),
                cmocka_unit_test(a_minimum_is_kept_for_a_program_with_short_gaps),
                cmocka_unit_test(parts_of_three_are_kept_although_one_has_gaps),
                cmocka_unit_test(requests_get_no_more_than_their_part),
                cmocka_unit_test(a_higher_priority_preempts_at_once),
                cmocka_unit_test(lower_priorities_get_the_floor),
                cmocka_unit_test(requests_of_a_higher_priority_with_gaps_are_not_interrupted),
                cmocka_unit_test(short_gaps_of_a_higher_priority_do_not_use_up_the_floor),
                cmocka_unit_test(a_higher_priority_that_begins_ends_the_floors_piece),
                cmocka_unit_test(each_lower_priority_has_a_part_of_the_floor),
                cmocka_unit_test(in_mode_exclusive_a_request_begins_at_once),
                cmocka_unit_test(in_mode_exclusive_one_runs_at_a_time),
                cmocka_unit_test(beside_one_that_cannot_be_preempted_leases_exist_one_at_a_time),
                cmocka_unit_test(a_maximum_holds_in_each_window),
                cmocka_unit_test(a_maximum_holds_beside_others),
                cmocka_unit_test(programs_with_maxima_take_turns),
                cmocka_unit_test(a_used_up_maximum_makes_no_program_with_gaps_take_turns),
                cmocka_unit_test(time_not_used_of_a_maximum_is_lost),
                cmocka_unit_test(a_maximum_of_a_user_counts_for_all_his_clients),
                cmocka_unit_test(an_overdue_client_leaves_the_time_to_others),
                cmocka_unit_test(programs_without_gaps_take_turns),
                cmocka_unit_test(turns_of_many_programs_are_as_long_as_those_of_two),
                cmocka_unit_test(a_request_begins_at_once),
                cmocka_unit_test(a_long_request_has_its_part_of_the_windows),
                cmocka_unit_test(programs_with_gaps_run_beside_each_other),
                cmocka_unit_test(beside_one_that_cannot_be_preempted_nobody_takes_turns),
                cmocka_unit_test(a_preempted_client_runs_when_it_is_to_give_way),
                cmocka_unit_test(a_client_that_idles_runs_again),
                cmocka_unit_test(a_client_that_cannot_be_preempted_runs),
                cmocka_unit_test(a_program_on_several_gpus_is_not_preempted),
                cmocka_unit_test(beside_mps_nobody_of_it_is_preempted),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
