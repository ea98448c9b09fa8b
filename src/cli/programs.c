/* programs.c: owns the look for programs by name. Must never take another user's program for one's
 * own. */
#include "cli/programs.h"

#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

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

/* Adds the programs of this name, or all for NULL; of all users, or one's own. A program on several
 * GPUs is one. */
static int add_those(struct programs *p, const json_t *status, const char *name, int mine)
{
        const json_t *gpu, *client;
        size_t i, k;
        int r = CLI_OK;

        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        const char *called = json_string_value(json_object_get(client, "name"));

                        if (r == CLI_OK && (!name || (called && strcmp(called, name) == 0)) &&
                            (!mine || is_mine(client)))
                                r = add(p, (int)json_integer_value(json_object_get(client, "pid")));
                }
        return r;
}

static int ask(const struct target *target, json_t **ret_status)
{
        return control_order(target, json_pack("{s:s}", "order", "status"), ret_status);
}

int programs_add(struct programs *p, const struct target *target, const char *word)
{
        const size_t before = p->n;
        json_t *status;
        int pid, r;

        if (cli_read_pid(word, &pid) == 0)
                return add(p, pid);
        if (!word[strspn(word, "-0123456789")])
                return cli_fail(CLI_USAGE,
                                "'%s' is neither the number nor the name of a program: sublet "
                                "status shows them",
                                word);
        r = ask(target, &status);
        if (r != CLI_OK)
                return r;
        r = add_those(p, status, word, 1);
        if (r == CLI_OK && p->n == before)
                r = add_those(p, status, word, 0);
        json_decref(status);
        if (r == CLI_OK && p->n == before)
                return cli_fail(CLI_FAILED,
                                "no program called '%s' shares a GPU under this daemon: sublet "
                                "status shows numbers and names",
                                word);
        return r;
}

int programs_add_all(struct programs *p, const struct target *target, int mine)
{
        const size_t before = p->n;
        json_t *status;
        int r = ask(target, &status);

        if (r != CLI_OK)
                return r;
        r = add_those(p, status, NULL, mine);
        json_decref(status);
        if (r == CLI_OK && p->n == before)
                return cli_fail(CLI_FAILED, "no program%s shares a GPU under this daemon",
                                mine ? " of yours" : "");
        return r;
}
