/* command_env.c: sublet env. Owns the quoting for the shell. Every line that it prints must
 * set or unset one variable of a POSIX shell. */
#include <stdio.h>
#include <unistd.h>

#include "client/common/cli.h"
#include "client/launch/launch.h"

void env_explain(FILE *out)
{
        (void)fputs(
                "\neval \"$(sublet env)\" sets up this shell and all that it starts. Setuid and "
                "statically\nlinked programs ignore it and run unshared, without a word; "
                "programs built for musl\ndo not start. sublet run says so of such a program, "
                "and starts it.\nsublet doctor names those that have loaded the driver.\n",
                out);
}

/* Prints text in single quotes, where every character is literal except the quote itself. */
static void print_quoted(const char *text)
{
        (void)putchar('\'');
        for (; *text; text++) {
                if (*text == '\'')
                        (void)fputs("'\\''", stdout);
                else
                        (void)putchar(*text);
        }
        (void)putchar('\'');
}

/* Tells a person at a terminal what the lines are for. */
static void print_hint(const struct launch *l)
{
        (void)fputs("\nThese lines do nothing yet. In this shell they take effect by\n"
                    "    eval \"$(sublet env ...)\"    (with the same options)\n"
                    "and no longer in a new terminal, or after\n"
                    "    unset",
                    stderr);
        for (unsigned i = 0; i < l->n_variables; i++)
                if (l->variables[i].value)
                        (void)fprintf(stderr, " %s", l->variables[i].name);
        (void)fputs("\nSetuid and statically linked programs then run unshared, without a word; "
                    "programs\nbuilt for musl do not start. sublet run says so of such a program, "
                    "and starts it.\n",
                    stderr);
}

int env_main(const struct cli_command *self, int argc, char **argv)
{
        struct launch l = {0};
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_WORDS, &l, &words);
        if (r == CLI_OK && words > 0)
                r = cli_fail(CLI_USAGE, "env takes no command, not '%s'; sublet run starts one",
                             argv[0]);
        if (r == CLI_OK)
                r = launch_complete(&l);
        for (unsigned i = 0; r == CLI_OK && i < l.n_variables; i++) {
                if (!l.variables[i].value) {
                        (void)printf("unset %s\n", l.variables[i].name);
                        continue;
                }
                (void)printf("export %s=", l.variables[i].name);
                print_quoted(l.variables[i].value);
                (void)putchar('\n');
        }
        if (r == CLI_OK && isatty(STDOUT_FILENO))
                print_hint(&l);
        launch_clear(&l);
        return cli_parsed(r);
}
