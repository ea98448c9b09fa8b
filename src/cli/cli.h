/* cli.h: what the subcommands of sublet share: options and exit statuses. */
#pragma once

#include <stddef.h>

enum cli_status {
        CLI_OK = 0,
        CLI_FAILED = 1, /* the arguments were right, but the command could not be carried out */
        CLI_USAGE = 2,  /* the arguments were wrong */
        CLI_NO_LAUNCH = 125,  /* sublet run: parts of sublet are missing. env(1) and timeout(1)
                                 use this status in the same way */
        CLI_NO_EXECUTE = 126, /* sublet run: the command exists but cannot be executed */
        CLI_NO_COMMAND = 127, /* sublet run: there is no such command */
};

enum cli_argument { CLI_NONE, CLI_REQUIRED, CLI_OPTIONAL };

/* One option. An optional argument must follow '='. */
struct cli_option {
        const char *name;
        enum cli_argument argument;
        const char *placeholder; /* such as "DIR"; NULL: the option takes no argument */
        const char *help;
        char letter;                   /* the short form, such as 'f' of -f; 0: there is none */
        const struct cli_option *more; /* in the last row: a table whose rows follow; NULL: none */
};

struct cli_command {
        const char *name;
        int (*run)(const struct cli_command *self, int argc, char **argv);
        const char *arguments;
        const char *help;
        const struct cli_option *options; /* ends with a NULL name; NULL: no options */
};

/* Returns the row at this index, or NULL. The rows of a table's `more` follow its own. */
const struct cli_option *cli_option_at(const struct cli_option *options, int index);

/* Calls take(index of the option, its argument or NULL, userdata) for each option in argv[1..],
 * in order. take() returns CLI_OK, or an exit status after it has printed a message. Options end at
 * "--"; with stop_at_first they also end at the first word that is no option. Moves the words that
 * are no options to argv[0..*ret_words-1]. Returns CLI_OK; an exit status, after a message was
 * printed; or -1, after help was printed (--help). */
int cli_parse(const struct cli_command *self, int argc, char **argv, int stop_at_first,
              int (*take)(int option, const char *argument, void *userdata), void *userdata,
              int *ret_words);

/* Converts a result of cli_parse() into an exit status. */
static inline int cli_parsed(int r)
{
        return r < 0 ? CLI_OK : r;
}

/* Reads the number of a process. 0; -EINVAL without a message. */
int cli_read_pid(const char *text, int *ret);

/* Reads the argument of this option, a number from 1. CLI_OK; or CLI_USAGE after a message. */
int cli_take_count(const char *option, const char *text, unsigned most, unsigned *ret);

/* Prints "sublet: " and one sentence to stderr; returns status. */
int cli_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

void cli_print_help(const struct cli_command *command);
