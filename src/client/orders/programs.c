/* programs.c: owns the look for programs by name. Must never take another user's program for one's
 * own. */
#include "client/orders/programs.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "client/common/cli.h"

static int add(struct programs *p, int pid)
{
        for (size_t i = 0; i < p->n; i++)
                if (p->pid[i] == pid)
                        return CLI_OK;
        if (p->n == PROGRAMS_MAX)
                return cli_fail(CLI_USAGE, "at most %d programs can be named at a time",
                                PROGRAMS_MAX);
        p->pid[p->n++] = pid;
        return CLI_OK;
}

static int is_mine(const json_t *client)
{
        const json_t *uid = json_object_get(client, "uid");

        return json_is_integer(uid) && json_integer_value(uid) == (json_int_t)getuid();
}

/* Adds the programs of this name; NULL: all. mine: only the caller's own. A program on several GPUs
 * is added once. *ret_found: there is such a program, added now or before. */
static int add_those(struct programs *p, const json_t *status, const char *name, int mine,
                     bool *ret_found)
{
        const json_t *gpu, *client;
        size_t i, k;
        int r = CLI_OK;

        *ret_found = false;
        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        const char *called = json_string_value(json_object_get(client, "name"));

                        if (r != CLI_OK || (name && (!called || strcmp(called, name) != 0)) ||
                            (mine && !is_mine(client)))
                                continue;
                        *ret_found = true;
                        r = add(p, (int)json_integer_value(json_object_get(client, "pid")));
                }
        return r;
}

static int ask(const struct target *target, json_t **ret_status)
{
        return control_order(target, json_pack("{s:s}", "order", "status"), ret_status);
}

static int add_named(struct programs *p, const json_t *status, const char *name)
{
        bool found;
        int r = add_those(p, status, name, 1, &found);

        if (r == CLI_OK && !found)
                r = add_those(p, status, name, 0, &found);
        if (r == CLI_OK && !found)
                return cli_fail(CLI_FAILED,
                                "no program called '%s' shares a GPU under this daemon: sublet "
                                "status shows numbers and names",
                                name);
        return r;
}

int programs_add(struct programs *p, const struct target *target, const char *const *words,
                 size_t n)
{
        json_t *status = NULL; /* one look serves all names */
        int pid, r = CLI_OK;

        for (size_t i = 0; r == CLI_OK && i < n; i++) {
                if (cli_read_pid(words[i], &pid) == 0) {
                        r = add(p, pid);
                        continue;
                }
                if (!words[i][strspn(words[i], "-0123456789")])
                        r = cli_fail(CLI_USAGE,
                                     "'%s' is neither the number nor the name of a program: sublet "
                                     "status shows them",
                                     words[i]);
                if (r == CLI_OK && !status)
                        r = ask(target, &status);
                if (r == CLI_OK)
                        r = add_named(p, status, words[i]);
        }
        json_decref(status);
        return r;
}

int programs_add_all(struct programs *p, const struct target *target, int mine)
{
        json_t *status;
        bool found;
        int r = ask(target, &status);

        if (r != CLI_OK)
                return r;
        r = add_those(p, status, NULL, mine, &found);
        json_decref(status);
        if (r == CLI_OK && !found)
                return cli_fail(CLI_FAILED, "no program%s shares a GPU under this daemon",
                                mine ? " of yours" : "");
        return r;
}
