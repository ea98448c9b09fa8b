/* status.c: sublet status. Must never change anything. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/control.h"
#include "cli/status_view.h"

enum { OPTION_JSON = TARGET_OPTIONS };

const struct cli_option status_options[] = {
        TARGET_OPTION_ROWS,
        [OPTION_JSON] = {"json", CLI_NONE, NULL, "print the daemon's state, in JSON"},
        {0},
};

struct request {
        struct target target;
        int json;
};

static int take(int option, const char *argument, void *request)
{
        struct request *q = request;

        if (option < TARGET_OPTIONS)
                return target_take(option, argument, &q->target);
        q->json = 1;
        return CLI_OK;
}

/* Returns the width of the terminal, or the width that a wrapper such as watch(1) sets; 0:
 * unlimited. */
static int width_of_stdout(void)
{
        const char *columns = getenv("COLUMNS");
        int said = columns ? atoi(columns) : 0;
        struct winsize size;

        if (!isatty(STDOUT_FILENO))
                return said > 0 ? said : 0;
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
                return size.ws_col;
        return said > 0 ? said : 80;
}

/* Returns the name of a user. The daemon reports users by number, because looking up a name may
 * have to wait for a directory service. */
static json_t *name_of(const json_t *uid)
{
        char number[24];
        const struct passwd *pw;

        if (!json_is_integer(uid))
                return json_null();
        pw = getpwuid((uid_t)json_integer_value(uid));
        if (pw)
                return json_string(pw->pw_name);
        (void)snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(uid));
        return json_string(number);
}

static void name_users(json_t *answer)
{
        json_t *gpu, *client;
        size_t i, k;

        json_array_foreach (json_object_get(answer, "gpus"), i, gpu)
                json_array_foreach (json_object_get(gpu, "clients"), k, client)
                        (void)json_object_set_new(client, "user",
                                                  name_of(json_object_get(client, "uid")));
}

int status_main(const struct cli_command *self, int argc, char **argv)
{
        struct request q = {0};
        json_t *answer;
        int words, r;

        r = cli_parse(self, argc, argv, 0, take, &q, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words > 0)
                return cli_fail(CLI_USAGE, "status takes no argument, not '%s'", argv[0]);
        r = control_order(&q.target, json_pack("{ss}", "order", "status"), &answer);
        if (r != CLI_OK)
                return r;
        name_users(answer);
        if (q.json) {
                (void)json_dumpf(answer, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
                (void)putchar('\n');
        } else {
                status_view_print(answer, width_of_stdout(), stdout);
        }
        json_decref(answer);
        return CLI_OK;
}
