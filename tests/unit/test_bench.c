/* test_bench.c: the pure parts of sublet bench: the choice of mixes, their sizes, and the three
 * forms of the result. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "lab/bench/bench.h"

static const struct bench_mix *chosen[BENCH_MIXES_MAX];
static char wrong[BENCH_TEXT_MAX];

static const struct bench_mix *mix(const char *name)
{
        assert_int_equal(bench_choose_mixes(name, chosen, wrong), 1);
        return chosen[0];
}

static void a_list_chooses_mixes_by_name_and_by_the_beginning_of_a_name(void **state)
{
        assert_int_equal(bench_choose_mixes("big,small_90", chosen, wrong), 3);
        assert_string_equal(chosen[0]->name, "big_50");
        assert_string_equal(chosen[1]->name, "big_90");
        assert_string_equal(chosen[2]->name, "small_90");
        assert_int_equal(bench_choose_mixes("grow", chosen, wrong), 5);
}

static void a_name_that_chooses_nothing_is_named(void **state)
{
        assert_int_equal(bench_choose_mixes("big_50,bi", chosen, wrong), -EINVAL);
        assert_string_equal(wrong, "bi");
        assert_int_equal(bench_choose_mixes("", chosen, wrong), -EINVAL);
        assert_int_equal(bench_choose_mixes("grow,grow,grow,grow", chosen, wrong), -E2BIG);
}

static void two_small_programs_fit_and_two_big_ones_do_not(void **state)
{
        assert_true(bench_mix_fits(mix("small_50"), 16 * GIB, 2));
        assert_false(bench_mix_fits(mix("small_50"), 16 * GIB, 3));
        assert_false(bench_mix_fits(mix("big_50"), 16 * GIB, 2));
        assert_true(bench_mix_fits(mix("big_50"), 16 * GIB, 1));
        assert_false(bench_mix_fits(mix("notebooks"), 16 * GIB, 2));
        assert_false(bench_mix_fits(mix("first_token"), 16 * GIB, 2));
}

static void the_capacity_is_the_card_or_what_the_host_has_room_for(void **state)
{
        const struct bench_mix *big = mix("big_50");
        struct bench_room room = {.card_bytes = 100 * GIB,
                                  .promised_bytes = (1024 * GIB),
                                  .pinned_bytes = (1024 * GIB)};
        uint64_t capacity, over;

        assert_int_equal(bench_capacity(&big, 1, 2, &room), 100 * GIB);
        room.promised_bytes = 40 * GIB;
        capacity = bench_capacity(&big, 1, 2, &room);
        over = bench_mix_bytes(big, capacity, 2) - capacity / 100 * 92;
        assert_in_range(over, 39 * GIB, 40 * GIB);
        room.pinned_bytes = 40 * GIB; /* each of the two programs keeps what it had to move out */
        capacity = bench_capacity(&big, 1, 2, &room);
        over = bench_mix_bytes(big, capacity, 2) - capacity / 100 * 92;
        assert_in_range(2 * over, 38 * GIB, 40 * GIB);
}

static void programs_that_fit_need_no_host_memory(void **state)
{
        const struct bench_mix *small = mix("small_50");
        const struct bench_room room = {.card_bytes = 100 * GIB};

        assert_int_equal(bench_capacity(&small, 1, 2, &room), 100 * GIB);
}

static void the_median_of_an_even_number_lies_between_two_values(void **state)
{
        assert_true(bench_median((double[]){4, 1, 3}, 3) == 3);
        assert_true(bench_median((double[]){4, 1, 3, 2}, 4) == 2.5);
        assert_true(bench_median(NULL, 0) == 0);
        assert_true(bench_longest((double[]){4, 1}, 2) == 4);
}

static void one_unknown_count_makes_the_median_unknown(void **state)
{
        assert_int_equal(bench_median_count((uint64_t[]){7, 1, 4}, 3), 4);
        assert_int_equal(bench_median_count((uint64_t[]){7, BENCH_UNKNOWN, 4}, 3), BENCH_UNKNOWN);
        assert_int_equal(bench_median_count(NULL, 0), BENCH_UNKNOWN);
}

static void a_wrong_result_stays_wrong_when_the_next_one_is_right(void **state)
{
        struct bench_row row = {0};
        struct bench_measurement m = {.seconds = 2, .handoffs = 5, .verdict = BENCH_DIFFERENT};

        bench_row_add(&row, &m);
        m = (struct bench_measurement){.seconds = 3, .handoffs = 1, .verdict = BENCH_EQUAL};
        bench_row_add(&row, &m);
        assert_int_equal(row.verdict, BENCH_DIFFERENT);
        assert_int_equal(row.n, 2);
        assert_int_equal(bench_median_count(row.handoffs, row.n), 3);
        assert_true(bench_median(row.seconds, row.n) == 2.5);
}

/* ---- the result ---- */

static const struct bench_setting setting = {.card = "Test & <card>",
                                             .driver = "1",
                                             .machine = "m",
                                             .time = "t",
                                             .card_bytes = 16 * GIB,
                                             .capacity = 16 * GIB,
                                             .jobs = 2,
                                             .repeat = 1,
                                             .n_quanta = 1,
                                             .quanta = {"2s"},
                                             .duration = 15,
                                             .seed = 7};

/* Returns five rows: three measured ones of big_50, one that is left out, and a delay. */
static struct bench_row *rows(void)
{
        static struct bench_row all[5];
        const struct bench_mix *big = mix("big_50"), *token = mix("first_token");
        const enum bench_way ways[] = {BENCH_ALONE, BENCH_SERIAL, BENCH_PLAIN, BENCH_SUBLET,
                                       BENCH_SUBLET};
        const double seconds[] = {10, 20, 0, 15, 1};

        for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
                const struct bench_mix *of = i == 4 ? token : big;

                all[i] = (struct bench_row){.mix = of,
                                            .role = &of->roles[0],
                                            .way = ways[i],
                                            .quantum = i >= 3 ? "2s" : NULL,
                                            .n = i != 2,
                                            .seconds = {seconds[i]},
                                            .waiting = {-1},
                                            .moved_out = {BENCH_UNKNOWN},
                                            .moved_in = {BENCH_UNKNOWN},
                                            .handoffs = {BENCH_UNKNOWN}};
        }
        all[2].state = BENCH_LEFT_OUT;
        (void)snprintf(all[2].note, sizeof(all[2].note), "does not fit");
        all[3].moved_out[0] = all[3].moved_in[0] = 3 * GIB;
        all[3].handoffs[0] = 4;
        all[3].waiting[0] = 0.25;
        all[3].verdict = all[4].verdict = BENCH_EQUAL;
        all[4].first[0] = 7.5;
        all[4].longest[0] = 8.25;
        return all;
}

static char *table(const struct bench_row *r, size_t n)
{
        char *text = NULL;
        size_t length;
        FILE *out = open_memstream(&text, &length);

        assert_non_null(out);
        bench_print_table(out, &setting, r, n);
        (void)fclose(out);
        return text;
}

static void has(const char *text, const char *part)
{
        if (!strstr(text, part))
                fail_msg("no '%s' in: %s", part, text);
}

static void the_table_compares_with_one_after_the_other(void **state)
{
        char *text = table(rows(), 5);

        has(text, "big_50: all programs, 2 of 14.1 GiB\n");
        has(text, "of serial");
        has(text, "  alone, plain driver         10.0 s            0.50");
        has(text, "  together, time slicing    does not fit\n");
        has(text, "  together, sublet (2s)       15.0 s            0.75         4     25 %  3 GiB "
                  "/ 3 GiB ");
        has(text, "of serial hand-offs  waiting  moved");
        free(text);
}

static void the_table_compares_with_alone_where_nothing_ran_in_series(void **state)
{
        struct bench_row *r = rows();
        char *text;

        r[1].n = 0;
        r[1].state = BENCH_LEFT_OUT;
        text = table(r, 5);
        has(text, "of alone");
        has(text, "15.0 s            1.50");
        free(text);
}

static void the_table_tells_the_first_and_the_longest_delay(void **state)
{
        char *text = table(rows(), 5);

        has(text, "median  first, longest");
        has(text, "1.00 s    7.50, 8.25 s");
        free(text);
}

static void a_failure_stands_out(void **state)
{
        struct bench_row *r = rows();
        char *text;

        r[3].state = BENCH_FAILED;
        (void)snprintf(r[3].note, sizeof(r[3].note), "program 1: out of memory");
        text = table(r, 5);
        has(text, "together, sublet (2s)     FAILED: program 1: out of memory\n");
        free(text);
        r = rows();
        r[3].verdict = BENCH_DIFFERENT;
        text = table(r, 5);
        has(text, "DIFFERENT\n");
        free(text);
}

static void the_json_has_a_row_for_each_way_and_null_for_the_unknown(void **state)
{
        json_t *all = bench_json(&setting, rows(), 5), *list = json_object_get(all, "rows"), *row;

        assert_int_equal(json_array_size(list), 5);
        row = json_array_get(list, 0);
        assert_true(json_is_null(json_object_get(row, "handoffs")));
        assert_true(json_is_null(json_object_get(row, "quantum")));
        row = json_array_get(list, 2);
        assert_string_equal(json_string_value(json_object_get(row, "note")), "does not fit");
        assert_true(json_is_null(json_object_get(row, "median_s")));
        row = json_array_get(list, 3);
        assert_int_equal(json_integer_value(json_object_get(row, "moved_in")), 3 * GIB);
        row = json_array_get(list, 4);
        assert_true(json_real_value(json_array_get(json_object_get(row, "first_s"), 0)) == 7.5);
        assert_int_equal(
                json_integer_value(json_object_get(json_object_get(all, "settings"), "seed")), 7);
        json_decref(all);
}

static void the_picture_has_a_bar_for_each_figure_and_escapes_names(void **state)
{
        char *text = NULL, *at;
        size_t length;
        unsigned bars = 0;
        FILE *out = open_memstream(&text, &length);

        bench_print_plot(out, &setting, rows(), 5);
        (void)fclose(out);
        for (at = text; (at = strstr(at, "<title>")); at++)
                bars++;
        assert_int_equal(bars, 4);
        has(text, "paint-order=\"stroke\">15.0 s; 4 hand-offs, 25 % waiting</text>");
        has(text, "Test &amp; &lt;card>");
        has(text, ">does not fit</text>");
        free(text);
}

static void the_picture_cuts_only_bars_of_unified_memory(void **state)
{
        struct bench_row *r = rows();
        char *text = NULL;
        size_t length;
        FILE *out = open_memstream(&text, &length);

        r[2].way = BENCH_MANAGED;
        r[2].state = BENCH_MEASURED;
        r[2].n = 1;
        r[2].seconds[0] = 400;
        bench_print_plot(out, &setting, r, 5);
        (void)fclose(out);
        has(text, ">>> 400.0 s</text>");
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_list_chooses_mixes_by_name_and_by_the_beginning_of_a_name),
                cmocka_unit_test(a_name_that_chooses_nothing_is_named),
                cmocka_unit_test(two_small_programs_fit_and_two_big_ones_do_not),
                cmocka_unit_test(the_capacity_is_the_card_or_what_the_host_has_room_for),
                cmocka_unit_test(programs_that_fit_need_no_host_memory),
                cmocka_unit_test(the_median_of_an_even_number_lies_between_two_values),
                cmocka_unit_test(one_unknown_count_makes_the_median_unknown),
                cmocka_unit_test(a_wrong_result_stays_wrong_when_the_next_one_is_right),
                cmocka_unit_test(the_table_compares_with_one_after_the_other),
                cmocka_unit_test(the_table_compares_with_alone_where_nothing_ran_in_series),
                cmocka_unit_test(the_table_tells_the_first_and_the_longest_delay),
                cmocka_unit_test(a_failure_stands_out),
                cmocka_unit_test(the_json_has_a_row_for_each_way_and_null_for_the_unknown),
                cmocka_unit_test(the_picture_has_a_bar_for_each_figure_and_escapes_names),
                cmocka_unit_test(the_picture_cuts_only_bars_of_unified_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
