/* shares.c: owns how shares, weights and priorities are read and written. Must never depend on a
 * locale: strtod() and "%g" do. */
#include "base/shares.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

#define WEIGHT_MIN 10u
#define WEIGHT_MAX 100000u

/* Parses a number of `length` bytes, times 10 to the power of `places`. */
static int parse_decimal(const char *text, size_t length, unsigned places, unsigned least,
                         unsigned most, unsigned *ret)
{
        unsigned v = 0, digits = 0;
        bool point = false;

        for (size_t i = 0; i < length; i++) {
                if (text[i] == '.' && !point) {
                        point = true;
                        continue;
                }
                if (text[i] < '0' || text[i] > '9')
                        return -EINVAL;
                digits++;
                if (point && places == 0)
                        continue;
                places -= point;
                v = v * 10 + (unsigned)(text[i] - '0');
                if (v > UINT_MAX / 10000) /* v is multiplied by 1000 below */
                        return -EINVAL;
        }
        if (digits == 0)
                return -EINVAL;
        for (; places > 0; places--)
                v *= 10;
        if (v < least || v > most)
                return -EINVAL;
        *ret = v;
        return 0;
}

int shares_parse_percent(const char *text, unsigned least, unsigned most, unsigned *ret)
{
        const size_t length = strlen(text);

        if (length == 0 || text[length - 1] != '%')
                return -EINVAL;
        return parse_decimal(text, length - 1, 1, least, most, ret);
}

int shares_parse_part(const char *text, unsigned least, unsigned most, unsigned *ret)
{
        return strchr(text, '%') ? shares_parse_percent(text, least, most, ret)
                                 : parse_decimal(text, strlen(text), 3, least, most, ret);
}

int shares_parse_range(const char *text, unsigned *ret_minimum, unsigned *ret_maximum)
{
        const size_t length = strcspn(text, ":");
        const char *colon = text[length] ? text + length : NULL;
        unsigned minimum = 0, maximum = SHARES_ALL;

        if ((length || !colon) && parse_decimal(text, length, 3, 0, SHARES_ALL, &minimum) < 0)
                return -EINVAL;
        if (colon && parse_decimal(colon + 1, strlen(colon + 1), 3, 1, SHARES_ALL, &maximum) < 0)
                return -EINVAL;
        if (minimum > maximum)
                return -EINVAL;
        *ret_minimum = minimum;
        *ret_maximum = maximum;
        return 0;
}

bool shares_may_bound(const char *text)
{
        return text[strspn(text, "0123456789.%")] != '\0';
}

int shares_parse_weight(const char *text, unsigned *ret)
{
        return parse_decimal(text, strlen(text), 3, WEIGHT_MIN, WEIGHT_MAX, ret);
}

int shares_parse_priority(const char *text, int *ret)
{
        const bool negative = text[0] == '-', positive = text[0] == '+';
        uint64_t v;

        if (units_parse_count(text + (negative || positive), &v) < 0 || v > SHARES_PRIORITY_MAX)
                return -EINVAL;
        *ret = negative ? -(int)v : (int)v;
        return 0;
}

/* Writes v without the zeroes behind its point. */
static const char *format_decimal(unsigned v, unsigned unit, unsigned places, const char *behind,
                                  char ret[static SHARES_TEXT_MAX])
{
        unsigned part = v % unit;

        for (; places > 0 && part % 10 == 0; places--)
                part /= 10;
        if (places > 0)
                (void)snprintf(ret, SHARES_TEXT_MAX, "%u.%0*u%s", v / unit, (int)places, part,
                               behind);
        else
                (void)snprintf(ret, SHARES_TEXT_MAX, "%u%s", v / unit, behind);
        return ret;
}

const char *shares_format(unsigned thousandths, char ret[static SHARES_TEXT_MAX])
{
        return format_decimal(thousandths, 1000, 3, "", ret);
}

const char *shares_format_percent(unsigned thousandths, char ret[static SHARES_TEXT_MAX])
{
        return format_decimal(thousandths, 10, 1, "%", ret);
}
