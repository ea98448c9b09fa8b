/* test_queue.c: which submitted job starts where, with random days of jobs that come, run and end.
 */
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/queue/queue.h"

#define S NSEC_PER_SEC

static struct queue_start starts[QUEUE_JOBS_MAX];

static struct queue *queue_with(unsigned gpus)
{
        struct queue *q = queue_new();

        assert_non_null(q);
        for (unsigned i = 0; i < gpus; i++)
                queue_gpu_set(q, i, true, false);
        queue_host_set(q, 1e9);
        return q;
}

static uint32_t come_for(struct queue *q, const char *name, uint64_t user, double bound,
                         unsigned ways, uint64_t now)
{
        struct queue_wish wish = {
                .user = user, .bound = bound, .ways = ways, .measured = bound > 0};
        uint32_t id = 0;

        if (bound == 0)
                wish.bound = 0.7;
        (void)snprintf(wish.name, sizeof(wish.name), "%s", name);
        assert_int_equal(queue_come(q, &wish, now, &id), 0);
        return id;
}

static uint32_t come(struct queue *q, const char *name, uint64_t user, double bound, uint64_t now)
{
        return come_for(q, name, user, bound, QUEUE_ALL_WAYS, now);
}

static bool runs(const struct queue *q, uint32_t id)
{
        return queue_find(q, id)->gpu >= 0;
}

static unsigned decide(struct queue *q, uint64_t now)
{
        return queue_decide(q, NULL, 0, false, now, starts);
}

static unsigned offer(struct queue *q, struct queue_offer o, uint64_t now)
{
        return queue_decide(q, &o, 1, false, now, starts);
}

static void jobs_get_free_gpus_in_the_order_of_arrival(void **state)
{
        struct queue *q = queue_with(2);
        const uint32_t a = come(q, "a", 1, 0, S), b = come(q, "b", 2, 0, S),
                       c = come(q, "c", 1, 0, S);

        assert_int_equal(decide(q, S), 2);
        assert_true(runs(q, a) && runs(q, b) && !runs(q, c));
        assert_int_not_equal(queue_find(q, a)->gpu, queue_find(q, b)->gpu);
        assert_int_equal(queue_place(q, queue_find(q, c)), 1);
        queue_leave(q, a);
        assert_int_equal(decide(q, 2 * S), 1);
        assert_true(runs(q, c));
        assert_int_equal(starts[0].beside, 0);
        queue_free(q);
}

static void a_pair_starts_only_if_both_keep_their_bounds(void **state)
{
        struct queue *q = queue_with(1);
        const uint32_t a = come_for(q, "a", 1, 0.7, 1u << WAY_SLICED | 1u << WAY_TURNS, S);
        uint32_t b;

        (void)decide(q, S);
        b = come(q, "b", 1, 0.7, S);
        assert_true(queue_wants_offers(q));
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SLICED, {0.9, 0.69}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SLICED, {0.69, 0.9}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SLICED, {NAN, 0.9}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){b, b, WAY_SLICED, {0.9, 0.9}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){a, b, WAY_SLICED, {0.9, 0.9}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SLICED, {0.9, 0.9}, 2e9}, S), 0);
        /* The one that runs is not under MPS. */
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SHARED, {0.9, 0.9}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SLICED, {0.9, 0.8}, 0}, S), 1);
        assert_int_equal(starts[0].beside, a);
        assert_int_equal(starts[0].gpu, 0);
        assert_true(queue_find(q, a)->predicted == 0.8);
        assert_null(queue_check(q));
        queue_free(q);
}

static void two_jobs_that_wait_may_share_one_free_gpu_but_mps_only_for_one_user(void **state)
{
        struct queue *q = queue_with(1);
        const uint32_t a = come(q, "a", 1, 0.7, S), b = come(q, "b", 2, 0.7, S),
                       c = come(q, "c", 2, 0.7, S);
        const struct queue_offer other = {a, b, WAY_SHARED, {0.9, 0.9}, 0};
        const struct queue_offer same = {b, c, WAY_SHARED, {0.9, 0.9}, 0};

        assert_int_equal(queue_decide(q, &other, 1, true, S, starts), 0);
        assert_int_equal(queue_decide(q, &same, 1, true, S, starts), 2);
        assert_int_equal(starts[0].way, WAY_SHARED);
        assert_int_equal(starts[1].way, WAY_SHARED);
        queue_free(q);
}

static void a_job_alone_has_the_whole_card_so_nobody_joins_it_under_mps(void **state)
{
        struct queue *q = queue_with(1);
        const uint32_t a = come(q, "a", 1, 0.7, S);
        uint32_t b;

        assert_int_equal(decide(q, S), 1);
        assert_int_equal(starts[0].way, WAY_SLICED);
        assert_true(starts[0].progress == 1);
        assert_int_equal(queue_ways(queue_find(q, a)), QUEUE_ALL_WAYS & ~(1u << WAY_SHARED));
        b = come(q, "b", 1, 0.7, S);
        assert_int_equal(queue_ways(queue_find(q, b)), QUEUE_ALL_WAYS);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SHARED, {1, 1}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SLICED, {1, 1}, 0}, S), 1);
        assert_false(queue_find(q, b)->shared);
        queue_leave(q, a);
        assert_int_equal(queue_gpu(q, 0)->way, WAY_SLICED);
        assert_true(queue_find(q, b)->predicted == 1);
        queue_free(q);
}

static void
a_job_that_allows_mps_only_starts_in_its_half_and_only_its_user_s_jobs_join(void **state)
{
        struct queue *q = queue_with(2);
        const uint32_t a = come_for(q, "a", 1, 0.7, 1u << WAY_SHARED, S);
        const uint32_t no_file = come_for(q, "no file", 1, 0, 1u << WAY_SHARED, S);
        uint32_t b;

        assert_int_equal(decide(q, S), 2);
        assert_int_equal(starts[0].way, WAY_SHARED);
        assert_true(isnan(starts[0].progress) && isnan(queue_find(q, a)->predicted));
        assert_int_equal(starts[1].id, no_file);
        assert_int_equal(starts[1].way, WAY_SLICED); /* it gets no partner anyway */
        b = come(q, "b", 2, 0.7, S);
        assert_int_equal(queue_common_ways(queue_find(q, b), queue_find(q, a)), 0);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SHARED, {1, 1}, 0}, S), 0);
        queue_leave(q, b);
        b = come(q, "b", 1, 0.7, S);
        assert_int_equal(queue_common_ways(queue_find(q, b), queue_find(q, a)), 1u << WAY_SHARED);
        assert_int_equal(offer(q, (struct queue_offer){b, a, WAY_SHARED, {1, 0.9}, 0}, S), 1);
        assert_true(queue_find(q, b)->shared);
        assert_true(queue_find(q, a)->predicted == 0.9);
        queue_free(q);
}

static void the_rest_of_a_shared_pair_stays_in_its_half_and_newcomers_share_with_it(void **state)
{
        struct queue *q = queue_with(1);
        const uint32_t a = come(q, "a", 1, 0.7, S), b = come(q, "b", 1, 0.7, S);
        uint32_t c;

        assert_int_equal(offer(q, (struct queue_offer){a, b, WAY_SHARED, {0.9, 0.9}, 0}, S), 2);
        assert_true(queue_find(q, a)->shared && queue_find(q, b)->shared);
        queue_leave(q, a);
        assert_int_equal(queue_gpu(q, 0)->way, WAY_SHARED);
        assert_true(isnan(queue_find(q, b)->predicted)); /* no model knows it */
        assert_int_equal(queue_ways(queue_find(q, b)), 1u << WAY_SHARED);
        c = come(q, "c", 1, 0.7, S);
        assert_int_equal(offer(q, (struct queue_offer){c, b, WAY_SLICED, {1, 1}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){c, b, WAY_TURNS, {1, 1}, 0}, S), 0);
        assert_int_equal(offer(q, (struct queue_offer){c, b, WAY_SHARED, {0.8, 0.8}, 0}, S), 1);
        assert_true(queue_find(q, b)->predicted == 0.8);
        queue_leave(q, b);
        queue_leave(q, c);
        c = come(q, "c", 1, 0.7, S); /* again alone: the whole card */
        assert_int_equal(decide(q, S), 1);
        assert_int_equal(starts[0].way, WAY_SLICED);
        assert_false(queue_find(q, c)->shared);
        queue_free(q);
}

static void jobs_wait_for_offers_only_if_not_all_can_have_a_gpu(void **state)
{
        struct queue *q = queue_with(2);

        (void)come(q, "a", 1, 0.7, S);
        assert_false(queue_wants_offers(q));
        (void)come(q, "b", 1, 0.7, S);
        (void)come(q, "c", 1, 0.7, S);
        assert_true(queue_wants_offers(q));
        assert_int_equal(queue_decide(q, NULL, 0, true, S, starts), 0);
        assert_int_equal(queue_decide(q, NULL, 0, false, S, starts), 2);
        queue_free(q);
}

static void an_old_job_keeps_a_gpu_closed_and_gets_it_alone(void **state)
{
        struct queue *q = queue_with(1);
        const uint32_t a = come(q, "a", 1, 0.7, S);
        const uint64_t late = S + QUEUE_OLD_NS;
        uint32_t old, young;

        (void)decide(q, S);
        old = come(q, "old", 2, 0, S);
        young = come(q, "young", 3, 0.7, S);
        assert_int_equal(offer(q, (struct queue_offer){young, a, WAY_SLICED, {1, 1}, 0}, S), 1);
        queue_leave(q, young);
        young = come(q, "young", 3, 0.7, late);
        assert_int_equal(decide(q, late), 0);
        assert_int_equal(queue_find(q, old)->reserved, 0);
        assert_int_equal(offer(q, (struct queue_offer){young, a, WAY_SLICED, {1, 1}, 0}, late), 0);
        queue_leave(q, a);
        assert_int_equal(decide(q, late), 1);
        assert_true(runs(q, old) && !runs(q, young));
        queue_free(q);
}

static void a_gpu_that_others_use_gets_no_job(void **state)
{
        struct queue *q = queue_with(1);
        const uint32_t a = come(q, "a", 1, 0.7, S);

        queue_gpu_set(q, 0, true, true);
        assert_int_equal(decide(q, S), 0);
        queue_gpu_set(q, 0, false, false);
        assert_int_equal(decide(q, S), 0);
        queue_gpu_set(q, 0, true, false);
        assert_int_equal(decide(q, S), 1);
        assert_true(runs(q, a));
        queue_free(q);
}

static void one_user_does_not_fill_the_queue(void **state)
{
        struct queue *q = queue_with(1);
        const struct queue_wish wish = {.name = "x", .user = 1, .bound = 0.7, .ways = 1};
        struct queue_wish other = {.name = "x", .bound = 0.7, .ways = 1};
        uint32_t id;

        for (unsigned i = 0; i < QUEUE_OF_USER; i++)
                assert_int_equal(queue_come(q, &wish, S, &id), 0);
        assert_int_equal(queue_come(q, &wish, S, &id), -EUSERS);
        for (unsigned i = QUEUE_OF_USER; i < QUEUE_JOBS_MAX; i++) {
                other.user = 2 + i / QUEUE_OF_USER;
                assert_int_equal(queue_come(q, &other, S, &id), 0);
        }
        other.user = 1000;
        assert_int_equal(queue_come(q, &other, S, &id), -ENOSPC);
        queue_free(q);
}

static void jobs_of_an_earlier_daemon_come_back_where_they_run(void **state)
{
        struct queue *q = queue_with(1);
        const struct queue_wish wish = {
                .name = "x", .user = 1, .bound = 0.7, .ways = QUEUE_ALL_WAYS, .measured = true};
        uint32_t a, b, c;

        assert_int_equal(queue_return(q, &wish, 3, WAY_SLICED, S, &a), -ENODEV);
        assert_int_equal(queue_return(q, &wish, 0, WAY_TURNS, S, &a), 0);
        assert_int_equal(queue_return(q, &wish, 0, WAY_TURNS, S, &b), 0);
        assert_int_equal(queue_return(q, &wish, 0, WAY_TURNS, S, &c), -EBUSY);
        assert_true(queue_takes_turns(q, 0));
        assert_true(isnan(queue_find(q, a)->predicted));
        queue_leave(q, b);
        assert_false(queue_takes_turns(q, 0));
        assert_true(queue_find(q, a)->predicted == 1);
        assert_true(queue_is_open(q, queue_find(q, a)));
        assert_null(queue_check(q));
        queue_free(q);
}

static void a_job_in_its_half_that_comes_back_is_still_in_it(void **state)
{
        struct queue *q = queue_with(1);
        const struct queue_wish wish = {
                .name = "x", .user = 1, .bound = 0.7, .ways = QUEUE_ALL_WAYS, .measured = true};
        uint32_t a;

        assert_int_equal(queue_return(q, &wish, 0, WAY_SHARED, S, &a), 0);
        assert_int_equal(queue_gpu(q, 0)->way, WAY_SHARED);
        assert_int_equal(queue_ways(queue_find(q, a)), 1u << WAY_SHARED);
        assert_true(isnan(queue_find(q, a)->predicted));
        queue_free(q);
}

/* ---- what is observed ---- */

struct pair {
        struct queue *q;
        uint32_t a, b;
        uint64_t now;
};

static struct pair pair_of(enum way way, double bound)
{
        struct pair p = {.q = queue_with(1), .now = S};

        p.a = come(p.q, "a", 1, bound, S);
        (void)decide(p.q, S);
        p.b = come(p.q, "b", 1, bound, S);
        assert_int_equal(offer(p.q, (struct queue_offer){p.b, p.a, way, {0.8, 0.8}, 0}, S), 1);
        return p;
}

/* Observes both for some seconds. Returns the last change, 1: to turns, -1: back, 0: none. */
static int observe(struct pair *p, double a, double b, unsigned seconds)
{
        struct queue_turn turns[QUEUE_GPUS_MAX];
        int last = 0;

        while (seconds-- > 0) {
                p->now += S;
                queue_observe(p->q, p->a, a, p->now);
                queue_observe(p->q, p->b, b, p->now);
                if (queue_tick(p->q, p->now, turns))
                        last = turns[0].on ? 1 : -1;
        }
        return last;
}

static void a_pair_below_its_bound_for_10_s_goes_over_to_turns_and_stays_if_they_help(void **state)
{
        struct pair p = pair_of(WAY_SLICED, 0.7);

        assert_int_equal(observe(&p, 0.9, 0.8, 60), 0);
        assert_int_equal(observe(&p, 0.9, 0.5, 8), 0);
        assert_false(queue_takes_turns(p.q, 0));
        assert_int_equal(observe(&p, 0.9, 0.5, 20), 1);
        assert_true(queue_takes_turns(p.q, 0));
        assert_int_equal(observe(&p, 0.7, 0.65, 120), 0);
        assert_true(queue_takes_turns(p.q, 0));
        queue_free(p.q);
}

static void a_pair_goes_back_from_turns_that_are_worse_and_tries_them_once(void **state)
{
        struct pair p = pair_of(WAY_SLICED, 0.7);

        assert_int_equal(observe(&p, 0.9, 0.5, 20), 1);
        assert_int_equal(observe(&p, 0.4, 0.4, 15), 0);
        assert_int_equal(observe(&p, 0.4, 0.4, 15), -1);
        assert_false(queue_takes_turns(p.q, 0));
        assert_int_equal(observe(&p, 0.9, 0.5, 100), 0);
        queue_free(p.q);
}

static void a_job_that_says_nothing_is_not_below_its_bound(void **state)
{
        struct pair p = pair_of(WAY_SLICED, 0.7);
        struct queue_turn turns[QUEUE_GPUS_MAX];

        for (unsigned i = 0; i < 60; i++)
                assert_int_equal(queue_tick(p.q, p.now += S, turns), 0);
        queue_observe(p.q, p.a, 0.1, p.now);
        for (unsigned i = 0; i < 60; i++)
                assert_int_equal(queue_tick(p.q, p.now += S, turns), 0);
        queue_free(p.q);
}

static void what_was_observed_corrects_the_next_prediction(void **state)
{
        struct pair p = pair_of(WAY_TURNS, 0.5);
        uint32_t again;

        assert_int_equal(observe(&p, 0.4, 0.8, 100), 0); /* turns already */
        assert_true(fabs(queue_ratio(p.q, queue_find(p.q, p.a), queue_find(p.q, p.b), WAY_TURNS) -
                         0.5) < 0.02);
        assert_true(queue_ratio(p.q, queue_find(p.q, p.a), queue_find(p.q, p.b), WAY_SLICED) == 1);
        queue_leave(p.q, p.b);
        again = come(p.q, "b", 1, 0.5, p.now);
        /* The same prediction is not believed again: 0.8 means 0.4. */
        assert_int_equal(
                offer(p.q, (struct queue_offer){again, p.a, WAY_TURNS, {0.8, 0.8}, 0}, p.now), 0);
        /* Of a, another partner is corrected by what is known of a. */
        again = come(p.q, "c", 1, 0.5, p.now);
        assert_int_equal(
                offer(p.q, (struct queue_offer){again, p.a, WAY_TURNS, {0.8, 0.8}, 0}, p.now), 0);
        assert_int_equal(
                offer(p.q, (struct queue_offer){again, p.a, WAY_SLICED, {0.8, 0.8}, 0}, p.now), 1);
        queue_free(p.q);
}

/* ---- random days ---- */

static uint64_t seed = 1;

static unsigned random_below(unsigned n)
{
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return (unsigned)(seed % n);
}

static uint32_t any_job(const struct queue *q)
{
        const struct queue_job *j = NULL;

        for (unsigned n = random_below(12); n > 0 && (j = queue_next(q, j));)
                n--;
        return j ? j->id : random_below(50);
}

struct day {
        struct queue *q;
        unsigned gpus;
        uint64_t now;
        bool started[4096];
        uint64_t came[4096];
        unsigned pairs, waits;
};

static void check_starts(struct day *d, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                const struct queue_job *j = queue_find(d->q, starts[i].id);

                assert_non_null(j);
                assert_int_equal(j->gpu, starts[i].gpu);
                assert_true(starts[i].gpu < d->gpus);
                assert_true(queue_gpu(d->q, starts[i].gpu)->present);
                assert_false(queue_gpu(d->q, starts[i].gpu)->taken);
                assert_false(d->started[starts[i].id]);
                d->started[starts[i].id] = true;
                d->pairs += starts[i].beside != 0;
                assert_true(!starts[i].beside || j->wish.measured);
        }
}

/* After a decision without offers to come, no job waits for which a GPU is free. */
static void check_day(struct day *d)
{
        const char *broken = queue_check(d->q);
        bool waiting = false;

        if (broken)
                fail_msg("%s", broken);
        for (const struct queue_job *j = NULL; (j = queue_next(d->q, j));) {
                waiting |= j->gpu < 0;
                assert_true(j->gpu < 0 || d->started[j->id]);
        }
        d->waits += waiting;
        assert_false(waiting && queue_free_gpus(d->q) > 0);
}

static void decide_at_random(struct day *d)
{
        struct queue_offer offers[8];
        const unsigned n = random_below(ARRAY_SIZE(offers));

        for (unsigned i = 0; i < n; i++)
                offers[i] =
                        (struct queue_offer){any_job(d->q),
                                             any_job(d->q),
                                             (enum way)random_below(WAYS + 1),
                                             {random_below(120) / 100.0, random_below(120) / 100.0},
                                             random_below(4) ? 0 : 6e8};
        check_starts(d, queue_decide(d->q, offers, n, random_below(2), d->now, starts));
        check_starts(d, decide(d->q, d->now));
        check_day(d);
}

static void step(struct day *d)
{
        static const char *const names[] = {"a", "b", "c", "d", "e"};
        struct queue_turn turns[QUEUE_GPUS_MAX];
        uint32_t id;

        d->now += (uint64_t)random_below(3000) * NSEC_PER_MSEC;
        switch (random_below(8)) {
        case 0:
        case 1:
                id = come_for(d->q, names[random_below(5)], random_below(3),
                              random_below(4) ? 0.3 + random_below(60) / 100.0 : 0,
                              random_below(5) ? QUEUE_ALL_WAYS : 1u << WAY_SHARED, d->now);
                assert_true(id < ARRAY_SIZE(d->started));
                d->started[id] = false;
                d->came[id] = d->now;
                break;
        case 2:
                queue_leave(d->q, any_job(d->q));
                break;
        case 3:
                queue_gpu_set(d->q, random_below(d->gpus), random_below(10) > 0,
                              random_below(4) == 0);
                break;
        case 4:
                queue_unmeasured(d->q, random_below(40) ? 0 : any_job(d->q));
                break;
        default:
                queue_observe(d->q, any_job(d->q), random_below(130) / 100.0, d->now);
                (void)queue_tick(d->q, d->now, turns);
        }
        decide_at_random(d);
}

static void random_days_keep_the_rules(void **state)
{
        unsigned pairs = 0, waits = 0;

        for (unsigned day = 0; day < 40; day++) {
                struct day *d = calloc(1, sizeof(*d));

                assert_non_null(d);
                d->gpus = 1 + random_below(4);
                d->q = queue_with(d->gpus);
                d->now = S;
                for (unsigned i = 0; i < 400; i++) {
                        step(d);
                        if (i > 250) /* or more come than go */
                                queue_leave(d->q, any_job(d->q));
                }
                pairs += d->pairs;
                waits += d->waits;
                queue_free(d->q);
                free(d);
        }
        assert_true(pairs > 100 && waits > 1000); /* the days were not empty */
}

/* Jobs that all go well together would keep a job without a file from starting for ever. */
static bool has_partner(const struct queue *q, uint32_t id)
{
        const struct queue_gpu *g = queue_gpu(q, (unsigned)queue_find(q, id)->gpu);

        return g->jobs[0] && g->jobs[1];
}

static void no_job_starves_while_others_pair(void **state)
{
        struct queue *q = queue_with(1);
        uint32_t old, first = come(q, "p", 1, 0.5, S), second;
        uint64_t now = S;

        (void)decide(q, now);
        old = come(q, "alone", 2, 0, now);
        /* The GPU is never free, because each job finds a partner before it ends. */
        for (unsigned i = 0; i < 70 && !runs(q, old); i++) {
                now += 10 * S;
                second = come(q, "p", 1, 0.5, now);
                (void)queue_decide(q,
                                   &(struct queue_offer){second, first, WAY_SLICED, {0.9, 0.9}, 0},
                                   1, false, now, starts);
                assert_int_equal(runs(q, second), now < S + QUEUE_OLD_NS);
                if (runs(q, second))
                        assert_true(has_partner(q, first));
                queue_leave(q, first);
                first = second;
        }
        (void)decide(q, now);
        assert_true(runs(q, old));
        assert_true(now >= S + QUEUE_OLD_NS); /* nothing but its age helped */
        queue_free(q);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(jobs_get_free_gpus_in_the_order_of_arrival),
                cmocka_unit_test(a_pair_starts_only_if_both_keep_their_bounds),
                cmocka_unit_test(
                        two_jobs_that_wait_may_share_one_free_gpu_but_mps_only_for_one_user),
                cmocka_unit_test(a_job_alone_has_the_whole_card_so_nobody_joins_it_under_mps),
                cmocka_unit_test(
                        a_job_that_allows_mps_only_starts_in_its_half_and_only_its_user_s_jobs_join),
                cmocka_unit_test(
                        the_rest_of_a_shared_pair_stays_in_its_half_and_newcomers_share_with_it),
                cmocka_unit_test(jobs_wait_for_offers_only_if_not_all_can_have_a_gpu),
                cmocka_unit_test(an_old_job_keeps_a_gpu_closed_and_gets_it_alone),
                cmocka_unit_test(a_gpu_that_others_use_gets_no_job),
                cmocka_unit_test(one_user_does_not_fill_the_queue),
                cmocka_unit_test(jobs_of_an_earlier_daemon_come_back_where_they_run),
                cmocka_unit_test(a_job_in_its_half_that_comes_back_is_still_in_it),
                cmocka_unit_test(
                        a_pair_below_its_bound_for_10_s_goes_over_to_turns_and_stays_if_they_help),
                cmocka_unit_test(a_pair_goes_back_from_turns_that_are_worse_and_tries_them_once),
                cmocka_unit_test(a_job_that_says_nothing_is_not_below_its_bound),
                cmocka_unit_test(what_was_observed_corrects_the_next_prediction),
                cmocka_unit_test(random_days_keep_the_rules),
                cmocka_unit_test(no_job_starves_while_others_pair),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
