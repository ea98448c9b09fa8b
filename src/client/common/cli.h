/* cli.h: what the subcommands of sublet share: their table, options and exit statuses.
 *
 * One row of commands.def is one subcommand; dispatch and help derive from it. A subcommand is a
 * function in a file of its own, command_NAME.c. The function gets the subcommand's arguments and
 * returns the exit status. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "base/options.h"

enum cli_status {
        CLI_OK = 0,
        CLI_FAILED = 1, /* the arguments were right, but the command could not be carried out */
        CLI_USAGE = 2,  /* the arguments were wrong */
        CLI_NO_LAUNCH = 125,  /* sublet run: parts of sublet are missing. env(1) and timeout(1)
                                 use this status in the same way */
        CLI_NO_EXECUTE = 126, /* sublet run: the command exists but cannot be executed */
        CLI_NO_COMMAND = 127, /* sublet run: there is no such command */
};

struct cli_command {
        const char *name;
        int (*run)(const struct cli_command *self, int argc, char **argv);
        const char *arguments;
        const char *help;
        const struct option_row *options; /* NULL: no options */
        void (*explain)(FILE *out);       /* prints the end of the help; NULL: there is none */
};

#define COMMAND(name, options, explain, arguments, help) \
        int name##_main(const struct cli_command *self, int argc, char **argv);
#define OPTIONS(name) extern const struct option_row name[];
#define EXPLAIN(name) void name(FILE *out);
#include "client/common/commands.def"

/* Reads argv[1..] into options, as options_parse() does. Moves the words that are no options to
 * argv[0..*ret_words-1]; ret_words may be NULL with OPTIONS_NO_WORDS. Returns CLI_OK; an exit
 * status, after a message was printed; or -1, after help was printed (--help). */
int cli_parse(const struct cli_command *self, int argc, char **argv, enum options_words words,
              void *options, int *ret_words);

/* Converts a result of cli_parse() into an exit status. */
static inline int cli_parsed(int r)
{
        return r < 0 ? CLI_OK : r;
}

/* Reads the number of a process. 0 or -EINVAL; prints no message. */
int cli_read_pid(const char *text, int *ret);

/* Prints "sublet: " and one sentence to stderr; returns status. */
int cli_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

void cli_print_help(const struct cli_command *command);
