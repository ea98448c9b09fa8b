/* units.c: owns how numbers, sizes, rates, durations and times are written and read.
 * Must never guess: a text is malformed unless it is one number and one known suffix. */
#include "base/units.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/macros.h"

/* Programs write sizes as bytes without a unit; a person who writes 20 means GiB. */
#define BARE_BYTES_LEAST (1u << 20)

struct suffix {
        const char *text;
        uint64_t factor;
};

/* A number without a suffix is refused, except 0: "20" could be bytes or GiB, "5" could be seconds
 * or milliseconds. */
static const struct suffix size_suffixes[] = {
        {"B", 1},
        {"k", UINT64_C(1) << 10},
        {"m", UINT64_C(1) << 20},
        {"g", UINT64_C(1) << 30},
        {"t", UINT64_C(1) << 40},
        {"KiB", UINT64_C(1) << 10},
        {"MiB", UINT64_C(1) << 20},
        {"GiB", UINT64_C(1) << 30},
        {"TiB", UINT64_C(1) << 40},
        {"KB", UINT64_C(1000)},
        {"MB", UINT64_C(1000000)},
        {"GB", UINT64_C(1000000000)},
        {"TB", UINT64_C(1000000000000)},
};

static const struct suffix duration_suffixes[] = {
        {"ns", 1},           {"us", NSEC_PER_USEC},      {"ms", NSEC_PER_MSEC},
        {"s", NSEC_PER_SEC}, {"min", 60 * NSEC_PER_SEC}, {"h", 3600 * NSEC_PER_SEC},
};

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* Parses "NUMBER SUFFIX" or "NUMBERSUFFIX", `length` bytes long. Digits of the fraction past the
 * ninth are dropped: they are smaller than a byte or a nanosecond in all but the largest units. */
static int parse_scaled(const char *text, size_t length, const struct suffix *suffixes, size_t n,
                        uint64_t *ret)
{
        const char *p = text, *end = text + length;
        unsigned __int128 whole = 0, fraction = 0, scale = 1, value;

        if (p == end || !is_digit(*p))
                return -EINVAL;
        for (; p < end && is_digit(*p); p++)
                if (whole <= UINT64_MAX)
                        whole = whole * 10 + (unsigned)(*p - '0');
        if (p < end && *p == '.') {
                p++;
                if (p == end || !is_digit(*p))
                        return -EINVAL;
                for (; p < end && is_digit(*p); p++) {
                        if (scale >= 1000000000)
                                continue;
                        fraction = fraction * 10 + (unsigned)(*p - '0');
                        scale *= 10;
                }
        }
        if (p < end && *p == ' ') {
                p++;
                if (p == end)
                        return -EINVAL;
        }
        for (size_t i = 0; i < n; i++) {
                if (strlen(suffixes[i].text) != (size_t)(end - p) ||
                    strncasecmp(suffixes[i].text, p, (size_t)(end - p)) != 0)
                        continue;
                if (whole > UINT64_MAX)
                        return -ERANGE;
                value = whole * suffixes[i].factor + fraction * suffixes[i].factor / scale;
                if (value > UINT64_MAX)
                        return -ERANGE;
                *ret = (uint64_t)value;
                return 0;
        }
        return -EINVAL;
}

static int parse_with_unit(const char *text, const struct suffix *suffixes, size_t n, uint64_t *ret)
{
        if (strcmp(text, "0") == 0) {
                *ret = 0;
                return 0;
        }
        return parse_scaled(text, strlen(text), suffixes, n, ret);
}

int units_parse_size(const char *text, uint64_t *ret_bytes)
{
        const int r = parse_with_unit(text, size_suffixes, ARRAY_SIZE(size_suffixes), ret_bytes);
        uint64_t bytes;

        if (r == 0 || units_parse_count(text, &bytes) < 0 || bytes < BARE_BYTES_LEAST)
                return r;
        *ret_bytes = bytes;
        return 0;
}

int units_parse_rate(const char *text, uint64_t *ret_bytes_per_s)
{
        size_t length = strlen(text);

        if (length < 2 || strcmp(text + length - 2, "/s") != 0)
                return -EINVAL;
        return parse_scaled(text, length - 2, size_suffixes, ARRAY_SIZE(size_suffixes),
                            ret_bytes_per_s);
}

int units_parse_duration(const char *text, uint64_t *ret_ns)
{
        return parse_with_unit(text, duration_suffixes, ARRAY_SIZE(duration_suffixes), ret_ns);
}

int units_parse_count(const char *text, uint64_t *ret_count)
{
        static const struct suffix none[] = {{"", 1}};

        if (!text[0] || text[strspn(text, "0123456789")])
                return -EINVAL;
        return parse_scaled(text, strlen(text), none, ARRAY_SIZE(none), ret_count);
}

const char *units_format_size(uint64_t bytes, char buf[static UNITS_TEXT_MAX])
{
        static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        double value = (double)bytes;
        size_t i = 0;

        if (bytes < KIB) {
                (void)snprintf(buf, UNITS_TEXT_MAX, "%u B", (unsigned)bytes);
                return buf;
        }
        /* 1023.95 would be shown as 1024.0 of the smaller unit. */
        for (value /= 1024; value >= 1023.95 && i + 1 < ARRAY_SIZE(names); i++)
                value /= 1024;
        if ((bytes & ((UINT64_C(1) << (10 * (i + 1))) - 1)) == 0)
                (void)snprintf(buf, UNITS_TEXT_MAX, "%.0f %s", value, names[i]);
        else
                (void)snprintf(buf, UNITS_TEXT_MAX, "%.1f %s", value, names[i]);
        return buf;
}

const char *units_format_duration(uint64_t ns, char buf[static UNITS_TEXT_MAX])
{
        uint64_t s = ns / NSEC_PER_SEC;

        if (ns == 0)
                (void)snprintf(buf, UNITS_TEXT_MAX, "0 s");
        else if (ns < NSEC_PER_USEC)
                (void)snprintf(buf, UNITS_TEXT_MAX, "%u ns", (unsigned)ns);
        else if (ns < NSEC_PER_MSEC)
                (void)snprintf(buf, UNITS_TEXT_MAX, "%u us", (unsigned)(ns / NSEC_PER_USEC));
        else if (ns < NSEC_PER_SEC)
                (void)snprintf(buf, UNITS_TEXT_MAX, "%u ms", (unsigned)(ns / NSEC_PER_MSEC));
        else if (s < 60)
                (void)snprintf(buf, UNITS_TEXT_MAX, "%u.%u s", (unsigned)s,
                               (unsigned)(ns % NSEC_PER_SEC / (100 * NSEC_PER_MSEC)));
        else if (s < 3600)
                (void)snprintf(buf, UNITS_TEXT_MAX, "%u min %u s", (unsigned)(s / 60),
                               (unsigned)(s % 60));
        else
                (void)snprintf(buf, UNITS_TEXT_MAX, "%llu h %u min", (unsigned long long)(s / 3600),
                               (unsigned)(s % 3600 / 60));
        return buf;
}

const char *units_format_utc(time_t when, char buf[static UNITS_TEXT_MAX])
{
        struct tm utc;

        if (!gmtime_r(&when, &utc) || !strftime(buf, UNITS_TEXT_MAX, "%Y-%m-%dT%H:%M:%SZ", &utc))
                buf[0] = '\0';
        return buf;
}
