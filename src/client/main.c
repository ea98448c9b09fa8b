/* main.c: owns the table of subcommands; dispatch and help derive from it. Must never know what a
 * subcommand does. */
#include "client/common/cli.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "base/standard.h"
#include "base/text.h"

static const struct cli_command commands[] = {
#define COMMAND(name, options, explain, arguments, help) \
        {#name, name##_main, arguments, help, options, explain},
#include "client/common/commands.def"
};

static const struct cli_command *find_command(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
                if (strcmp(commands[i].name, name) == 0)
                        return &commands[i];
        return NULL;
}

static int no_command(const char *name)
{
        const struct cli_command *nearest = NULL;
        unsigned least = name[0] && name[1] && name[2] ? 3 : 2; /* every word is near a short one */

        for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
                const unsigned far = text_distance(name, commands[i].name);

                if (far < least) {
                        least = far;
                        nearest = &commands[i];
                }
        }
        if (nearest)
                return cli_fail(CLI_USAGE, "there is no command '%s'; did you mean %s?", name,
                                nearest->name);
        return cli_fail(CLI_USAGE, "there is no command '%s'; sublet help lists them", name);
}

static void print_commands(FILE *out)
{
        (void)fprintf(out, "usage: sublet COMMAND [ARGUMENT...]\n\n");
        for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
                (void)fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].help);
        (void)fprintf(out, "\nsublet help COMMAND explains one; sublet --version says which "
                           "release this is.\n");
}

static void print_variables(void)
{
        (void)puts("Variables of the environment; options of sublet run set the same.");
        for (unsigned s = 0; s < SETTING_COUNT; s++) {
                const struct setting_row *row = &settings[s];
                char form[SETTING_FORM_MAX];

                (void)printf("\n%s (%s): %s\n  %s", row->name, row->readers, row->help,
                             setting_form((enum setting)s, form));
                (void)printf(*row->initial ? "; unset: %s\n" : "\n", row->initial);
        }
}

int help_main(const struct cli_command *self, int argc, char **argv)
{
        const struct cli_command *command;
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_WORDS, NULL, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words > 1)
                return cli_fail(CLI_USAGE, "help takes one command, not also '%s'", argv[1]);
        if (words == 0) {
                print_commands(stdout);
                return CLI_OK;
        }
        if (strcmp(argv[0], "variables") == 0) {
                print_variables();
                return CLI_OK;
        }
        command = find_command(argv[0]);
        if (!command)
                return no_command(argv[0]);
        cli_print_help(command);
        return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
        const struct cli_command *command;
        bool version, help;

        if (argc < 2) {
                print_commands(stderr);
                return CLI_USAGE;
        }
        version = strcmp(argv[1], "--version") == 0;
        help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        if ((version || help) && argc > 2)
                return cli_fail(CLI_USAGE, "%s takes no argument, not '%s'", argv[1], argv[2]);
        if (version) {
                (void)printf("sublet %s\n", SUBLET_VERSION);
                return CLI_OK;
        }
        if (help) {
                print_commands(stdout);
                return CLI_OK;
        }
        command = find_command(argv[1]);
        if (!command && argv[1][0] == '-')
                return cli_fail(CLI_USAGE,
                                "there is no option '%s'; sublet help lists the commands", argv[1]);
        if (!command)
                return no_command(argv[1]);
        return command->run(command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
        int status;

        standard_open();
        log_open("sublet", LOG_LEVEL_WARNING);
        status = dispatch(argc, argv);
        /* Output that could not be written (full disk, closed pipe) is a failure. */
        if ((ferror(stdout) || fflush(stdout) != 0) && status == CLI_OK)
                return cli_fail(CLI_FAILED, "cannot write to stdout");
        return status;
}
