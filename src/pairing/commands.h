/* commands.h: what the subcommands of sublet-pairing share. Each returns the exit status of sublet:
 * 0, 1 after a message, 2 for wrong arguments. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/options.h"
#include "pairing/pairs.h"

enum { STATUS_OK, STATUS_FAILED, STATUS_USAGE };

int predict_main(int argc, char **argv);
int pair_main(int argc, char **argv);
int train_main(int argc, char **argv);
int serve_main(int argc, char **argv); /* the helper of subletd */

/* Prints "sublet: " and one sentence to stderr; returns status. */
int command_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads argv[1..] into options, as options_parse() does. Moves the words that are no options to
 * argv[0..*ret_words-1]. STATUS_OK; or a status, after a message. */
int command_options(const char *command, int argc, char **argv, const struct option_row *rows,
                    void *options, int *ret_words);

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
        char no_model[MODEL_ERROR_MAX]; /* why there is no model */
        struct pairs pairs;
};

/* For `set` of an option row whose field is a double: a size in bytes, a rate in bytes a second.
 * Both refuse 0. */
int command_set_size(const struct option_row *row, void *field, const char *value);
int command_set_rate(const struct option_row *row, void *field, const char *value);

#define COMMAND_SIZE_FORM     "a size such as 80GiB"
#define COMMAND_RATE_FORM     "a rate such as 20GB/s"
#define COMMAND_DURATION_FORM "a duration such as 2s"

/* Reads the job files, and the model unless only turns are allowed. STATUS_OK; or a status, after a
 * message. in is closed either way. */
int command_open(struct command_input *in, char **paths, size_t n);
void command_close(struct command_input *in);

/* Prints JSON to stdout. json may be NULL: no memory. */
int command_print_json(json_t *json);
