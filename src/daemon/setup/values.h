/* values.h: tables of keys, and how the text of each key is read.
 *
 * config.c has the table of [daemon], classes.c the one of [class NAME] and [default]. Nothing here
 * is thread-safe: names of users are looked up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CONFIG_ERROR_MAX 512

#define VALUE_TEXT_MAX 1152

/* How values of one kind are written. */
struct value_kind {
        /* Reads text into the field. 0; -EINVAL: malformed; -ERANGE: too large; -E2BIG: too many;
         * -ENXIO: unknown; -EADDRNOTAVAIL: not of this machine alone; -ENOMEM. */
        int (*parse)(void *field, const char *text);
        /* Writes the value so that parse() reads the same. False: none is set, so the fallback
         * holds. NULL: the kind is never shown. */
        bool (*format)(const void *field, char text[static VALUE_TEXT_MAX]);
        const char *name;           /* the KIND in the message 'malformed KIND "text"' */
        const char *example;        /* an example of a good value */
        void (*clear)(void *field); /* the value is a list with commas; NULL: it is one value */
};

struct value_key {
        const char *name;
        const struct value_kind *kind;
        size_t offset, size;  /* of the field in the structure of the table */
        const char *fallback; /* the default, as text for people; "none": the text "none" sets the
                                 field to zeroes */
        const char *help;
        /* When a change takes effect. */
        enum value_when { VALUE_AT_ONCE, VALUE_AT_RELOAD, VALUE_AT_START } when;
};

/* Sets the field of `key` in `base` from text. more: the text continues the list on the line
 * before. 0; -ENOENT: no such key; -EINVAL or -ENOMEM: a sentence is in error. */
int values_set(const struct value_key *keys, size_t n, void *base, const char *key,
               const char *text, bool more, char error[static CONFIG_ERROR_MAX]);
/* Returns the row of this key; NULL: there is none. */
const struct value_key *values_find(const struct value_key *keys, size_t n, const char *key);
/* Writes the value of one key, or its fallback, as text. Returns text. */
const char *values_text(const struct value_key *k, const void *base,
                        char text[static VALUE_TEXT_MAX]);
/* Prints one line for each key: name, meaning, default. */
void values_print_help(const struct value_key *keys, size_t n, FILE *out);

/* ---- the kinds of values, with the type of the field ---- */

extern const struct value_kind value_size;             /* uint64_t: bytes */
extern const struct value_kind value_duration;         /* uint64_t: nanoseconds */
extern const struct value_kind value_duration_or_auto; /* uint64_t; "auto": 0 */
extern const struct value_kind value_quantum;          /* uint64_t: 1ms to 1h */
extern const struct value_kind value_quantum_or_auto;  /* uint64_t; "auto": 0 */
extern const struct value_kind value_number;           /* unsigned: 1 to 1000000 */
extern const struct value_kind value_bool;             /* bool: "yes" or "no" */
extern const struct value_kind value_answer;           /* int: 1, 0; -1: none is set */
extern const struct value_kind value_priority;         /* int: -20 to 20 */
extern const struct value_kind value_weight;           /* unsigned: thousandths, 10 to 100000 */
/* unsigned: thousandths of "5%" or "2.5%", from 0.1 % to the figure in the name */
extern const struct value_kind value_percent_50, value_percent_90, value_percent_95,
        value_percent_100;
extern const struct value_kind value_percent_from_1; /* from 1 % to 100 % */

#define VALUE_SIZES "a size such as 512MiB or 20GiB"
