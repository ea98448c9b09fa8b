/* values.h: tables of keys, and how the text of each key is read.
 *
 * config.c has the table of [daemon], classes.c the one of [class NAME] and [default]. Nothing here
 * is thread-safe: names of users are looked up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CONFIG_ERROR_MAX 512

struct value_key {
        const char *name;
        /* Reads text into the field. 0; -EINVAL: malformed; -ERANGE: too large; -E2BIG: too many;
         * -ENXIO: unknown; -ENOMEM. */
        int (*parse)(void *field, const char *text);
        size_t offset, size;  /* of the field in the structure of the table */
        const char *kind;     /* the KIND in the message 'malformed KIND "text"' */
        const char *example;  /* an example of a good value */
        const char *fallback; /* the default, as text for people */
        const char *help;
        void (*clear)(void *field); /* the value is a list with commas; NULL: it is one value */
        bool at_start;
};

/* The last word of a row: when a change of the value takes effect. */
#define VALUE_AT_ONCE  .at_start = false
#define VALUE_AT_START .at_start = true

/* Sets the field of `key` in `base` from text. more: the text continues the list on the line
 * before. 0; -ENOENT: no such key; -EINVAL or -ENOMEM: a sentence is in error. */
int values_set(const struct value_key *keys, size_t n, void *base, const char *key,
               const char *text, bool more, char error[static CONFIG_ERROR_MAX]);
/* Prints one line for each key: name, meaning, default. */
void values_print_help(const struct value_key *keys, size_t n, FILE *out);

/* ---- the kinds of values: each reads a text into a field of the type named here ---- */

int value_size(void *field, const char *text);             /* uint64_t: bytes */
int value_duration(void *field, const char *text);         /* uint64_t: nanoseconds */
int value_duration_or_auto(void *field, const char *text); /* uint64_t; "auto": 0 */
int value_quantum(void *field, const char *text);          /* uint64_t: 1ms to 1h */
int value_quantum_or_auto(void *field, const char *text);  /* uint64_t; "auto": 0 */
int value_number(void *field, const char *text);           /* unsigned: 1 to 1000000 */
int value_bool(void *field, const char *text);             /* bool: "yes" or "no" */
int value_answer(void *field, const char *text);           /* int: 1 or 0 */
int value_priority(void *field, const char *text);         /* int: -20 to 20 */
int value_weight(void *field, const char *text);           /* unsigned: thousandths, 10 to 100000 */
/* unsigned: thousandths of "5%" or "2.5%", from 0.1 % to the figure in the name */
int value_percent_50(void *field, const char *text);
int value_percent_90(void *field, const char *text);
int value_percent_95(void *field, const char *text);
int value_percent_100(void *field, const char *text);
int value_percent_from_1(void *field, const char *text); /* from 1 % to 100 % */

#define VALUE_SIZES      "such as 512MiB or 1.5GiB"
#define VALUE_DURATIONS  "such as 250ms, 5s or 2min"
#define VALUE_QUANTA     VALUE_DURATIONS ", from 1ms to 1h"
#define VALUE_PRIORITIES "from -20 to 20"
