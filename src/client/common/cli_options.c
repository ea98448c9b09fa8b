/* cli_options.c: owns the form of a subcommand's help. Must never act on an option. */
#include "client/common/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

struct reading {
        struct options_table table; /* the first member: print_help() gets its address */
        const struct cli_command *self;
};

static void print_help(const struct options_table *t)
{
        cli_print_help(((const struct reading *)t)->self);
}

int cli_parse(const struct cli_command *self, int argc, char **argv, enum options_words words,
              void *options, int *ret_words)
{
        static const struct option_row none[] = {{0}};
        const struct reading reading = {.table = {.program = "sublet",
                                                  .rows = self->options ? self->options : none,
                                                  .print_help = print_help,
                                                  .command = self->name,
                                                  .words = words,
                                                  .fail = cli_fail},
                                        .self = self};
        char error[160];
        const int r = options_parse(&reading.table, options, argc, argv, error, sizeof(error));

        if (r == CLI_OK && words != OPTIONS_NO_WORDS)
                for (*ret_words = 0; argv[*ret_words]; (*ret_words)++)
                        ;
        return r;
}

static bool is_first_of_its_name(const struct option_row *rows, unsigned index)
{
        const char *name = options_row(rows, index)->name;

        for (unsigned i = 0; i < index; i++)
                if (strcmp(options_row(rows, i)->name, name) == 0)
                        return false;
        return true;
}

void cli_print_help(const struct cli_command *command)
{
        const struct option_row *o;

        (void)printf("usage: sublet %s %s\n%s\n", command->name, command->arguments, command->help);
        for (unsigned i = 0; command->options && (o = options_row(command->options, i)); i++) {
                char left[64], letter[8] = "";

                if (!is_first_of_its_name(command->options, i))
                        continue;
                if (o->letter)
                        (void)snprintf(letter, sizeof(letter), ", -%c", o->letter);
                (void)snprintf(left, sizeof(left), "--%s%s%s%s%s", o->name, letter,
                               o->optional   ? "[="
                               : o->argument ? " "
                                             : "",
                               o->argument ? o->argument : "", o->optional ? "]" : "");
                if (i == 0)
                        (void)printf("\n");
                if (strlen(left) > 16)
                        (void)printf("  %s\n  %-16s  %s\n", left, "", o->help);
                else
                        (void)printf("  %-16s  %s\n", left, o->help);
        }
        if (command->explain)
                command->explain(stdout);
}

int cli_read_pid(const char *text, int *ret)
{
        uint64_t n;

        if (units_parse_count(text, &n) < 0 || n == 0 || n > INT32_MAX)
                return -EINVAL;
        *ret = (int)n;
        return 0;
}
