/* commands.h: what the subcommands of sublet-pairing share. Each takes its words after getopt, and
 * returns the exit status of sublet: 0, 1 after a message, 2 for wrong arguments. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "pairing/pairs.h"

enum { STATUS_OK, STATUS_FAILED, STATUS_USAGE };

int predict_main(int argc, char **argv);
int pair_main(int argc, char **argv);
int train_main(int argc, char **argv);
int serve_main(int argc, char **argv); /* the helper of subletd */

/* Prints "sublet: " and one sentence to stderr; returns status. */
int command_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A row of a command's options; ends with a NULL name. */
struct command_option {
        int id;
        const char *name;
        int argument; /* as in getopt.h */
        char letter;
};

/* Calls take(id, argument or NULL, userdata) for each option. Writes where the words begin in argv.
 * STATUS_OK; or a status, after a message. */
int command_options(int argc, char **argv, const struct command_option *options,
                    int (*take)(int id, const char *argument, void *userdata), void *userdata,
                    int *ret_words);

/* What predict and pair have in common. */
struct command_input {
        bool allowed[WAYS];
        const char *model_path;
        double capacity_bytes, quantum_s;
        bool json;
        /* After command_open(): */
        struct job *jobs;
        size_t n;
        struct model model;
        bool has_model;
        char no_model[MODEL_ERROR_MAX]; /* why there is none */
        struct pairs pairs;
};

/* Options that both have: each writes into in, or fails with a message. */
int command_take_ways(struct command_input *in, const char *text);
int command_take_size(const char *name, const char *text, double *ret);
int command_take_rate(const char *name, const char *text, double *ret);
int command_take_duration(const char *name, const char *text, double *ret);
int command_take_number(const char *name, const char *text, double least, double most, double *ret);

/* Reads the job files, and the model unless only turns are allowed. STATUS_OK; or a status, after a
 * message. in is closed either way. */
int command_open(struct command_input *in, char **paths, size_t n);
void command_close(struct command_input *in);

/* Prints JSON to stdout. json may be NULL: no memory. */
int command_print_json(json_t *json);
