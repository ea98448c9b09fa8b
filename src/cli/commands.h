/* commands.h: the table of subcommands. One row of commands.def is one subcommand; dispatch and
 * help derive from it. A subcommand is a function in a file of its own. The function gets the
 * subcommand's arguments and returns the exit status. */
#pragma once

#include "cli/cli.h"

#define COMMAND(name, options, arguments, help) \
        int name##_main(const struct cli_command *self, int argc, char **argv);
#define OPTIONS(name) extern const struct option_row name[];
#include "cli/commands.def"
#undef COMMAND
#undef OPTIONS
