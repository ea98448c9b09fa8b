/* explain.c: owns the words of help that are longer than a line. Must never repeat an option's
 * help.
 */
#include "cli/explain.h"

#include <string.h>

#include "base/macros.h"
#include "cli/status_view.h"

static void explain_set(FILE *out)
{
        (void)fputs("\nWithout VALUE it shows the value, and without KEY all of them.\n\n"
                    "mode is how programs share a GPU:\n"
                    "  auto       programs that fit together run together; others take turns\n"
                    "  exclusive  one program at a time, even if more would fit\n"
                    "  off        no turns, and nothing moves: what does not fit is out of memory\n"
                    "\nA size is such as 20GiB, a duration such as 250ms, 5s or 2min, a share such "
                    "as 5%.\nsubletd --help explains each key. What is set is kept until the "
                    "daemon ends;\nwrite it into the configuration to keep it longer.\n",
                    out);
}

static void explain_env(FILE *out)
{
        (void)fputs(
                "\neval \"$(sublet env)\" sets up this shell and all that it starts. Setuid and "
                "statically\nlinked programs ignore it and run unshared, without a word; "
                "programs built for musl\ndo not start. sublet run says so of such a program, "
                "and starts it.\nsublet doctor names those that have loaded the driver.\n",
                out);
}

static void explain_bench(FILE *out)
{
        (void)fputs(
                "\nsublet bench pairs measures how fast pairs of programs run beside each other; "
                "sublet\nbench pairs --help has its options.\n",
                out);
}

static const struct {
        const char *command;
        void (*print)(FILE *out);
} explained[] = {{"status", status_view_explain},
                 {"set", explain_set},
                 {"env", explain_env},
                 {"bench", explain_bench}};

void explain(const char *command, FILE *out)
{
        for (size_t i = 0; i < ARRAY_SIZE(explained); i++)
                if (strcmp(explained[i].command, command) == 0)
                        explained[i].print(out);
}
