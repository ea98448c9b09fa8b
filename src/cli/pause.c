/* pause.c: sublet pause and sublet resume. Owns the wait until a program obeys. Must never say that
 * a program is frozen before the program has reported it. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/clients.h"
#include "cli/commands.h"
#include "cli/control.h"

#define PIDS_MAX 1024
#define WAIT_NS  (5 * NSEC_PER_SEC)
#define LOOK_NS  (100 * NSEC_PER_MSEC) /* longest time between two looks at the status */

enum outcome { NOT_YET, DONE, FAILED };

struct program {
        int pid;
        char name[64];
        bool already; /* the program had received the same order before */
        enum outcome outcome;
        const char *in_the_way; /* why it has not obeyed, as of the last look at the status */
};

/* ---- one program, as status shows it ---- */

static bool has_why(const json_t *frozen, const char *name)
{
        return status_lists(frozen, "why", name);
}

static const char *duration(const json_t *frozen, const char *field,
                            char buf[static UNITS_TEXT_MAX])
{
        double s = json_number_value(json_object_get(frozen, field));

        return units_format_duration(s > 0 && s < 1e9 ? (uint64_t)(s * 1e9) : 0, buf);
}

/* Returns the reason why a program cannot be paused; NULL: it has reported none. */
static const char *objection(const json_t *client)
{
        const char *off = json_string_value(json_object_get(client, "freeze_off"));
        const char *mode = json_string_value(json_object_get(client, "freeze"));

        if (off)
                return off;
        return mode && strcmp(mode, "off") == 0 ? "it runs with SUBLET_FREEZE=off" : NULL;
}

static void look_at_paused(struct program *p, const json_t *client)
{
        const json_t *frozen = json_object_get(client, "frozen");
        bool stands = json_number_value(json_object_get(frozen, "for_s")) > 0;
        char time[UNITS_TEXT_MAX];

        if (has_why(frozen, "paused") && stands) {
                p->outcome = DONE;
                if (p->already)
                        (void)printf("paused %d (%s): it has stood still for %s already\n", p->pid,
                                     p->name, duration(frozen, "for_s", time));
                else
                        (void)printf("paused %d (%s): it stands still, %s after the order\n",
                                     p->pid, p->name, duration(frozen, "took_s", time));
        } else if (!stands && objection(client)) {
                p->outcome = FAILED;
                (void)cli_fail(CLI_FAILED, "process %d (%s) cannot be paused: %s", p->pid, p->name,
                               objection(client));
        } else if (!json_is_true(json_object_get(client, "paused"))) {
                p->outcome = FAILED;
                (void)cli_fail(CLI_FAILED, "process %d (%s) was told to go on meanwhile", p->pid,
                               p->name);
        }
}

static void look_at_resumed(struct program *p, const json_t *client)
{
        const json_t *frozen = json_object_get(client, "frozen");

        if (json_is_true(json_object_get(client, "paused"))) {
                p->outcome = FAILED;
                (void)cli_fail(CLI_FAILED, "process %d (%s) was paused again meanwhile", p->pid,
                               p->name);
        } else if (p->already && (!frozen || json_is_null(frozen))) {
                p->outcome = DONE;
                (void)printf("resumed %d (%s): it was not paused\n", p->pid, p->name);
        } else if (json_is_object(frozen) && !has_why(frozen, "paused")) {
                p->outcome = DONE;
                (void)printf("resumed %d (%s): %s\n", p->pid, p->name,
                             p->already                ? "it was not paused"
                             : has_why(frozen, "away") ? "it goes on when it has its turn and its "
                                                         "memory is back"
                                                       : "it goes on");
        }
}

static void look(struct program *p, const json_t *status, bool paused)
{
        const json_t *client = status_client(status, p->pid);

        if (!client) {
                p->outcome = FAILED;
                (void)cli_fail(CLI_FAILED, "process %d (%s) has ended", p->pid, p->name);
        } else if (paused) {
                look_at_paused(p, client);
        } else {
                look_at_resumed(p, client);
        }
        p->in_the_way = status_lists(client, "flags", "lost")
                                ? "it has lost its connection; it is told when it is back"
                                : "it does not answer; it is stopped, or waits for the driver";
}

/* ---- all programs ---- */

static int order(const struct target *target, struct program *p, bool paused)
{
        json_t *answer;
        int r = control_order(
                target,
                json_pack("{s:s, s:i}", "order", paused ? "pause" : "resume", "pid", p->pid),
                &answer);

        if (r != CLI_OK) {
                p->outcome = FAILED;
                return r;
        }
        (void)snprintf(p->name, sizeof(p->name), "%s",
                       json_string_value(json_object_get(answer, "name"))
                               ? json_string_value(json_object_get(answer, "name"))
                               : "?");
        p->already = json_is_true(json_object_get(answer, "already"));
        json_decref(answer);
        return CLI_OK;
}

static bool any_left(const struct program *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (p[i].outcome == NOT_YET)
                        return true;
        return false;
}

/* Looks at the programs that have not obeyed yet. Does nothing if the daemon does not answer: the
 * caller repeats the look. */
static void look_at_all(const struct target *target, struct program *p, size_t n, bool paused)
{
        json_t *question = json_pack("{s:s}", "order", "status"), *status = NULL;
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;

        if (target_dir(target, dir, &kind) == CLI_OK &&
            control_ask(dir, kind, question, &status) == 0 && json_object_get(status, "gpus"))
                for (size_t i = 0; i < n; i++)
                        if (p[i].outcome == NOT_YET)
                                look(&p[i], status, paused);
        json_decref(status);
        json_decref(question);
}

static void wait_for_all(const struct target *target, struct program *p, size_t n, bool paused)
{
        uint64_t until = clock_now_ns() + WAIT_NS, pause_ns = NSEC_PER_MSEC;

        for (;;) {
                const struct timespec t = {.tv_nsec = (long)pause_ns};

                look_at_all(target, p, n, paused);
                if (!any_left(p, n) || clock_now_ns() >= until)
                        break;
                (void)nanosleep(&t, NULL);
                pause_ns = MIN(2 * pause_ns, LOOK_NS);
        }
        for (size_t i = 0; i < n; i++) {
                if (p[i].outcome != NOT_YET)
                        continue;
                p[i].outcome = FAILED;
                (void)cli_fail(CLI_FAILED,
                               "process %d (%s) was told to %s and has not within 5 s: %s",
                               p[i].pid, p[i].name, paused ? "stand still" : "go on",
                               p[i].in_the_way ? p[i].in_the_way : "the daemon does not answer");
        }
}

static int carry_out(const struct target *target, struct program *p, size_t n, bool paused)
{
        int status = CLI_OK;

        for (size_t i = 0; i < n; i++)
                (void)order(target, &p[i], paused);
        wait_for_all(target, p, n, paused);
        for (size_t i = 0; i < n; i++)
                if (p[i].outcome != DONE)
                        status = CLI_FAILED;
        return status;
}

static int read_pid(const char *command, const char *text, int *ret_pid)
{
        if (cli_read_pid(text, ret_pid) < 0)
                return cli_fail(CLI_USAGE, "%s takes the pids that sublet status shows, not '%s'",
                                command, text);
        return CLI_OK;
}

static int pause_or_resume(const struct cli_command *self, int argc, char **argv, bool paused)
{
        static struct program programs[PIDS_MAX];
        struct target target = {0};
        int words, r;

        r = cli_parse(self, argc, argv, 0, target_take, &target, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words == 0)
                return cli_fail(CLI_USAGE,
                                "%s which programs? Name the pids that sublet status shows",
                                self->name);
        if (words > PIDS_MAX)
                return cli_fail(CLI_USAGE, "%s takes at most %d pids", self->name, PIDS_MAX);
        for (int i = 0; i < words && r == CLI_OK; i++)
                r = read_pid(self->name, argv[i], &programs[i].pid);
        return r == CLI_OK ? carry_out(&target, programs, (size_t)words, paused) : r;
}

int pause_main(const struct cli_command *self, int argc, char **argv)
{
        return pause_or_resume(self, argc, argv, true);
}

int resume_main(const struct cli_command *self, int argc, char **argv)
{
        return pause_or_resume(self, argc, argv, false);
}
