/* test_shares.c: shares, weights and priorities, valid and invalid. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "base/shares.h"

static void percentages_are_read_in_thousandths(void **state)
{
        static const struct {
                const char *text;
                unsigned value;
        } good[] = {{"30%", 300}, {"2.5%", 25}, {"0%", 0},       {"100%", 1000},
                    {".5%", 5},   {"7.%", 70},  {"33.33%", 333}, {"007%", 70}};
        static const char *const bad[] = {
                "",       "%",    "30",   "30 %",   "-1%",         "+1%",
                "100.1%", "101%", "1..%", "1.2.3%", "nan%",        "0x1%",
                "1e1%",   "0,3%", ".%",   "1%%",    "4294967296%", "99999999999999999999%"};
        unsigned v;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                if (shares_parse_percent(good[i].text, 0, SHARES_ALL, &v) != 0 ||
                    v != good[i].value)
                        fail_msg("\"%s\" was read as %u", good[i].text, v);
        v = 77;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (shares_parse_percent(bad[i], 0, SHARES_ALL, &v) != -EINVAL || v != 77)
                        fail_msg("\"%s\" was not refused", bad[i]);
        assert_int_equal(shares_parse_percent("0.05%", 1, SHARES_ALL, &v), -EINVAL);
        assert_int_equal(shares_parse_percent("0.9%", 10, SHARES_ALL, &v), -EINVAL);
        assert_int_equal(shares_parse_percent("95.1%", 10, SHARES_MINIMA_MAX, &v), -EINVAL);
}

static void a_part_is_a_percentage_or_a_number_up_to_1(void **state)
{
        unsigned v = 77;

        assert_int_equal(shares_parse_part("0.3", 1, SHARES_ALL, &v), 0);
        assert_int_equal(v, 300);
        assert_int_equal(shares_parse_part("30%", 1, SHARES_ALL, &v), 0);
        assert_int_equal(v, 300);
        assert_int_equal(shares_parse_part("0.33333", 1, SHARES_ALL, &v), 0);
        assert_int_equal(v, 333);
        assert_int_equal(shares_parse_part("30", 1, SHARES_ALL, &v), -EINVAL);
        assert_int_equal(shares_parse_part("3%0", 1, SHARES_ALL, &v), -EINVAL);
        assert_int_equal(v, 333);
}

static void a_range_has_a_minimum_a_maximum_or_both(void **state)
{
        static const struct {
                const char *text;
                unsigned minimum, maximum;
        } good[] = {{"0.2:0.8", 200, 800}, {"0.5", 500, 1000}, {":0.5", 0, 500},
                    {"1:1", 1000, 1000},   {"0", 0, 1000},     {"0.9999", 999, 1000}};
        static const char *const bad[] = {"",     ":",   "0.8:0.2",     "2",    "0:0",
                                          "0.1:", ":x",  "0.1:0.2:0.3", "-0.1", "1.001",
                                          "50%",  "0,5", " 0.5"};
        unsigned minimum, maximum;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                if (shares_parse_range(good[i].text, &minimum, &maximum) != 0 ||
                    minimum != good[i].minimum || maximum != good[i].maximum)
                        fail_msg("\"%s\" was read as %u:%u", good[i].text, minimum, maximum);
        minimum = maximum = 77;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (shares_parse_range(bad[i], &minimum, &maximum) != -EINVAL || minimum != 77 ||
                    maximum != 77)
                        fail_msg("\"%s\" was not refused", bad[i]);
}

static void a_malformed_share_that_is_more_than_a_number_may_bound(void **state)
{
        static const char *const may[] = {"0.2-0.8", ":x", "0.8:0.2", "0,5", " 0.5", ":", "much"};
        static const char *const may_not[] = {"", "2", "30%", "0.1.2"};

        for (size_t i = 0; i < ARRAY_SIZE(may); i++)
                if (!shares_may_bound(may[i]))
                        fail_msg("\"%s\" bounds nothing", may[i]);
        for (size_t i = 0; i < ARRAY_SIZE(may_not); i++)
                if (shares_may_bound(may_not[i]))
                        fail_msg("\"%s\" may bound", may_not[i]);
}

static void a_weight_is_a_number_within_bounds(void **state)
{
        static const char *const bad[] = {"",   "0", "0.009", "100.001", "101",
                                          "-1", "x", "1e1",   "2 "};
        unsigned v = 77;

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (shares_parse_weight(bad[i], &v) != -EINVAL || v != 77)
                        fail_msg("\"%s\" was not refused", bad[i]);
        assert_int_equal(shares_parse_weight("0.01", &v), 0);
        assert_int_equal(v, 10);
        assert_int_equal(shares_parse_weight("2.5", &v), 0);
        assert_int_equal(v, 2500);
        assert_int_equal(shares_parse_weight("100", &v), 0);
        assert_int_equal(v, 100000);
}

static void a_priority_is_a_whole_number_within_bounds(void **state)
{
        static const char *const bad[] = {"",    "-",   "+",   "--1",        "21",
                                          "-21", "1.5", "0x1", "4294967297", "high"};
        int v = 77;

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (shares_parse_priority(bad[i], &v) != -EINVAL || v != 77)
                        fail_msg("\"%s\" was not refused", bad[i]);
        assert_int_equal(shares_parse_priority("-20", &v), 0);
        assert_int_equal(v, -20);
        assert_int_equal(shares_parse_priority("+7", &v), 0);
        assert_int_equal(v, 7);
        assert_int_equal(shares_parse_priority("0", &v), 0);
        assert_int_equal(v, 0);
}

static void what_is_written_has_no_zeroes_at_its_end_and_is_read_again(void **state)
{
        static const struct {
                unsigned v;
                const char *text, *percent;
        } table[] = {{1000, "1", "100%"},   {2500, "2.5", "250%"}, {10, "0.01", "1%"},
                     {25, "0.025", "2.5%"}, {0, "0", "0%"},        {12345, "12.345", "1234.5%"}};
        char text[SHARES_TEXT_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                assert_string_equal(shares_format(table[i].v, text), table[i].text);
                assert_string_equal(shares_format_percent(table[i].v, text), table[i].percent);
        }
        for (unsigned v = 10; v <= SHARES_ALL; v++) {
                unsigned again = 0;

                assert_int_equal(shares_parse_weight(shares_format(v, text), &again), 0);
                assert_int_equal(again, v);
                assert_int_equal(
                        shares_parse_percent(shares_format_percent(v, text), 0, SHARES_ALL, &again),
                        0);
                assert_int_equal(again, v);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(percentages_are_read_in_thousandths),
                cmocka_unit_test(a_part_is_a_percentage_or_a_number_up_to_1),
                cmocka_unit_test(a_range_has_a_minimum_a_maximum_or_both),
                cmocka_unit_test(a_malformed_share_that_is_more_than_a_number_may_bound),
                cmocka_unit_test(a_weight_is_a_number_within_bounds),
                cmocka_unit_test(a_priority_is_a_whole_number_within_bounds),
                cmocka_unit_test(what_is_written_has_no_zeroes_at_its_end_and_is_read_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
