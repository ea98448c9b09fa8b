/* values.c: owns how the values of a configuration are read. Must never apply a value that it does
 * not fully understand. */
#include "daemon/setup/values.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"

#define QUANTUM_LEAST NSEC_PER_MSEC /* shorter than any drain */
#define QUANTUM_MOST  (3600 * NSEC_PER_SEC)
#define PRIORITY_MOST 20

/* ---- the table ---- */

static int explain(const struct value_key *k, const char *text, int r,
                   char error[static CONFIG_ERROR_MAX])
{
        if (r == -ERANGE)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%s \"%.200s\" is too large", k->kind,
                               text);
        else if (r == -E2BIG)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%s is set too many times", k->name);
        else if (r == -ENXIO)
                (void)snprintf(error, CONFIG_ERROR_MAX, "unknown %s \"%.200s\": write %s", k->kind,
                               text, k->example);
        else if (r == -ENOMEM)
                (void)snprintf(error, CONFIG_ERROR_MAX, "no memory for %s", k->name);
        else if (r < 0)
                (void)snprintf(error, CONFIG_ERROR_MAX, "malformed %s \"%.200s\": write %s",
                               k->kind, text, k->example);
        return r < 0 && r != -ENOMEM ? -EINVAL : r;
}

/* Reads the items of a list. A comma at the end is allowed, because the next line may go on. */
static int set_list(const struct value_key *k, void *field, const char *text,
                    char error[static CONFIG_ERROR_MAX])
{
        const char *at = text;
        int r = 0;

        do {
                size_t n = strcspn(at, ","), last = n;
                _cleanup_free_ char *item = NULL;

                while (n > 0 && isspace((unsigned char)*at))
                        at++, n--, last--;
                while (n > 0 && isspace((unsigned char)at[n - 1]))
                        n--;
                item = strndup(at, n);
                r = item ? k->parse(field, item) : -ENOMEM;
                if (r < 0)
                        return explain(k, item ? item : text, r, error);
                at += last;
                at += *at == ',';
        } while (at[strspn(at, " \t")]);
        return 0;
}

int values_set(const struct value_key *keys, size_t n, void *base, const char *key,
               const char *text, bool more, char error[static CONFIG_ERROR_MAX])
{
        for (size_t i = 0; i < n; i++) {
                const struct value_key *k = &keys[i];
                void *field = (char *)base + k->offset;

                if (strcmp(k->name, key) != 0)
                        continue;
                if (!k->clear)
                        return explain(k, text, k->parse(field, text), error);
                if (!more)
                        k->clear(field);
                return set_list(k, field, text, error);
        }
        (void)snprintf(error, CONFIG_ERROR_MAX, "unknown key \"%.200s\"", key);
        return -ENOENT;
}

void values_print_help(const struct value_key *keys, size_t n, FILE *out)
{
        for (size_t i = 0; i < n; i++)
                (void)fprintf(out, "  %-21s %s (%s)\n", keys[i].name, keys[i].help,
                              keys[i].fallback);
}

/* ---- the kinds of values ---- */

int value_size(void *field, const char *text)
{
        return units_parse_size(text, field);
}

int value_duration(void *field, const char *text)
{
        return units_parse_duration(text, field);
}

int value_quantum(void *field, const char *text)
{
        uint64_t ns;
        int r = units_parse_duration(text, &ns);

        if (r < 0 || ns < QUANTUM_LEAST || ns > QUANTUM_MOST)
                return -EINVAL;
        *(uint64_t *)field = ns;
        return 0;
}

/* "auto" is 0 for the scheduler. */
static bool take_auto(void *field, const char *text)
{
        if (strcmp(text, "auto") != 0)
                return false;
        *(uint64_t *)field = 0;
        return true;
}

int value_quantum_or_auto(void *field, const char *text)
{
        return take_auto(field, text) ? 0 : value_quantum(field, text);
}

/* A duration of zero is an error: it would mean "auto". */
int value_duration_or_auto(void *field, const char *text)
{
        uint64_t ns;
        int r;

        if (take_auto(field, text))
                return 0;
        r = units_parse_duration(text, &ns);
        if (r == 0 && ns == 0)
                r = -EINVAL;
        if (r == 0)
                *(uint64_t *)field = ns;
        return r;
}

int value_number(void *field, const char *text)
{
        char *end;
        unsigned long v;

        if (!isdigit((unsigned char)text[0]))
                return -EINVAL;
        errno = 0;
        v = strtoul(text, &end, 10);
        if (errno || *end || v == 0 || v > 1000000)
                return -EINVAL;
        *(unsigned *)field = (unsigned)v;
        return 0;
}

/* Parses a decimal number that ends with `unit`. */
static int decimal(const char *text, const char *unit, double least, double most, double *ret)
{
        char *end;
        double v;

        if (!isdigit((unsigned char)text[0]) || tolower((unsigned char)text[1]) == 'x')
                return -EINVAL;
        v = strtod(text, &end);
        if (strcmp(end, unit) != 0 || !(v >= least && v <= most))
                return -EINVAL;
        *ret = v;
        return 0;
}

static int percent(void *field, const char *text, double least, double most)
{
        double v;

        if (decimal(text, "%", least, most, &v) < 0)
                return -EINVAL;
        *(unsigned *)field = (unsigned)(v * 10 + 0.5);
        return 0;
}

int value_percent_50(void *field, const char *text)
{
        return percent(field, text, 0.1, 50);
}

int value_percent_90(void *field, const char *text)
{
        return percent(field, text, 0.1, 90);
}

int value_percent_95(void *field, const char *text)
{
        return percent(field, text, 0.1, 95);
}

int value_percent_100(void *field, const char *text)
{
        return percent(field, text, 0.1, 100);
}

int value_percent_from_1(void *field, const char *text)
{
        return percent(field, text, 1, 100);
}

int value_weight(void *field, const char *text)
{
        double v;

        if (decimal(text, "", 0.01, 100, &v) < 0)
                return -EINVAL;
        *(unsigned *)field = (unsigned)(v * 1000 + 0.5);
        return 0;
}

int value_priority(void *field, const char *text)
{
        const char *digits = text + (text[0] == '-');
        uint64_t n;

        if (units_parse_count(digits, &n) < 0 || n > PRIORITY_MOST)
                return -EINVAL;
        *(int *)field = digits > text ? -(int)n : (int)n;
        return 0;
}

int value_answer(void *field, const char *text)
{
        bool yes = strcmp(text, "yes") == 0;

        if (!yes && strcmp(text, "no") != 0)
                return -EINVAL;
        *(int *)field = yes;
        return 0;
}

int value_bool(void *field, const char *text)
{
        int answer, r = value_answer(&answer, text);

        if (r == 0)
                *(bool *)field = answer;
        return r;
}
