/* options.h: the command line of a program or of a subcommand: one table drives parsing and help.
 *
 * All have --help, and programs have --version. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows leave out the members that are 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define OPTIONS_EXIT_USAGE 2 /* exit status after a wrong command line */
#define OPTIONS_HELPED     (-1)
#define OPTIONS_PATH_MAX   300

struct option_row {
        const char *name;
        const char *argument; /* placeholder of the value; NULL: the option takes no value */
        const char *help;
        /* 0; -ENODATA: the value must not be empty; another -errno: it is malformed; or an exit
         * status, after a message. NULL: nobody reads the value here. */
        int (*set)(const struct option_row *row, void *field, const char *value);
        size_t at;           /* where the field is in the program's options */
        const char *initial; /* set before the command line is read; NULL: none */
        const char *form;    /* FORM in the message "--NAME is FORM, not 'VALUE'"; NULL: set() says
                                what is wrong */
        unsigned parameter;  /* a number that set() uses */
        const char *const *words; /* for set(): the allowed values, up to a NULL */
        char letter;              /* the short form, such as 'f' of -f; 0: none */
        bool optional;            /* the value may be missing, and must follow '=' */
        /* The last row, which has no name, may name a table here whose rows follow. Their fields
         * are in the struct at `at`. If the last row has a set(), that is called instead of theirs,
         * with the struct and their row. */
        const struct option_row *more;
};

enum options_words {
        OPTIONS_NO_WORDS, /* all arguments are options */
        OPTIONS_WORDS,    /* words stand anywhere; options end at "--" */
        OPTIONS_COMMAND   /* options end at the first word, too */
};

struct options_table {
        const char *program;
        const struct option_row *rows; /* end with a row that has neither a name nor more */
        int width;                     /* columns of the help that the options take */
        void (*print_help)(const struct options_table *t);
        const char *command; /* "run" of "sublet run"; NULL: the program itself */
        enum options_words words;
        /* Prints a sentence and returns the status. NULL: the sentence goes to stderr, after
         * "PROGRAM: ". */
        int (*fail)(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
};

/* Sets the rows' initial values, then reads the command line. Words are moved to argv[0..], up to a
 * NULL. 0; an exit status after a message; OPTIONS_HELPED: help or the version is printed, and
 * nothing else is to be done. error: a buffer in which set() may say why it refuses a value. */
int options_parse(const struct options_table *t, void *options, int argc, char *argv[], char *error,
                  size_t size);
/* Returns the row at this index, or NULL. Rows of `more` follow the table's own. */
const struct option_row *options_row(const struct option_row *rows, unsigned index);

/* Functions for set(). A text must not be empty; a path must be absolute, at most OPTIONS_PATH_MAX
 * bytes; a count is from 1 to the row's parameter; a time is longer than 0; a part is from 0.01 to
 * 0.99 ("0.7" or "70%"); a word becomes its place in the row's list. */
int options_set_text(const struct option_row *row, void *field,
                     const char *value); /* const char * */
int options_set_path(const struct option_row *row, void *field,
                     const char *value); /* const char * */
int options_set_true(const struct option_row *row, void *field, const char *value);   /* bool */
int options_set_count(const struct option_row *row, void *field, const char *value);  /* unsigned */
int options_set_number(const struct option_row *row, void *field, const char *value); /* uint64_t */
int options_set_duration(const struct option_row *row, void *field,
                         const char *value); /* uint64_t, ns */
int options_set_seconds(const struct option_row *row, void *field,
                        const char *value); /* double, from a time */
int options_set_part(const struct option_row *row, void *field, const char *value); /* double */
int options_set_word(const struct option_row *row, void *field, const char *value); /* an enum */

/* Prints the rows to stdout. */
void options_print(const struct options_table *t);
/* Prints one sentence. Returns OPTIONS_EXIT_USAGE. */
int options_fail(const struct options_table *t, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
