/* test_pairing_models.c: what is said of two jobs without trees: turns, against pairs that were
 * measured on an H200; the estimate by uses; the features; and what is made of errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "pairing/calibrate.h"
#include "pairing/evaluate.h"
#include "pairing/features.h"
#include "pairing/turns_model.h"

static void assert_near(double value, double expected, double part)
{
        if (!(fabs(value - expected) <= part * fabs(expected)))
                fail_msg("%g is not within %g %% of %g", value, part * 100, expected);
}

/* ---- turns ---- */

/* An H200 whose rest is held by another program: docs/measurements/h200-pairs.md. */
static struct turns_card card_of_50_gib(void)
{
        struct turns_card card;
        struct job job;

        job_init(&job);
        job.measured.bus_gb_s = 55;
        turns_card_of(&job, &card);
        card.capacity_bytes = 50.3 * GIB;
        return card;
}

/* A job of 46 GiB with its context and libraries. */
static struct turns_job phases(double cpu_s, double gpu_s)
{
        return (struct turns_job){.memory_bytes = 47.3 * GIB, .gap_s = cpu_s, .burst_s = gpu_s};
}

static void a_handoff_takes_as_long_as_the_measured_ones(void **state)
{
        const struct turns_card card = card_of_50_gib();
        const struct turns_job jobs[2] = {phases(0, 1), phases(0, 1)};
        struct turns t;

        assert_int_equal(turns_predict(jobs, &card, &t), 0);
        assert_near(t.missing_bytes, 44.3 * GIB, 0.001);
        /* Restores of 44.5 to 45.2 GiB took 1.02 to 1.18 s once the memory was pinned. */
        assert_near(t.handoff_s, 1.1, 0.1);
        /* 34.5 GiB each way at 44.8 GB/s (h200-core.md) */
        assert_near(34.5 * GIB / card.each_way_bytes_s + card.fixed_s, 34.5 * GIB / 44.8e9, 0.1);
}

static void jobs_in_phases_take_as_long_as_the_measured_ones(void **state)
{
        const struct turns_card card = card_of_50_gib();
        const struct turns_job jobs[2] = {phases(5, 5), phases(5, 5)};
        struct turns t;

        assert_int_equal(turns_predict(jobs, &card, &t), 0);
        /* Three times 5 s + 5 s, after 6.6 and 9.05 s of start (36.6 and 39.05 s alone). Both begin
         * together, so one waits out the other's first burst; then they alternate. Together they
         * took 53.07 and 51.36 s. */
        assert_near(6.6 + 5 + 30 / t.progress[0], 53.07, 0.1);
        assert_near(9.05 + 5 + 30 / t.progress[0], 51.36, 0.1);
}

static void jobs_with_one_phase_take_as_long_as_the_measured_ones(void **state)
{
        const struct turns_card card = card_of_50_gib();
        const struct turns_job jobs[2] = {phases(12.5, 12.5), phases(2.5, 22.5)};
        struct turns t;

        assert_int_equal(turns_predict(jobs, &card, &t), 0);
        /* 12.5 + 12.5 s: a burst is shorter than a turn, so there is one hand-off. 31.23 and 29.43
         * s alone, 47.45 and 45.78 s together. */
        assert_true(t.quantum_s > 12.5);
        assert_near((31.23 + 29.43) / 2 + 12.5 + t.handoff_s, (47.45 + 45.78) / 2, 0.1);
        /* 2.5 + 22.5 s: a turn ends within each burst, so there are three. 30.69 and 29.68 s alone,
         * 61.91 and 58.02 s together. */
        assert_true(t.quantum_s < 22.5 && 2 * t.quantum_s > 22.5);
        assert_near((30.69 + 29.68) / 2 + 22.5 + 3 * t.handoff_s, (61.91 + 58.02) / 2, 0.1);
}

static void two_busy_jobs_share_the_time_but_for_the_handoffs(void **state)
{
        struct turns_card card = card_of_50_gib();
        const struct turns_job jobs[2] = {phases(0, 1), phases(0, 1)};
        struct turns t;

        card.quantum_s = 10;
        assert_int_equal(turns_predict(jobs, &card, &t), 0);
        assert_near(t.progress[0], 10 / (20 + 2 * t.handoff_s), 1e-6);
        assert_near(t.progress[1], t.progress[0], 1e-6);
        /* Each way, the missing bytes move once in each hand-off. */
        assert_near(t.bus_bytes_s, t.missing_bytes / (10 + t.handoff_s), 1e-6);
        assert_near(t.host_bytes, 2 * t.missing_bytes, 1e-9);
}

static void only_missing_bytes_move(void **state)
{
        struct turns_card card = card_of_50_gib();
        struct turns_job jobs[2] = {phases(0, 1), phases(0, 1)};
        struct turns t;

        jobs[0].memory_bytes = 20 * GIB;
        jobs[1].memory_bytes = 30 * GIB;
        assert_int_equal(turns_predict(jobs, &card, &t), 0);
        assert_true(t.missing_bytes == 0 && t.bus_bytes_s == 0 && t.host_bytes == 0);
        jobs[1].memory_bytes = 31.3 * GIB;
        assert_int_equal(turns_predict(jobs, &card, &t), 0);
        assert_near(t.missing_bytes, 1.0 * GIB, 1e-6);
        jobs[1].memory_bytes = 51 * GIB;
        assert_int_equal(turns_predict(jobs, &card, &t), -ENOSPC);
}

static void a_gap_is_used_only_if_it_is_worth_the_move(void **state)
{
        const struct turns_card card = card_of_50_gib();
        const struct turns_job brief[2] = {phases(1, 20), phases(0, 1)};
        const struct turns_job idle[2] = {phases(30, 5), phases(0, 1)};
        struct turns t;

        assert_int_equal(turns_predict(brief, &card, &t), 0);
        assert_true(t.progress[0] + t.progress[1] < 1);
        assert_int_equal(turns_predict(idle, &card, &t), 0);
        assert_true(t.progress[0] + t.progress[1] > 1.2);
}

/* ---- the estimate by uses ---- */

static void the_drivers_slices_halve_two_busy_jobs_but_for_the_switches(void **state)
{
        const struct roof_job busy[2] = {{.duty = 1}, {.duty = 1}};
        const struct roof_job idle[2] = {{.duty = 0.5}, {.duty = 0.01}};
        double progress[2];

        roof_progress(busy, 0, progress);
        assert_near(progress[0], 0.45, 1e-6); /* 0.447 to 0.459 on an H200 */
        roof_progress(idle, 0, progress);
        assert_true(progress[0] > 0.98 && progress[1] > 0.98);
}

/* Pairs of kernels that were measured on an H200 with driver 580: bursts and gaps of the host. */
static void a_host_that_waits_gives_its_slice_up(void **state)
{
        const struct roof_job reads = {.duty = 0.418, .interval_s = 112.6e-6, .waits = true};
        const struct roof_job updates = {.duty = 0.693, .interval_s = 125.7e-6, .waits = true};
        const struct roof_job fp32 = {.duty = 0.745, .interval_s = 617.1e-6, .waits = true};
        const struct roof_job busy = {.duty = 1, .interval_s = 952e-6};
        double progress[2];

        roof_progress((struct roof_job[2]){reads, busy}, 0, progress);
        assert_near(progress[0], 0.043, 0.05);
        assert_near(progress[1], 0.82, 0.05);
        roof_progress((struct roof_job[2]){busy, fp32}, 0, progress);
        assert_near(progress[0], 0.725, 0.05);
        assert_near(progress[1], 0.212, 0.05);
        roof_progress((struct roof_job[2]){updates, updates}, 0, progress);
        assert_near(progress[0], 0.263, 0.05);
        assert_near(progress[1], 0.263, 0.05);
}

/* Models that were measured on an H100 with driver 580. */
static void a_shared_job_has_its_half_less_what_the_other_takes_of_the_dram(void **state)
{
        /* resnet50-train-b32-bf16; beside itself 0.515 */
        const struct roof_job resnet = {
                .duty = 1, .use = {[ROOF_DRAM] = 0.367}, .half = 0.67, .kernel_s = 12e-6};
        const struct roof_job decode = {.duty = 1, .use = {[ROOF_DRAM] = 0.66}, .half = 0.96};
        const struct roof_job server = {
                .duty = 0.15, .use = {[ROOF_DRAM] = 0.01}, .half = 1, .paced = true};
        double progress[2];

        roof_progress((struct roof_job[2]){resnet, resnet}, 1, progress);
        assert_near(progress[0], 0.515, 0.15);
        roof_progress((struct roof_job[2]){resnet, server}, 1, progress);
        assert_near(progress[0], 0.65, 0.03);
        assert_near(progress[1], 1, 1e-9); /* its pauses take up what it waits */
        roof_progress((struct roof_job[2]){resnet, decode}, 1, progress);
        assert_true(progress[0] < 0.5 && progress[1] > progress[0]);
}

static void a_rate_on_half_of_the_sms_that_nobody_measured_is_estimated(void **state)
{
        struct roof_job j = {.duty = 1,
                             .sm = 0.95,
                             .occupancy = 0.52,
                             .use = {[ROOF_DRAM] = 0.39, [ROOF_TENSOR] = 0.3}};

        assert_near(roof_half(&j), 0.57, 0.03); /* vit-infer-b64-fp16: 0.57 */
        j = (struct roof_job){.duty = 1, .sm = 0.15, .occupancy = 0.02};
        assert_near(roof_half(&j), 0.98, 0.03); /* mobilenet-infer-b1-fp16: 0.98 */
        j.half = 0.7;
        assert_near(roof_half(&j), 0.7, 1e-9);
        j = (struct roof_job){.duty = 1,
                              .sm = NAN,
                              .occupancy = NAN,
                              .half = NAN,
                              .use = {[ROOF_DRAM] = NAN, [ROOF_TENSOR] = NAN}};
        assert_near(roof_half(&j), 0.54,
                    0.01); /* the least that is known: it keeps the card busy */
}

static void uses_of_the_fullest_resource_add_up(void **state)
{
        struct roof_job jobs[2] = {{.duty = 1, .use = {[ROOF_DRAM] = 0.8, [ROOF_TENSOR] = 0.1}},
                                   {.duty = 1, .use = {[ROOF_DRAM] = 0.7, [ROOF_TENSOR] = 0.2}}};

        assert_near(roof_fullest(jobs), 1.5, 1e-9);
        jobs[1].use[ROOF_DRAM] = NAN; /* not known: not counted */
        assert_near(roof_fullest(jobs), 0.8, 1e-9);
}

/* ---- features ---- */

static unsigned column(const char *name)
{
        for (unsigned i = 0; i < FEATURES; i++)
                if (strcmp(feature_names[i], name) == 0)
                        return i;
        fail_msg("there is no feature %s", name);
        return 0;
}

static void each_feature_has_a_name_of_its_own(void **state)
{
        for (unsigned i = 0; i < FEATURES; i++) {
                assert_int_equal(column(feature_names[i]), i);
                assert_true(feature_signs[i] >= -1 && feature_signs[i] <= 1);
        }
}

static void what_is_not_known_of_a_job_is_not_known_of_a_pair(void **state)
{
        struct features a, b;
        float row[2 * FEATURES];
        struct job job;

        job_init(&job);
        features_of(&job, &a);
        job.gpu.dram = 0.6;
        features_of(&job, &b);
        features_rows(&a, &b, row);
        assert_true(isnan(row[column("a.dram")]) && isnan(row[column("sum_dram")]));
        assert_near((double)row[column("b.dram")], 0.6, 1e-6);
        features_rows(&b, &b, row);
        assert_near((double)row[column("sum_dram")], 1.2, 1e-6);
}

static void kernels_count_by_their_share_of_the_time(void **state)
{
        struct job_kernel kernels[2];
        struct features f;
        float row[2 * FEATURES];
        struct job job;

        job_init(&job);
        for (unsigned i = 0; i < 2; i++) {
                job_kernel_init(&kernels[i]);
                kernels[i].block[0] = 256;
                kernels[i].block[1] = kernels[i].block[2] = 1;
        }
        kernels[0].share = 0.75;
        kernels[0].seconds = 1e-3;
        kernels[0].waves = 0.5;
        kernels[1].share = 0.25;
        kernels[1].seconds = 1e-5;
        kernels[1].waves = 8;
        job.kernels = kernels;
        job.n_kernels = 2;
        features_of(&job, &f);
        features_rows(&f, &f, row);
        assert_near((double)row[column("a.length")], 0.75 * -3 + 0.25 * -5, 1e-5);
        assert_near((double)row[column("a.length_most")], -3, 1e-5);
        assert_near((double)row[column("a.filled")], 0.75 * 0.5 + 0.25, 1e-5);
        assert_near((double)row[column("a.threads")], 256, 1e-5);
        assert_true(isnan(row[column("a.registers")]));
}

static void trees_count_for_their_part_beside_the_formulae(void **state)
{
        float row[FEATURES] = {0};

        row[column("roof_shared")] = 0.25f;
        row[column("roof_sliced")] = 0.64f;
        assert_near(model_blend(WAY_SHARED, row, 1, 1), 1, 1e-6);
        assert_near(model_blend(WAY_SHARED, row, 1, 0.5), 0.5, 1e-6);
        assert_near(model_blend(WAY_SLICED, row, 1, 0.5), 0.8, 1e-6);
        assert_near(model_blend(WAY_SHARED, row, 0.9, 0), 0.25, 1e-6);
}

/* ---- errors ---- */

static void a_quantile_of_few_values_errs_to_the_greater(void **state)
{
        double values[] = {4, 1, 3, 2};

        assert_true(calibrate_quantile(values, 4, 0.5) == 3);
        assert_true(calibrate_quantile(values, 4, 0.99) == 4);
}

static void delta_and_margins_keep_the_bound_for_97_of_100(void **state)
{
        struct calibrate_pair pairs[500];
        struct model_way way = {0};
        unsigned broken = 0, above = 0;

        /* Predictions of 0.3 to 1 that are up to a tenth too high, evenly. */
        for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++)
                for (unsigned k = 0; k < 2; k++) {
                        const double predicted = 0.3 + 0.7 * i / ARRAY_SIZE(pairs);

                        pairs[i].predicted[k] = predicted;
                        pairs[i].measured[k] = predicted / (1 + 0.1 * ((i * 7 + k * 3) % 11) / 10);
                }
        assert_int_equal(calibrate(pairs, ARRAY_SIZE(pairs), &way), 0);
        assert_near(way.delta, 0.1, 0.01);
        assert_true(way.errors.mean > 0.045 && way.errors.mean < 0.055);
        assert_true(way.low >= 1 / 1.1 - 1e-9 && way.high <= 1 + 1e-9);
        for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++)
                for (unsigned k = 0; k < 2; k++)
                        if (pairs[i].predicted[k] >= model_threshold(&way, 0.7)) {
                                above++;
                                broken += pairs[i].measured[k] < 0.7;
                        }
        assert_true(above > 300 && broken * 100 <= above * 3);
        assert_true(model_threshold(&way, 0.7) <= 0.7 * (1 + way.delta) + 1e-9);
        assert_true(model_threshold(&way, 0.7) >= 0.7);
}

/* Predictions of half and more of which a fifth are of jobs that starve, up to 0.8. */
static void margins_pass_over_the_region_where_jobs_starve(void **state)
{
        struct calibrate_pair pairs[500];
        struct model_way way = {0};

        for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++) {
                const double predicted = 0.5 + 0.5 * i / ARRAY_SIZE(pairs);
                const bool starves = predicted < 0.8 && i % 5 == 0;

                pairs[i] = (struct calibrate_pair){{predicted, predicted},
                                                   {predicted, starves ? 0.02 : predicted}};
        }
        assert_int_equal(calibrate(pairs, ARRAY_SIZE(pairs), &way), 0);
        assert_true(way.delta > 20);
        assert_true(model_threshold(&way, 0.5) > 0.7 && model_threshold(&way, 0.5) < 0.81);
        assert_true(model_threshold(&way, 0.8) < 0.81);
}

static void errors_are_summed_up_above_a_progress(void **state)
{
        struct evaluate_prediction list[] = {
                {0.6, 0.5, 0.5}, {0.4, 0.5, 0.5}, {0.1, 0.1, 0.01}, {0.9, 0.9, 1}};
        const struct evaluate_list all = {list, ARRAY_SIZE(list)};
        struct evaluate_errors e;

        assert_int_equal(evaluate_errors(&all, 0, false, &e), 0);
        assert_int_equal(e.n, 4);
        assert_near(e.mean, (0.2 + 0.2 + 9 + 0.1) / 4, 1e-9);
        assert_int_equal(evaluate_errors(&all, EVALUATE_LEAST, false, &e), 0);
        assert_int_equal(e.n, 3);
        assert_near(e.p90, 0.2, 1e-9);
        assert_near(e.points, 0.1, 1e-9);
        assert_int_equal(evaluate_errors(&all, EVALUATE_LEAST, true, &e), 0);
        assert_near(e.mean, 0.1 / 3, 1e-9);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_handoff_takes_as_long_as_the_measured_ones),
                cmocka_unit_test(jobs_in_phases_take_as_long_as_the_measured_ones),
                cmocka_unit_test(jobs_with_one_phase_take_as_long_as_the_measured_ones),
                cmocka_unit_test(two_busy_jobs_share_the_time_but_for_the_handoffs),
                cmocka_unit_test(only_missing_bytes_move),
                cmocka_unit_test(a_gap_is_used_only_if_it_is_worth_the_move),
                cmocka_unit_test(the_drivers_slices_halve_two_busy_jobs_but_for_the_switches),
                cmocka_unit_test(a_host_that_waits_gives_its_slice_up),
                cmocka_unit_test(a_shared_job_has_its_half_less_what_the_other_takes_of_the_dram),
                cmocka_unit_test(a_rate_on_half_of_the_sms_that_nobody_measured_is_estimated),
                cmocka_unit_test(uses_of_the_fullest_resource_add_up),
                cmocka_unit_test(each_feature_has_a_name_of_its_own),
                cmocka_unit_test(what_is_not_known_of_a_job_is_not_known_of_a_pair),
                cmocka_unit_test(kernels_count_by_their_share_of_the_time),
                cmocka_unit_test(trees_count_for_their_part_beside_the_formulae),
                cmocka_unit_test(a_quantile_of_few_values_errs_to_the_greater),
                cmocka_unit_test(delta_and_margins_keep_the_bound_for_97_of_100),
                cmocka_unit_test(margins_pass_over_the_region_where_jobs_starve),
                cmocka_unit_test(errors_are_summed_up_above_a_progress),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
