/* test_pairs.c: the pure parts of sublet bench pairs: the synthetic kernels, and the plan. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cli/pairs/kernels.h"
#include "cli/pairs/pairs_plan.h"

#define KERNELS 48
#define MODELS  17

static struct pairs_job jobs[KERNELS + MODELS];
static struct pairs_item *items;
static size_t n_items;

static void plan(unsigned kernels, unsigned models, bool shared)
{
        const bool ways[PAIRS_WAYS_COUNT] = {
                [PAIRS_SHARED] = shared, [PAIRS_SLICED] = true, [PAIRS_TURNS] = true};

        for (unsigned i = 0; i < kernels + models; i++)
                jobs[i] = (struct pairs_job){.torch = i >= kernels};
        free(items);
        assert_int_equal(pairs_plan(jobs, kernels + models, ways, 1, &items, &n_items), 0);
}

static unsigned times_planned(unsigned a, unsigned b, enum pairs_way way)
{
        unsigned n = 0;

        for (size_t i = 0; i < n_items; i++)
                n += items[i].way == way &&
                     ((items[i].a == a && items[i].b == b) || (items[i].a == b && items[i].b == a));
        return n;
}

static void all_pairs_are_planned_once(unsigned first, unsigned end, enum pairs_way way)
{
        for (unsigned a = first; a < end; a++)
                for (unsigned b = a; b < end; b++)
                        assert_int_equal(times_planned(a, b, way), 1);
}

static void each_pair_of_kernels_is_shared_once(void **state)
{
        for (unsigned n = 1; n <= 5; n++) {
                plan(n, 0, true);
                all_pairs_are_planned_once(0, n, PAIRS_SHARED);
        }
        plan(KERNELS, MODELS, true);
        all_pairs_are_planned_once(0, KERNELS, PAIRS_SHARED);
}

static void each_pair_of_models_is_shared_and_sliced_once(void **state)
{
        plan(KERNELS, MODELS, true);
        all_pairs_are_planned_once(KERNELS, KERNELS + MODELS, PAIRS_SHARED);
        all_pairs_are_planned_once(KERNELS, KERNELS + MODELS, PAIRS_SLICED);
}

static void without_mps_each_pair_of_kernels_is_sliced_once(void **state)
{
        plan(KERNELS, 0, false);
        all_pairs_are_planned_once(0, KERNELS, PAIRS_SLICED);
        for (size_t i = 0; i < n_items; i++)
                assert_int_not_equal(items[i].way, PAIRS_SHARED);
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

static void the_seed_determines_the_order(void **state)
{
        struct pairs_item first;

        plan(KERNELS, 0, true);
        first = items[0];
        plan(KERNELS, 0, true);
        assert_memory_equal(&first, &items[0], sizeof(first));
}

static void each_kernel_has_a_name_of_its_own(void **state)
{
        for (size_t i = 0; i < kernel_jobs_count; i++) {
                char name[KERNEL_NAME_MAX];

                kernel_name(&kernel_jobs[i], name);
                assert_ptr_equal(kernel_find(name), &kernel_jobs[i]);
        }
        assert_null(kernel_find("fp32"));
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
        assert_int_equal(kernel_ptx(&kernel_jobs[0], code, 1000), -ENOSPC);
}

static void ways_have_names(void **state)
{
        assert_int_equal(pairs_way_find("sliced,turns", 6), PAIRS_SLICED);
        assert_int_equal(pairs_way_find("slice", 5), -1);
        assert_string_equal(pairs_way_name(PAIRS_TURNS), "turns");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_pair_of_kernels_is_shared_once),
                cmocka_unit_test(each_pair_of_models_is_shared_and_sliced_once),
                cmocka_unit_test(without_mps_each_pair_of_kernels_is_sliced_once),
                cmocka_unit_test(no_pair_is_planned_twice_in_one_way),
                cmocka_unit_test(a_quarter_of_the_plan_has_each_job_in_proportion),
                cmocka_unit_test(the_seed_determines_the_order),
                cmocka_unit_test(each_kernel_has_a_name_of_its_own),
                cmocka_unit_test(the_code_of_each_kernel_fits_and_has_its_entry),
                cmocka_unit_test(ways_have_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
