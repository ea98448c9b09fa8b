/* values.c: owns how the values of a configuration are read. Must never apply a value that it does
 * not fully understand. */
#include "daemon/setup/values.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/shares.h"
#include "base/units.h"

#define QUANTUM_LEAST NSEC_PER_MSEC /* shorter than any drain */
#define QUANTUM_MOST  (3600 * NSEC_PER_SEC)
#define DURATION_MOST (1000 * 3600 * NSEC_PER_SEC)

/* ---- the table ---- */

static int explain(const struct value_key *k, const char *text, int r,
                   char error[static CONFIG_ERROR_MAX])
{
        if (r == -ERANGE)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%s \"%.200s\" is too large: write %s",
                               k->kind->name, text, k->kind->example);
        else if (r == -E2BIG)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%s is set too many times", k->name);
        else if (r == -ENXIO)
                (void)snprintf(error, CONFIG_ERROR_MAX, "unknown %s \"%.200s\": write %s",
                               k->kind->name, text, k->kind->example);
        else if (r == -EADDRNOTAVAIL)
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "%s \"%.200s\" can be reached from other machines: write %s",
                               k->kind->name, text, k->kind->example);
        else if (r == -ENOMEM)
                (void)snprintf(error, CONFIG_ERROR_MAX, "no memory for %s", k->name);
        else if (r < 0)
                (void)snprintf(error, CONFIG_ERROR_MAX, "malformed %s \"%.200s\": write %s",
                               k->kind->name, text, k->kind->example);
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
                r = item ? k->kind->parse(field, item) : -ENOMEM;
                if (r < 0)
                        return explain(k, item ? item : text, r, error);
                at += last;
                at += *at == ',';
        } while (at[strspn(at, " \t")]);
        return 0;
}

/* True if a field of zeroes means "none". */
static bool may_be_none(const struct value_key *k)
{
        return strcmp(k->fallback, "none") == 0;
}

static bool is_zero(const char *field, size_t size)
{
        return field[0] == 0 && memcmp(field, field + 1, size - 1) == 0;
}

const struct value_key *values_find(const struct value_key *keys, size_t n, const char *key)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(keys[i].name, key) == 0)
                        return &keys[i];
        return NULL;
}

int values_set(const struct value_key *keys, size_t n, void *base, const char *key,
               const char *text, bool more, char error[static CONFIG_ERROR_MAX])
{
        const struct value_key *k = values_find(keys, n, key);
        void *field;

        if (!k) {
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "unknown key \"%.200s\": subletd --help lists the keys", key);
                return -ENOENT;
        }
        field = (char *)base + k->offset;
        if (may_be_none(k) && strcmp(text, "none") == 0) {
                memset(field, 0, k->size);
                return 0;
        }
        if (!k->kind->clear)
                return explain(k, text, k->kind->parse(field, text), error);
        if (!more)
                k->kind->clear(field);
        return set_list(k, field, text, error);
}

const char *values_text(const struct value_key *k, const void *base,
                        char text[static VALUE_TEXT_MAX])
{
        const char *field = (const char *)base + k->offset;

        if ((may_be_none(k) && is_zero(field, k->size)) || !k->kind->format(field, text))
                (void)snprintf(text, VALUE_TEXT_MAX, "%s", k->fallback);
        return text;
}

void values_print_help(const struct value_key *keys, size_t n, FILE *out)
{
        for (size_t i = 0; i < n; i++)
                (void)fprintf(out, "  %-21s %s (%s)\n", keys[i].name, keys[i].help,
                              keys[i].fallback);
}

#define EXAMPLES  "a duration such as 250ms, 5s or 2min, "
#define DURATIONS EXAMPLES "from 0 to 1000h"
#define QUANTA    EXAMPLES "from 1ms to 1h"

/* ---- sizes ---- */

static int parse_size(void *field, const char *text)
{
        return units_parse_size(text, field);
}

/* Writes the number in the largest unit that it is a multiple of. */
static void put_multiple(uint64_t v, const uint64_t *units, const char *const *names,
                         char text[static VALUE_TEXT_MAX])
{
        size_t i = 0;

        while (units[i] > 1 && v % units[i] != 0)
                i++;
        (void)snprintf(text, VALUE_TEXT_MAX, "%llu%s", (unsigned long long)(v / units[i]),
                       names[i]);
}

static bool format_size(const void *field, char text[static VALUE_TEXT_MAX])
{
        static const uint64_t units[] = {UINT64_C(1) << 30, UINT64_C(1) << 20, UINT64_C(1) << 10,
                                         1};
        static const char *const names[] = {"GiB", "MiB", "KiB", "B"};
        uint64_t bytes = *(const uint64_t *)field;

        if (bytes == UINT64_MAX)
                return false;
        put_multiple(bytes, units, names, text);
        return true;
}

const struct value_kind value_size = {parse_size, format_size, "size", VALUE_SIZES, NULL};

/* ---- durations ---- */

static int parse_duration(void *field, const char *text)
{
        uint64_t ns;
        int r = units_parse_duration(text, &ns);

        if (r == 0 && ns > DURATION_MOST)
                r = -ERANGE;
        if (r == 0)
                *(uint64_t *)field = ns;
        return r;
}

static bool format_duration(const void *field, char text[static VALUE_TEXT_MAX])
{
        static const uint64_t units[] = {NSEC_PER_SEC, NSEC_PER_MSEC, NSEC_PER_USEC, 1};
        static const char *const names[] = {"s", "ms", "us", "ns"};
        uint64_t ns = *(const uint64_t *)field;

        if (ns == UINT64_MAX)
                return false;
        put_multiple(ns, units, names, text);
        return true;
}

static bool format_or_auto(const void *field, char text[static VALUE_TEXT_MAX])
{
        if (*(const uint64_t *)field != 0)
                return format_duration(field, text);
        (void)strcpy(text, "auto");
        return true;
}

static int parse_quantum(void *field, const char *text)
{
        uint64_t ns;
        int r = units_parse_duration(text, &ns);

        if (r < 0 || ns < QUANTUM_LEAST || ns > QUANTUM_MOST)
                return -EINVAL;
        *(uint64_t *)field = ns;
        return 0;
}

const struct value_kind value_quantum = {parse_quantum, format_duration, "duration", QUANTA, NULL};

/* "auto" is 0 for the scheduler. */
static bool take_auto(void *field, const char *text)
{
        if (strcmp(text, "auto") != 0)
                return false;
        *(uint64_t *)field = 0;
        return true;
}

static int parse_quantum_or_auto(void *field, const char *text)
{
        return take_auto(field, text) ? 0 : parse_quantum(field, text);
}

const struct value_kind value_quantum_or_auto = {parse_quantum_or_auto, format_or_auto, "quantum",
                                                 "auto, or " QUANTA, NULL};

/* A duration of zero is an error: it would mean "auto". */
static int parse_duration_or_auto(void *field, const char *text)
{
        uint64_t ns;
        int r;

        if (take_auto(field, text))
                return 0;
        r = parse_duration(&ns, text);
        if (r == 0 && ns == 0)
                r = -EINVAL;
        if (r == 0)
                *(uint64_t *)field = ns;
        return r;
}

const struct value_kind value_duration_or_auto = {parse_duration_or_auto, format_or_auto,
                                                  "duration", "auto, or " EXAMPLES "up to 1000h",
                                                  NULL};
const struct value_kind value_duration = {parse_duration, format_duration, "duration", DURATIONS,
                                          NULL};

/* ---- numbers ---- */

static int parse_number(void *field, const char *text)
{
        uint64_t v;

        if (units_parse_count(text, &v) < 0 || v == 0 || v > 1000000)
                return -EINVAL;
        *(unsigned *)field = (unsigned)v;
        return 0;
}

static bool format_number(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)snprintf(text, VALUE_TEXT_MAX, "%u", *(const unsigned *)field);
        return true;
}

const struct value_kind value_number = {parse_number, format_number, "number",
                                        "a number from 1 to 1000000", NULL};

static bool format_percent(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)shares_format_percent(*(const unsigned *)field, text);
        return true;
}

/* least, most: thousandths. form: the same limits as text */
#define PERCENT(suffix, least, most, form)                                                        \
        static int parse_percent_##suffix(void *field, const char *text)                          \
        {                                                                                         \
                return shares_parse_percent(text, least, most, field);                            \
        }                                                                                         \
        const struct value_kind value_percent_##suffix = {parse_percent_##suffix, format_percent, \
                                                          "share", form, NULL}

PERCENT(50, 1, 500, "a share from 0.1% to 50%");
PERCENT(90, 1, 900, "a share from 0.1% to 90%");
PERCENT(95, 1, SHARES_MINIMA_MAX, "a share from 0.1% to 95%");
PERCENT(100, 1, SHARES_ALL, "a share from 0.1% to 100%");
PERCENT(from_1, SHARES_MAXIMUM_MIN, SHARES_ALL, "a share from 1% to 100%");

static int parse_weight(void *field, const char *text)
{
        return shares_parse_weight(text, field);
}

static bool format_weight(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)shares_format(*(const unsigned *)field, text);
        return true;
}

const struct value_kind value_weight = {parse_weight, format_weight, "weight",
                                        "a weight from 0.01 to 100", NULL};

static int parse_priority(void *field, const char *text)
{
        return shares_parse_priority(text, field);
}

static bool format_priority(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)snprintf(text, VALUE_TEXT_MAX, "%d", *(const int *)field);
        return true;
}

const struct value_kind value_priority = {parse_priority, format_priority, "priority",
                                          "a priority from -20 to 20", NULL};

/* ---- answers ---- */

static int parse_answer(void *field, const char *text)
{
        bool yes = strcmp(text, "yes") == 0;

        if (!yes && strcmp(text, "no") != 0)
                return -EINVAL;
        *(int *)field = yes;
        return 0;
}

static bool format_answer(const void *field, char text[static VALUE_TEXT_MAX])
{
        const int answer = *(const int *)field;

        (void)strcpy(text, answer == 1 ? "yes" : "no");
        return answer >= 0;
}

const struct value_kind value_answer = {parse_answer, format_answer, "answer", "yes or no", NULL};

static int parse_bool(void *field, const char *text)
{
        int answer, r = parse_answer(&answer, text);

        if (r == 0)
                *(bool *)field = answer;
        return r;
}

static bool format_bool(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)strcpy(text, *(const bool *)field ? "yes" : "no");
        return true;
}

const struct value_kind value_bool = {parse_bool, format_bool, "answer", "yes or no", NULL};
