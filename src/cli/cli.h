/* cli.h: what the subcommands of sublet share: their options, their exit statuses. */
#pragma once

#include <stddef.h>

enum cli_status {
        CLI_OK = 0,
        CLI_FAILED = 1,       /* the arguments were right, but it could not be done */
        CLI_USAGE = 2,        /* the arguments were wrong */
        CLI_NO_LAUNCH = 125,  /* run: parts of sublet are missing; the same status as env(1) and
                                 timeout(1) */
        CLI_NO_EXECUTE = 126, /* run: the command exists and cannot be executed */
        CLI_NO_COMMAND = 127, /* run: there is no such command */
};

enum cli_argument { CLI_NONE, CLI_REQUIRED, CLI_OPTIONAL };

/* One long option. An optional argument is only taken after '='. */
struct cli_option {
        const char *name;
        enum cli_argument argument;
        const char *placeholder; /* "DIR"; NULL without argument */
        const char *help;
};

struct cli_command {
        const char *name;
        int (*run)(const struct cli_command *self, int argc, char **argv);
        const char *arguments;
        const char *help;
        const struct cli_option *options; /* ends with a NULL name; NULL for none */
};

/* Calls take(option's index, its argument or NULL, userdata) for each option in argv[1..], in
 * order; take answers CLI_OK or an exit status after its own message. With stop_at_first the
 * first word that is no option ends them; without it words and options may be mixed. In both cases
 * "--" ends them. Leaves the other words at argv[0..*ret_words-1]. Answers CLI_OK, or the status to
 * exit with, the reason printed; --help prints the help and answers -1 (exit with CLI_OK). */
int cli_parse(const struct cli_command *self, int argc, char **argv, int stop_at_first,
              int (*take)(int option, const char *argument, void *userdata), void *userdata,
              int *ret_words);

/* What cli_parse answered, as an exit status. */
static inline int cli_parsed(int r)
{
        return r < 0 ? CLI_OK : r;
}

/* Prints one sentence to stderr after "sublet: "; returns status. */
int cli_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

void cli_print_help(const struct cli_command *command);
