/* test_pairs.c: the pure parts of sublet bench pairs: the synthetic kernels, and the plan. */
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "lab/pairs/kernels.h"
#include "lab/pairs/pairs_plan.h"

#define KERNELS  48
#define MODELS   17
#define MANY     121
#define FAMILIES 11
#define DRAWN    330 /* a multiple of the families */

static struct pairs_job jobs[MANY];
static struct pairs_item *items;
static size_t n_items;

static void plan_as(unsigned kernels, unsigned models, const struct pairs_choice *choice)
{
        for (unsigned i = 0; i < kernels + models; i++) {
                jobs[i] = (struct pairs_job){.torch = i >= kernels};
                (void)snprintf(jobs[i].family, sizeof(jobs[i].family), "%u", i % FAMILIES);
        }
        free(items);
        assert_int_equal(pairs_plan(jobs, kernels + models, choice, &items, &n_items), 0);
}

static void plan(unsigned kernels, unsigned models, bool shared)
{
        plan_as(kernels, models,
                &(struct pairs_choice){
                        .ways = {[WAY_SHARED] = shared, [WAY_SLICED] = true, [WAY_TURNS] = true},
                        .seed = 1});
}

static unsigned times_planned(unsigned a, unsigned b, enum way way)
{
        unsigned n = 0;

        for (size_t i = 0; i < n_items; i++)
                n += items[i].way == way &&
                     ((items[i].a == a && items[i].b == b) || (items[i].a == b && items[i].b == a));
        return n;
}

static void all_pairs_are_planned_once(unsigned first, unsigned end, enum way way)
{
        for (unsigned a = first; a < end; a++)
                for (unsigned b = a; b < end; b++)
                        assert_int_equal(times_planned(a, b, way), 1);
}

static void each_pair_of_kernels_is_shared_once(void **state)
{
        for (unsigned n = 1; n <= 5; n++) {
                plan(n, 0, true);
                all_pairs_are_planned_once(0, n, WAY_SHARED);
        }
        plan(KERNELS, MODELS, true);
        all_pairs_are_planned_once(0, KERNELS, WAY_SHARED);
}

static void each_pair_of_models_is_shared_and_sliced_once(void **state)
{
        plan(KERNELS, MODELS, true);
        all_pairs_are_planned_once(KERNELS, KERNELS + MODELS, WAY_SHARED);
        all_pairs_are_planned_once(KERNELS, KERNELS + MODELS, WAY_SLICED);
}

static void without_mps_each_pair_of_kernels_is_sliced_once(void **state)
{
        plan(KERNELS, 0, false);
        all_pairs_are_planned_once(0, KERNELS, WAY_SLICED);
        for (size_t i = 0; i < n_items; i++)
                assert_int_not_equal(items[i].way, WAY_SHARED);
}

static void no_pair_is_planned_twice_in_one_way(void **state)
{
        plan(KERNELS, MODELS, true);
        for (size_t i = 0; i < n_items; i++)
                assert_int_equal(times_planned(items[i].a, items[i].b, items[i].way), 1);
}

/* Kernels and models alike: a run that is cut off has used all of them. */
static void a_quarter_of_the_plan_has_each_job_in_proportion(void **state)
{
        unsigned whole[KERNELS + MODELS] = {0}, part[KERNELS + MODELS] = {0};

        plan(KERNELS, MODELS, true);
        for (size_t i = 0; i < n_items; i++) {
                whole[items[i].a]++;
                whole[items[i].b]++;
                part[items[i].a] += i < n_items / 4;
                part[items[i].b] += i < n_items / 4;
        }
        for (unsigned j = 0; j < KERNELS + MODELS; j++)
                assert_in_range(4 * part[j], whole[j] * 2 / 3, whole[j] * 4 / 3);
}

/* A job has K partners, one less if it is its own, and of as many families. */
static void partners_are_as_many_as_asked_and_of_different_families(void **state)
{
        const unsigned n = MANY, partners = 8;

        plan_as(n, 0,
                &(struct pairs_choice){
                        .ways = {[WAY_SHARED] = true}, .seed = 3, .partners = partners});
        assert_in_range(n_items, n * partners / 2, n * partners / 2 + partners);
        for (unsigned j = 0; j < n; j++) {
                bool families[FAMILIES] = {false};
                unsigned seen = 0, different = 0;

                for (size_t i = 0; i < n_items; i++) {
                        const unsigned other = items[i].a == j ? items[i].b : items[i].a;

                        if (items[i].a != j && items[i].b != j)
                                continue;
                        seen++;
                        different += !families[other % FAMILIES];
                        families[other % FAMILIES] = true;
                }
                assert_int_equal(seen, partners);
                assert_in_range(different, partners - 2, partners);
        }
        for (size_t i = 0; i < n_items; i++)
                assert_int_equal(times_planned(items[i].a, items[i].b, items[i].way), 1);
}

static void within_has_all_pairs_in_each_way(void **state)
{
        const struct pairs_choice choice = {.ways = {true, true, true}, .seed = 1, .within = true};

        plan_as(15, 9, &choice);
        for (unsigned way = 0; way < WAYS; way++)
                all_pairs_are_planned_once(0, 24, (enum way)way);
}

static void chosen_jobs_are_of_all_families(void **state)
{
        bool families[FAMILIES] = {false};

        plan(MANY, 0, true);
        pairs_choose(jobs, MANY, FAMILIES, 5);
        for (unsigned i = 0; i < FAMILIES; i++) {
                const int family = atoi(jobs[i].family);

                assert_false(families[family]);
                families[family] = true;
        }
}

static void the_seed_determines_the_order(void **state)
{
        struct pairs_item *first;
        size_t n;

        plan(KERNELS, 0, true);
        n = n_items;
        first = test_calloc(n, sizeof(*first));
        memcpy(first, items, n * sizeof(*first));
        plan(KERNELS, 0, true);
        assert_int_equal(n_items, n);
        for (size_t i = 0; i < n; i++) {
                assert_int_equal(items[i].a, first[i].a);
                assert_int_equal(items[i].b, first[i].b);
                assert_int_equal(items[i].way, first[i].way);
        }
        test_free(first);
}

static void each_kernel_has_a_name_of_its_own(void **state)
{
        for (size_t i = 0; i < kernel_jobs_count; i++) {
                char name[KERNEL_NAME_MAX];
                struct kernel_step step;

                kernel_name(&kernel_jobs[i], name);
                assert_int_equal(kernel_find(name, &step), 0);
                assert_int_equal(step.n, 1);
                assert_int_equal(step.kernels[0].threads, kernel_jobs[i].threads);
                assert_int_equal(step.kernels[0].blocks_per_sm, kernel_jobs[i].blocks_per_sm);
        }
}

static void a_job_beyond_the_table_is_made_again_from_its_name(void **state)
{
        for (unsigned i = 0; i < DRAWN; i++) {
                char name[KERNEL_NAME_MAX], again[KERNEL_NAME_MAX];
                const char *family;
                struct kernel_step step;
                struct kernel_job job;

                kernel_draw_name(7, i, name, &family);
                assert_true(strlen(name) < KERNEL_NAME_MAX - 1);
                if (kernel_find(name, &step) < 0)
                        fail_msg("%s", name);
                if (strcmp(family, "mix") == 0) {
                        assert_in_range(step.n, 2, KERNEL_PARTS_MAX);
                        continue;
                }
                kernel_draw(7, i, &job);
                assert_int_equal(step.n, 1);
                assert_int_equal(step.kernels[0].footprint_kib, job.footprint_kib);
                assert_int_equal(step.kernels[0].blocks_per_sm, job.blocks_per_sm);
                kernel_name(&step.kernels[0], again);
                assert_string_equal(again, name);
        }
}

static void a_name_of_no_job_is_refused(void **state)
{
        static const char *const names[] = {
                "",
                "fp32",
                "fp32-t256",
                "none-t256-v8-waves1-200us",
                "fp32-t256-v8-waves1-200us-",
                "fp32-t256-v8-waves0-200us",
                "fp32-t256-v8-waves1-0200us",
                "fp32-v8-t256-waves1-200us",
                "fp32-t100-v8-waves1-200us",
                "fp32-t2048-v8-waves1-200us",
                "fp32-t256-v999-waves1-200us",
                "fp32-i8-t256-v8-waves1-200us",
                "read-t256-v8-waves1-200us",
                "fp32-t256-v8-waves1-200us-gap100",
                "fp32-t256-v8-q1-waves1-200us",
                "fp32-t256-v8-waves99999999999999999999-200us",
                "mix1-s1-n6",
                "mix5-s1-n6",
                "mix2-s1-n06",
                "mix2-s1-n6x",
                "mix2-s1",
        };
        struct kernel_step step;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (kernel_find(names[i], &step) != -ENOENT)
                        fail_msg("%s", names[i]);
}

/* Sums of what the drawn kernels are, for each parameter. */
static void drawn_kernels_cover_the_parameters(void **state)
{
        for (uint64_t seed = 1; seed <= 5; seed++) {
                unsigned families[KERNEL_FAMILIES_COUNT] = {0}, lengths[4] = {0}, free_part = 0,
                         small = 0, paused = 0, bounded = 0, long_waves = 0, beside_memory = 0;

                for (unsigned i = 0; i < DRAWN; i++) {
                        struct kernel_job k;

                        kernel_draw(seed, i, &k);
                        families[k.family]++;
                        lengths[k.us < 80 ? 0 : k.us < 316 ? 1 : k.us < 1260 ? 2 : 3]++;
                        small += k.grid < 0;
                        long_waves += k.grid >= 8;
                        paused += k.gap > 0;
                        bounded += k.blocks_per_sm > 0;
                        beside_memory += k.intensity > 0;
                        free_part += k.grid < 0 || k.gap >= 30 ||
                                     (k.blocks_per_sm && k.blocks_per_sm * k.threads <= 512);
                        assert_in_range(k.us, 20, 5000);
                        assert_in_range(k.gap, 0, 60);
                        assert_in_range(k.grid + 90, 0, 110);
                }
                for (unsigned f = 0; f < KERNEL_FAMILIES_COUNT; f++)
                        assert_in_range(families[f], DRAWN / 11 - 4, DRAWN / 11 + 5);
                for (unsigned l = 0; l < 4; l++)
                        assert_in_range(lengths[l], DRAWN / 5, DRAWN / 3);
                assert_in_range(free_part, DRAWN * 3 / 10, DRAWN / 2);
                assert_in_range(small, DRAWN / 7, DRAWN / 4);
                assert_in_range(paused, DRAWN / 7, DRAWN / 4);
                assert_in_range(bounded, DRAWN / 4, DRAWN / 2);
                assert_in_range(long_waves, DRAWN / 6, DRAWN / 3);
                assert_in_range(beside_memory, DRAWN / 5, DRAWN / 2);
        }
}

/* A sequence whose parameters go up and down together would cover a line only. */
static void drawn_parameters_do_not_depend_on_each_other(void **state)
{
        enum { FEATURES_OF = 6 };
        double values[DRAWN][FEATURES_OF], mean[FEATURES_OF] = {0};

        for (unsigned i = 0; i < DRAWN; i++) {
                struct kernel_job k;

                kernel_draw(1, i, &k);
                values[i][0] = log(k.us);
                values[i][1] = k.grid;
                values[i][2] = k.gap;
                values[i][3] = k.blocks_per_sm > 0;
                values[i][4] = log(k.threads);
                values[i][5] = k.family;
                for (unsigned f = 0; f < FEATURES_OF; f++)
                        mean[f] += values[i][f] / DRAWN;
        }
        for (unsigned f = 0; f < FEATURES_OF; f++)
                for (unsigned g = f + 1; g < FEATURES_OF; g++) {
                        double both = 0, one = 0, other = 0;

                        for (unsigned i = 0; i < DRAWN; i++) {
                                const double a = values[i][f] - mean[f], b = values[i][g] - mean[g];

                                both += a * b;
                                one += a * a;
                                other += b * b;
                        }
                        if (fabs(both) > 0.15 * sqrt(one * other))
                                fail_msg("%u and %u: %g", f, g, both / sqrt(one * other));
                }
}

static void the_code_of_each_kernel_fits_and_has_its_entry(void **state)
{
        static char code[KERNEL_PTX_MAX];

        for (size_t i = 0; i < kernel_jobs_count; i++) {
                char entry[KERNEL_NAME_MAX];

                kernel_entry(&kernel_jobs[i], entry);
                assert_int_equal(kernel_ptx(&kernel_jobs[i], code, sizeof(code)), 0);
                assert_non_null(strstr(code, entry));
                assert_string_equal(code + strlen(code) - 9, "  ret;\n}\n");
        }
        for (unsigned i = 0; i < DRAWN; i++) {
                struct kernel_job job;

                kernel_draw(3, i, &job);
                assert_int_equal(kernel_ptx(&job, code, sizeof(code)), 0);
        }
        assert_int_equal(kernel_ptx(&kernel_jobs[0], code, 1000), -ENOSPC);
}

static void ways_are_read_from_one_text(void **state)
{
        bool ways[WAYS];

        assert_int_equal(ways_read("sliced,turns", ways), 0);
        assert_true(ways[WAY_SLICED] && ways[WAY_TURNS] && !ways[WAY_SHARED]);
        assert_int_equal(ways_read("auto", ways), 0);
        assert_true(ways[WAY_SLICED] && ways[WAY_TURNS] && ways[WAY_SHARED]);
}

static void malformed_ways_are_refused_and_leave_the_result_alone(void **state)
{
        static const char *const wrong[] = {"",        "slice",   "slicedd",     "sliced,",
                                            ",sliced", "a,turns", "sliced,auto", "sliced, turns"};
        bool ways[WAYS] = {[WAY_TURNS] = true};

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_int_equal(ways_read(wrong[i], ways), -EINVAL);
        assert_true(ways[WAY_TURNS] && !ways[WAY_SLICED] && !ways[WAY_SHARED]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_pair_of_kernels_is_shared_once),
                cmocka_unit_test(each_pair_of_models_is_shared_and_sliced_once),
                cmocka_unit_test(without_mps_each_pair_of_kernels_is_sliced_once),
                cmocka_unit_test(no_pair_is_planned_twice_in_one_way),
                cmocka_unit_test(a_quarter_of_the_plan_has_each_job_in_proportion),
                cmocka_unit_test(partners_are_as_many_as_asked_and_of_different_families),
                cmocka_unit_test(within_has_all_pairs_in_each_way),
                cmocka_unit_test(chosen_jobs_are_of_all_families),
                cmocka_unit_test(the_seed_determines_the_order),
                cmocka_unit_test(each_kernel_has_a_name_of_its_own),
                cmocka_unit_test(a_job_beyond_the_table_is_made_again_from_its_name),
                cmocka_unit_test(a_name_of_no_job_is_refused),
                cmocka_unit_test(drawn_kernels_cover_the_parameters),
                cmocka_unit_test(drawn_parameters_do_not_depend_on_each_other),
                cmocka_unit_test(the_code_of_each_kernel_fits_and_has_its_entry),
                cmocka_unit_test(ways_are_read_from_one_text),
                cmocka_unit_test(malformed_ways_are_refused_and_leave_the_result_alone),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
