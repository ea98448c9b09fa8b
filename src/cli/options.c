/* options.c: owns the reading of a subcommand's options and their help. Must never act on an
 * option. */
#include "cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/explain.h"

const struct cli_option *cli_option_at(const struct cli_option *options, int index)
{
        for (const struct cli_option *o = options; o; o = o->name ? o + 1 : o->more)
                if (o->name && index-- == 0)
                        return o;
        return NULL;
}

static int find_option(const struct cli_option *options, const char *name, size_t length)
{
        const struct cli_option *o;

        for (int i = 0; (o = cli_option_at(options, i)); i++)
                if (strlen(o->name) == length && strncmp(o->name, name, length) == 0)
                        return i;
        return -1;
}

static int find_letter(const struct cli_option *options, const char *word)
{
        const struct cli_option *o;

        for (int i = 0; (o = cli_option_at(options, i)); i++)
                if (word[0] && !word[1] && o->letter == word[0])
                        return i;
        return -1;
}

/* Reads the option at argv[i]. Returns how many words it took, or 0 after a message. */
static int read_option(const struct cli_command *self, char **argv, int i, int argc,
                       int *ret_option, const char **ret_argument)
{
        const bool is_long = strncmp(argv[i], "--", 2) == 0;
        const char *name = argv[i] + (is_long ? 2 : 1), *value = is_long ? strchr(name, '=') : NULL;
        size_t length = value ? (size_t)(value - name) : strlen(name);
        int option = is_long ? find_option(self->options, name, length)
                             : find_letter(self->options, name);
        const struct cli_option *o = cli_option_at(self->options, option);

        if (!o) {
                (void)cli_fail(0, "%s has no option '%s'; sublet help %s lists them", self->name,
                               argv[i], self->name);
                return 0;
        }
        *ret_option = option;
        *ret_argument = value ? value + 1 : NULL;
        if (o->argument == CLI_NONE && value) {
                (void)cli_fail(0, "%s: --%s takes no argument, not '%s'", self->name, o->name,
                               value + 1);
                return 0;
        }
        if (o->argument == CLI_REQUIRED && !value) {
                if (i + 1 >= argc) {
                        (void)cli_fail(0, "%s: --%s needs an argument, %s", self->name, o->name,
                                       o->placeholder);
                        return 0;
                }
                *ret_argument = argv[i + 1];
                return 2;
        }
        return 1;
}

int cli_parse(const struct cli_command *self, int argc, char **argv, int stop_at_first,
              int (*take)(int option, const char *argument, void *userdata), void *userdata,
              int *ret_words)
{
        int words = 0, i = 1, r;

        while (i < argc) {
                const char *argument;
                int option, taken;

                if (strcmp(argv[i], "--") == 0) {
                        i++;
                        break;
                }
                /* A lone dash, or one before a digit (a negative number), is not an option. */
                if (argv[i][0] != '-' || argv[i][1] == 0 ||
                    (argv[i][1] >= '0' && argv[i][1] <= '9')) {
                        if (stop_at_first)
                                break;
                        argv[words++] = argv[i++];
                        continue;
                }
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
                        cli_print_help(self);
                        return -1;
                }
                taken = read_option(self, argv, i, argc, &option, &argument);
                if (taken == 0)
                        return CLI_USAGE;
                r = take(option, argument, userdata);
                if (r != CLI_OK)
                        return r;
                i += taken;
        }
        while (i < argc)
                argv[words++] = argv[i++];
        argv[words] = NULL;
        *ret_words = words;
        return CLI_OK;
}

void cli_print_help(const struct cli_command *command)
{
        const struct cli_option *o;

        (void)printf("usage: sublet %s %s\n%s\n", command->name, command->arguments, command->help);
        for (int i = 0; (o = cli_option_at(command->options, i)); i++) {
                char left[64], letter[8] = "";

                if (find_option(command->options, o->name, strlen(o->name)) != i)
                        continue; /* an earlier row has taken the name */
                if (o->letter)
                        (void)snprintf(letter, sizeof(letter), ", -%c", o->letter);
                (void)snprintf(left, sizeof(left), "--%s%s%s%s%s", o->name, letter,
                               o->argument == CLI_OPTIONAL   ? "[="
                               : o->argument == CLI_REQUIRED ? " "
                                                             : "",
                               o->placeholder ? o->placeholder : "",
                               o->argument == CLI_OPTIONAL ? "]" : "");
                if (i == 0)
                        (void)printf("\n");
                if (strlen(left) > 16)
                        (void)printf("  %s\n  %-16s  %s\n", left, "", o->help);
                else
                        (void)printf("  %-16s  %s\n", left, o->help);
        }
        explain(command->name, stdout);
}

int cli_read_pid(const char *text, int *ret)
{
        uint64_t n;

        if (units_parse_count(text, &n) < 0 || n == 0 || n > INT32_MAX)
                return -EINVAL;
        *ret = (int)n;
        return 0;
}

int cli_take_count(const char *option, const char *text, unsigned most, unsigned *ret)
{
        uint64_t n;

        if (units_parse_count(text, &n) < 0 || n == 0 || n > most)
                return cli_fail(CLI_USAGE, "--%s is a number from 1 to %u, not '%s'", option, most,
                                text);
        *ret = (unsigned)n;
        return CLI_OK;
}
