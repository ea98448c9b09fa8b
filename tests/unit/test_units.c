/* test_units.c: sizes, rates and durations, valid and invalid. */
#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"

struct good {
        const char *text;
        uint64_t value;
};
struct bad {
        const char *text;
        int error;
};

static void sizes_are_read_as_people_write_them(void **state)
{
        static const struct good table[] = {
                {"0", 0},
                {"512B", 512},
                {"1048576", MIB},
                {"16k", 16 * KIB},
                {"16K", 16 * KIB},
                {"16KiB", 16 * KIB},
                {"16KB", 16000},
                {"64MiB", 64 * MIB},
                {"64m", 64 * MIB},
                {"1.5GiB", 3 * GIB / 2},
                {"1.5 GiB", 3 * GIB / 2},
                {"2GB", 2000000000},
                {"3t", 3 * 1024 * GIB},
                {"0.1TB", 100000000000},
                {"0.000000000001k", 0},
                {"0.500000000000000000000000000000000000000000GiB", GIB / 2},
                {"18446744073709551615B", UINT64_MAX},
                {"16777215TiB", UINT64_C(16777215) << 40},
        };

        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                uint64_t v = 1;

                if (units_parse_size(table[i].text, &v) != 0 || v != table[i].value)
                        fail_msg("\"%s\" was read as %llu", table[i].text, (unsigned long long)v);
        }
}

static void malformed_sizes_are_refused_and_leave_the_result_alone(void **state)
{
        static const struct bad table[] = {
                {"", -EINVAL},
                {" ", -EINVAL},
                {"GiB", -EINVAL},
                {"20", -EINVAL},
                {"1048575", -EINVAL},
                {"00", -EINVAL},
                {"1.5", -EINVAL},
                {"-1", -EINVAL},
                {"+1", -EINVAL},
                {"1.", -EINVAL},
                {".5g", -EINVAL},
                {"1..5g", -EINVAL},
                {"1,5g", -EINVAL},
                {"1e9", -EINVAL},
                {"0x10", -EINVAL},
                {"12 ", -EINVAL},
                {" 12", -EINVAL},
                {"12  MiB", -EINVAL},
                {"12MiBs", -EINVAL},
                {"12Mi", -EINVAL},
                {"12q", -EINVAL},
                {"lots", -EINVAL},
                {"1GiB/s", -EINVAL},
                {"1GiB 1", -EINVAL},
                {"18446744073709551616B", -ERANGE},
                {"16777216TiB", -ERANGE},
                {"99999999999999999999999999999999999999999g", -ERANGE},
        };

        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                uint64_t v = 42;
                int r = units_parse_size(table[i].text, &v);

                if (r != table[i].error || v != 42)
                        fail_msg("\"%s\" gave %d", table[i].text, r);
        }
}

static void rates_need_their_slash_s(void **state)
{
        uint64_t v = 0;

        assert_int_equal(units_parse_rate("12GB/s", &v), 0);
        assert_int_equal(v, 12000000000);
        assert_int_equal(units_parse_rate("0.5GiB/s", &v), 0);
        assert_int_equal(v, GIB / 2);
        assert_int_equal(units_parse_rate("12GB", &v), -EINVAL);
        assert_int_equal(units_parse_rate("/s", &v), -EINVAL);
        assert_int_equal(units_parse_rate("", &v), -EINVAL);
        assert_int_equal(units_parse_rate("12GB/h", &v), -EINVAL);
        assert_int_equal(v, GIB / 2);
}

static void durations_need_a_unit(void **state)
{
        static const struct good good[] = {
                {"0", 0},
                {"7ns", 7},
                {"100us", 100 * NSEC_PER_USEC},
                {"250ms", 250 * NSEC_PER_MSEC},
                {"5s", 5 * NSEC_PER_SEC},
                {"0.2 s", 200 * NSEC_PER_MSEC},
                {"2min", 120 * NSEC_PER_SEC},
                {"1.5h", 5400 * NSEC_PER_SEC},
        };
        static const char *const bad[] = {"5", "", "s", "5m", "5sec", "-5s", "5 s ", "auto", "1s2"};
        uint64_t v = 0;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                assert_int_equal(units_parse_duration(good[i].text, &v), 0);
                assert_int_equal(v, good[i].value);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(units_parse_duration(bad[i], &v), -EINVAL);
        assert_int_equal(units_parse_duration("99999999h", &v), -ERANGE);
}

static void counts_are_decimal_digits_alone(void **state)
{
        static const struct good good[] = {
                {"0", 0}, {"007", 7}, {"42", 42}, {"18446744073709551615", UINT64_MAX}};
        static const struct bad bad[] = {
                {"", -EINVAL},    {" 1", -EINVAL},  {"1 ", -EINVAL},
                {"+1", -EINVAL},  {"-1", -EINVAL},  {"0x1", -EINVAL},
                {"0b1", -EINVAL}, {"1.5", -EINVAL}, {"1\n", -EINVAL},
                {"1k", -EINVAL},  {"max", -EINVAL}, {"18446744073709551616", -ERANGE},
        };
        uint64_t v = 1;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                assert_int_equal(units_parse_count(good[i].text, &v), 0);
                assert_int_equal(v, good[i].value);
        }
        v = 77;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (units_parse_count(bad[i].text, &v) != bad[i].error || v != 77)
                        fail_msg("\"%s\" was not refused", bad[i].text);
}

static void sizes_are_printed_short(void **state)
{
        static const struct {
                uint64_t bytes;
                const char *text;
        } table[] = {
                {0, "0 B"},
                {1023, "1023 B"},
                {KIB, "1 KiB"},
                {1536, "1.5 KiB"},
                {512 * MIB, "512 MiB"},
                {GIB - 1, "1.0 GiB"},
                {GIB, "1 GiB"},
                {UINT64_C(44882408243), "41.8 GiB"},
                {UINT64_MAX, "16.0 EiB"},
        };
        char buf[UNITS_TEXT_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                assert_string_equal(units_format_size(table[i].bytes, buf), table[i].text);
}

static void durations_are_printed_short(void **state)
{
        static const struct {
                uint64_t ns;
                const char *text;
        } table[] = {
                {0, "0 s"},
                {999, "999 ns"},
                {35 * NSEC_PER_USEC, "35 us"},
                {35 * NSEC_PER_MSEC, "35 ms"},
                {1200 * NSEC_PER_MSEC, "1.2 s"},
                {59999 * NSEC_PER_MSEC, "59.9 s"},
                {200 * NSEC_PER_SEC, "3 min 20 s"},
                {7260 * NSEC_PER_SEC, "2 h 1 min"},
                {UINT64_MAX, "5124095 h 34 min"},
        };
        char buf[UNITS_TEXT_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                assert_string_equal(units_format_duration(table[i].ns, buf), table[i].text);
}

static void times_are_printed_in_utc(void **state)
{
        char buf[UNITS_TEXT_MAX];

        assert_string_equal(units_format_utc(0, buf), "1970-01-01T00:00:00Z");
        assert_string_equal(units_format_utc(1795775175, buf), "2026-11-27T10:26:15Z");
        assert_string_equal(units_format_utc(INT64_MAX, buf), ""); /* a year of no calendar */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sizes_are_read_as_people_write_them),
                cmocka_unit_test(malformed_sizes_are_refused_and_leave_the_result_alone),
                cmocka_unit_test(rates_need_their_slash_s),
                cmocka_unit_test(durations_need_a_unit),
                cmocka_unit_test(counts_are_decimal_digits_alone),
                cmocka_unit_test(sizes_are_printed_short),
                cmocka_unit_test(durations_are_printed_short),
                cmocka_unit_test(times_are_printed_in_utc),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
