/* test_precondition.c: a release goes on after a broken precondition, with an error for the caller
 * and one line for each place. */
#include "unit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/precondition.c" /* as a release compiles it: the library of the tests ends */

static char line[256];
static unsigned lines;

void __wrap_log_write(enum log_level level, const char *format, ...);
void __wrap_log_write(enum log_level level, const char *format, ...)
{
        va_list args;

        assert_int_equal(level, LOG_LEVEL_ERROR);
        va_start(args, format);
        (void)vsnprintf(line, sizeof(line), format, args);
        va_end(args);
        lines++;
}

static int halve(int even)
{
        PRECONDITION(even % 2 == 0, -EINVAL);
        return even / 2;
}

static void raise_if_positive(int n, int *sum)
{
        PRECONDITION(n > 0, );
        *sum += n;
}

static void a_breach_is_an_error_and_one_line_for_each_place(void **state)
{
        int sum = 0;

        assert_int_equal(halve(6), 3);
        assert_int_equal(lines, 0);
        assert_int_equal(halve(7), -EINVAL);
        assert_int_equal(halve(9), -EINVAL);
        assert_int_equal(lines, 1);
        assert_non_null(strstr(line, "\"even % 2 == 0\" does not hold at test_precondition.c:"));
        raise_if_positive(-1, &sum);
        raise_if_positive(2, &sum);
        assert_int_equal(sum, 2);
        assert_int_equal(lines, 2);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_breach_is_an_error_and_one_line_for_each_place),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
