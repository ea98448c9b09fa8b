/* options.h: the command line of a program whose arguments are all options: one table drives
 * parsing and help. All of these programs have --version and --help. */
#pragma once

#include <stddef.h>

#define OPTIONS_EXIT_USAGE 2 /* exit status after a wrong command line */
#define OPTIONS_HELPED     (-1)
#define OPTIONS_PATH_MAX   300

struct option_row {
        const char *name;
        const char *argument; /* placeholder of the value; NULL: the option takes no value */
        const char *help;
        /* 0; -ENODATA: the value must not be empty; or another -errno: it is malformed. */
        int (*set)(void *field, const char *value);
        size_t at;           /* where the field is in the program's options */
        const char *initial; /* set before the command line is read; NULL: none */
};

struct options_table {
        const char *program;
        const struct option_row *rows;
        size_t n;
        int width; /* of the column with the options in the help */
        void (*print_help)(const struct options_table *t);
};

/* Sets the rows' initial values, then reads the command line. 0; OPTIONS_EXIT_USAGE after a
 * message; OPTIONS_HELPED: help or the version is printed, and nothing else is to be done. error:
 * room for the reason against a value, which set() may write. */
int options_parse(const struct options_table *t, void *options, int argc, char *argv[], char *error,
                  size_t size);
/* Values of set() for a field that is a const char *, or a bool. The text must not be empty; the
 * path must be absolute, with at most OPTIONS_PATH_MAX bytes. */
int options_set_text(void *field, const char *value);
int options_set_path(void *field, const char *value);
int options_set_true(void *field, const char *value);
/* Prints the rows to stdout. */
void options_print(const struct options_table *t);
/* Prints "PROGRAM: " and one sentence to stderr. Returns OPTIONS_EXIT_USAGE. */
int options_fail(const struct options_table *t, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
