/* test_pairing_plan.c: matching, and which jobs share a GPU, have one alone, or wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "pairing/match.h"
#include "pairing/plan.h"

/* ---- matching ---- */

static void more_pairs_count_more_than_any_weight(void **state)
{
        const struct match_edge path[] = {{0, 1, 0.1}, {1, 2, 16}, {2, 3, 0.1}};
        unsigned partners[4];

        assert_int_equal(match_run(4, path, 3, MATCH_CARDINALITY, partners), 2);
        assert_int_equal(partners[0], 1);
        assert_int_equal(partners[3], 2);
        assert_int_equal(match_run(4, path, 3, MATCH_WEIGHT, partners), 1);
        assert_int_equal(partners[1], 2);
        assert_int_equal(partners[0], MATCH_NONE);
}

static void of_as_many_pairs_the_heaviest_are_chosen(void **state)
{
        const struct match_edge square[] = {{0, 1, -1.1}, {1, 2, -1}, {2, 3, -1.1}, {3, 0, -1}};
        unsigned partners[4];

        assert_int_equal(match_run(4, square, 4, MATCH_CARDINALITY, partners), 2);
        assert_int_equal(partners[1], 2);
        assert_int_equal(partners[3], 0);
}

static void an_edge_that_is_none_is_refused(void **state)
{
        const struct match_edge beyond = {0, 2, 1}, itself = {1, 1, 1}, heavy = {0, 1, 17},
                                unknown = {0, 1, NAN};
        unsigned partners[2];

        assert_int_equal(match_run(2, &beyond, 1, MATCH_WEIGHT, partners), -EINVAL);
        assert_int_equal(match_run(2, &itself, 1, MATCH_WEIGHT, partners), -EINVAL);
        assert_int_equal(match_run(2, &heavy, 1, MATCH_WEIGHT, partners), -EINVAL);
        assert_int_equal(match_run(2, &unknown, 1, MATCH_WEIGHT, partners), -EINVAL);
        assert_int_equal(match_run(MATCH_NODES_MAX + 1, NULL, 0, MATCH_WEIGHT, partners), -EINVAL);
}

/* The number of pairs and the weight of the best matching of the nodes that are left. */
static void best_of(double weight[8][8], unsigned left, unsigned *ret_pairs, double *ret_sum)
{
        unsigned a = 0;

        *ret_pairs = 0;
        *ret_sum = 0;
        if (left == 0)
                return;
        while (!(left & 1u << a))
                a++;
        left &= ~(1u << a);
        best_of(weight, left, ret_pairs, ret_sum); /* a is in no pair */
        for (unsigned b = a + 1; b < 8; b++) {
                unsigned pairs;
                double sum;

                if (!(left & 1u << b) || weight[a][b] == 0)
                        continue;
                best_of(weight, left & ~(1u << b), &pairs, &sum);
                pairs++;
                sum += weight[a][b];
                if (pairs > *ret_pairs || (pairs == *ret_pairs && sum > *ret_sum)) {
                        *ret_pairs = pairs;
                        *ret_sum = sum;
                }
        }
}

static void a_matching_is_the_best_of_all(void **state)
{
        unsigned short seed[3] = {1, 2, 3};

        for (unsigned round = 0; round < 200; round++) {
                double weight[8][8] = {{0}}, best, got = 0;
                struct match_edge edges[28];
                unsigned partners[8], n = 0, pairs;

                for (unsigned a = 0; a < 8; a++)
                        for (unsigned b = a + 1; b < 8; b++) {
                                weight[a][b] = erand48(seed) < 0.4 ? erand48(seed) : 0;
                                if (weight[a][b] > 0)
                                        edges[n++] = (struct match_edge){a, b, weight[a][b]};
                        }
                best_of(weight, 0xff, &pairs, &best);
                assert_int_equal(match_run(8, edges, n, MATCH_CARDINALITY, partners), pairs);
                for (unsigned a = 0; a < 8; a++)
                        if (partners[a] != MATCH_NONE && partners[a] > a)
                                got += weight[a][partners[a]];
                assert_true(got >= best - 1e-5);
        }
}

/* Weights that are nearly sums of what is known of each node, as those of real jobs: the hardest.
 */
static void a_thousand_jobs_are_matched_within_a_second(void **state)
{
        enum { NODES = 1000 };
        _cleanup_free_ struct match_edge *edges = calloc(NODES * NODES / 2, sizeof(*edges));
        double of_node[NODES], sum = 0;
        unsigned partners[NODES];
        struct timespec begin, end;
        unsigned short seed[3] = {1, 2, 3};
        unsigned n = 0;

        assert_non_null(edges);
        for (unsigned i = 0; i < NODES; i++)
                of_node[i] = erand48(seed);
        for (unsigned a = 0; a < NODES; a++)
                for (unsigned b = a + 1; b < NODES; b++)
                        edges[n++] = (struct match_edge){a, b,
                                                         1 + 0.72 * (1 - of_node[a] * of_node[b]) +
                                                                 0.02 * erand48(seed)};
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
        assert_int_equal(match_run(NODES, edges, n, MATCH_CARDINALITY, partners), NODES / 2);
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        for (unsigned i = 0; i < n; i++)
                if (partners[edges[i].a] == edges[i].b)
                        sum += edges[i].weight;
        print_message("%u edges: weight %.4f in %.2f s\n", n, sum,
                      (double)(end.tv_sec - begin.tv_sec) +
                              (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
        assert_in_range(end.tv_sec - begin.tv_sec, 0, 10); /* a busy machine, or a sanitizer */
}

/* ---- plans ---- */

#define JOBS 12

/* Jobs whose pairs all fit the card; progress[a][b] is that of a beside b, 0: not possible. */
struct world {
        struct pairs pairs;
        struct job jobs[JOBS];
        struct turns_job turns[JOBS];
        struct model model;
        struct pairs_pair list[JOBS * JOBS];
        size_t n;
};

static struct world *new_world(unsigned jobs)
{
        struct world *w = calloc(1, sizeof(*w));

        assert_non_null(w);
        for (unsigned j = 0; j < JOBS; j++) {
                job_init(&w->jobs[j]);
                w->turns[j].memory_bytes = 10.0 * GIB;
        }
        for (unsigned m = 0; m < MODEL_MARGINS; m++)
                w->model.ways[WAY_SHARED].margins[m] = w->model.ways[WAY_SLICED].margins[m] = 1;
        w->pairs = (struct pairs){.jobs = w->jobs,
                                  .n = jobs,
                                  .model = &w->model,
                                  .turns = w->turns,
                                  .card = {.capacity_bytes = 80.0 * GIB}};
        return w;
}

static struct pairs_pair *add(struct world *w, unsigned a, unsigned b, enum way way, double of_a,
                              double of_b)
{
        struct pairs_pair *p = &w->list[w->n++];

        *p = (struct pairs_pair){.a = a, .b = b, .fits = way != WAY_TURNS};
        p->ways[way] = (struct pairs_way){true, way != WAY_TURNS, {of_a, of_b}, false};
        return p;
}

static void make(struct world *w, const struct plan_options *o, struct plan *ret)
{
        assert_int_equal(plan_make(&w->pairs, w->list, w->n, o, ret), 0);
}

static void a_pair_below_the_bound_is_not_made(void **state)
{
        const struct plan_options o = {.bound = 0.7};
        _cleanup_free_ struct world *w = new_world(2);
        _cleanup_plan_ struct plan plan = {0};

        add(w, 0, 1, WAY_SHARED, 0.95, 0.69);
        make(w, &o, &plan);
        assert_int_equal(plan.n_pairs, 0);
        assert_int_equal(plan.n_alone, 2);
}

static void the_margin_of_the_model_counts(void **state)
{
        const struct plan_options o = {.bound = 0.7};
        _cleanup_free_ struct world *w = new_world(2);
        _cleanup_plan_ struct plan plan = {0};

        w->model.ways[WAY_SHARED].margins[13] = 1.2; /* of 0.7 */
        add(w, 0, 1, WAY_SHARED, 0.9, 0.83);
        make(w, &o, &plan);
        assert_int_equal(plan.n_pairs, 0);
}

static void the_margin_is_wider_where_the_rate_on_half_of_the_sms_is_estimated(void **state)
{
        _cleanup_free_ struct world *w = new_world(2);
        struct pairs_pair *p = add(w, 0, 1, WAY_SHARED, 0.9, 0.8);
        enum way way;

        w->model.ways[WAY_SHARED].margins[13] = 1.1; /* of 0.7 */
        assert_int_equal(pairs_choose(&w->pairs, p, 0.7, &way), 0);
        p->ways[WAY_SHARED].estimated = true;
        assert_int_equal(pairs_choose(&w->pairs, p, 0.7, &way), -ENOENT);
        assert_int_equal(pairs_choose(&w->pairs, p, 0, &way), 0); /* any */
}

static void the_better_way_is_taken_if_it_is_better_by_more_than_noise(void **state)
{
        const struct plan_options o = {.bound = 0.5};
        _cleanup_free_ struct world *w = new_world(2);
        struct pairs_pair *p = add(w, 0, 1, WAY_SLICED, 0.6, 0.6);
        enum way way;

        p->ways[WAY_SHARED] = (struct pairs_way){true, true, {0.61, 0.6}, false};
        assert_int_equal(pairs_choose(&w->pairs, p, o.bound, &way), 0);
        assert_int_equal(way, WAY_SLICED);
        p->ways[WAY_SHARED].progress[0] = 0.7;
        assert_int_equal(pairs_choose(&w->pairs, p, o.bound, &way), 0);
        assert_int_equal(way, WAY_SHARED);
        p->ways[WAY_SHARED].progress[1] = 0.49; /* it does not keep the bound */
        assert_int_equal(pairs_choose(&w->pairs, p, o.bound, &way), 0);
        assert_int_equal(way, WAY_SLICED);
}

static void jobs_that_have_a_gpu_each_are_not_paired(void **state)
{
        const struct plan_options enough = {.bound = 0.5, .gpus = 2};
        const struct plan_options fewest = {.bound = 0.5, .gpus = 2, .fewest = true};
        _cleanup_free_ struct world *w = new_world(2);
        _cleanup_plan_ struct plan plan = {0}, few = {0};

        add(w, 0, 1, WAY_SHARED, 0.9, 0.9);
        make(w, &enough, &plan);
        assert_int_equal(plan.n_pairs, 0);
        assert_int_equal(plan.n_alone, 2);
        make(w, &fewest, &few);
        assert_int_equal(few.n_pairs, 1);
}

static void only_as_many_pairs_are_made_as_place_all_jobs(void **state)
{
        const struct plan_options o = {.bound = 0.5, .gpus = 3};
        _cleanup_free_ struct world *w = new_world(4);
        _cleanup_plan_ struct plan plan = {0};

        add(w, 0, 1, WAY_SHARED, 0.7, 0.7);
        add(w, 2, 3, WAY_SHARED, 0.9, 0.9);
        add(w, 1, 2, WAY_SHARED, 0.6, 0.6);
        make(w, &o, &plan);
        assert_int_equal(plan.n_pairs, 1);
        assert_int_equal(plan.pairs[0].pair->a, 2);
        assert_int_equal(plan.n_alone, 2);
        assert_int_equal(plan.n_waiting, 0);
}

static void with_too_few_gpus_throughput_decides_and_jobs_wait(void **state)
{
        const struct plan_options o = {.bound = 0.3, .gpus = 2};
        _cleanup_free_ struct world *w = new_world(6);
        _cleanup_plan_ struct plan plan = {0};

        add(w, 0, 1, WAY_SHARED, 0.9, 0.9);
        add(w, 2, 3, WAY_SHARED, 0.4, 0.4); /* less than one job alone does */
        make(w, &o, &plan);
        assert_int_equal(plan.n_pairs, 1);
        assert_int_equal(plan.pairs[0].pair->a, 0);
        assert_int_equal(plan.n_alone, 1);
        assert_int_equal(plan.n_waiting, 3);
}

static void the_best_pairs_are_taken_if_there_are_more_than_gpus(void **state)
{
        const struct plan_options o = {.bound = 0.3, .gpus = 1};
        _cleanup_free_ struct world *w = new_world(4);
        _cleanup_plan_ struct plan plan = {0};

        /* The heaviest matching has two pairs of 1.5, the one GPU is best used by that of 1.8. */
        add(w, 0, 1, WAY_SHARED, 0.75, 0.75);
        add(w, 1, 2, WAY_SHARED, 0.9, 0.9);
        add(w, 2, 3, WAY_SHARED, 0.75, 0.75);
        make(w, &o, &plan);
        assert_int_equal(plan.n_pairs, 1);
        assert_int_equal(plan.pairs[0].pair->a, 1);
        assert_int_equal(plan.n_waiting, 2);
}

static void pairs_past_memory_share_the_memory_of_the_host(void **state)
{
        const struct plan_options o = {.bound = 0.3, .host_bytes = 100};
        const struct plan_options bus = {.bound = 0.3, .bus_bytes_s = 10};
        _cleanup_free_ struct world *w = new_world(6);
        _cleanup_plan_ struct plan plan = {0}, over_bus = {0};

        for (unsigned i = 0; i < 6; i += 2) {
                struct pairs_pair *p = add(w, i, i + 1, WAY_TURNS, 0.45, 0.45);

                p->host_bytes = 40 + i;
                p->bus_bytes_s = 9;
        }
        make(w, &o, &plan);
        assert_int_equal(plan.n_pairs, 2); /* 40 + 42, and 44 are too much */
        assert_true(plan.host_bytes == 82);
        assert_int_equal(plan.n_alone, 2);
        make(w, &bus, &over_bus);
        assert_int_equal(over_bus.n_pairs, 1);
        assert_true(over_bus.bus_bytes_s == 9);
}

static void a_pair_that_is_given_up_makes_room_for_another(void **state)
{
        const struct plan_options o = {.bound = 0.3, .host_bytes = 50};
        _cleanup_free_ struct world *w = new_world(4);
        _cleanup_plan_ struct plan plan = {0};

        add(w, 0, 1, WAY_TURNS, 0.47, 0.47)->host_bytes = 40;
        add(w, 2, 3, WAY_TURNS, 0.47, 0.47)->host_bytes = 45;
        add(w, 1, 2, WAY_SHARED, 0.5, 0.5);
        make(w, &o, &plan);
        /* Both pairs in turns are too much for the host; one of them is as many as the pair that
         * fits, and heavier than it is none. */
        assert_int_equal(plan.n_pairs, 1);
        assert_true(plan.host_bytes <= 50);
}

static void a_job_larger_than_the_card_waits(void **state)
{
        const struct plan_options o = {.bound = 0.5, .gpus = 4};
        _cleanup_free_ struct world *w = new_world(2);
        _cleanup_plan_ struct plan plan = {0};

        w->turns[1].memory_bytes = 81.0 * GIB;
        make(w, &o, &plan);
        assert_int_equal(plan.n_alone, 1);
        assert_int_equal(plan.n_waiting, 1);
        assert_int_equal(plan.waiting[0], 1);
}

static void energy_prefers_the_pair_that_takes_less_power(void **state)
{
        const struct plan_options by_work = {.bound = 0.5},
                                  by_energy = {.bound = 0.5, .idle_w = 75};
        _cleanup_free_ struct world *w = new_world(3);
        _cleanup_plan_ struct plan work = {0}, energy = {0};

        w->jobs[0].gpu.power_w = 700;
        w->jobs[1].gpu.power_w = 700;
        w->jobs[2].gpu.power_w = 150;
        add(w, 0, 1, WAY_SHARED, 0.8, 0.8);
        add(w, 1, 2, WAY_SHARED, 0.8, 0.79);
        make(w, &by_work, &work);
        assert_int_equal(work.pairs[0].pair->a, 0);
        make(w, &by_energy, &energy);
        assert_int_equal(energy.pairs[0].pair->a, 1); /* idle power is a greater part of it */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(more_pairs_count_more_than_any_weight),
                cmocka_unit_test(of_as_many_pairs_the_heaviest_are_chosen),
                cmocka_unit_test(an_edge_that_is_none_is_refused),
                cmocka_unit_test(a_matching_is_the_best_of_all),
                cmocka_unit_test(a_thousand_jobs_are_matched_within_a_second),
                cmocka_unit_test(a_pair_below_the_bound_is_not_made),
                cmocka_unit_test(the_margin_of_the_model_counts),
                cmocka_unit_test(
                        the_margin_is_wider_where_the_rate_on_half_of_the_sms_is_estimated),
                cmocka_unit_test(the_better_way_is_taken_if_it_is_better_by_more_than_noise),
                cmocka_unit_test(jobs_that_have_a_gpu_each_are_not_paired),
                cmocka_unit_test(only_as_many_pairs_are_made_as_place_all_jobs),
                cmocka_unit_test(with_too_few_gpus_throughput_decides_and_jobs_wait),
                cmocka_unit_test(the_best_pairs_are_taken_if_there_are_more_than_gpus),
                cmocka_unit_test(pairs_past_memory_share_the_memory_of_the_host),
                cmocka_unit_test(a_pair_that_is_given_up_makes_room_for_another),
                cmocka_unit_test(a_job_larger_than_the_card_waits),
                cmocka_unit_test(energy_prefers_the_pair_that_takes_less_power),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
