/* command_pause.c: sublet pause, resume and evict. Owns the wait until a program obeys. Must never
 * say that a program is frozen, or out of the card, before the program has reported it. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/ask.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/figures/client_words.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/orders/programs.h"

#define WAIT_NS (5 * NSEC_PER_SEC)
#define LOOK_NS (100 * NSEC_PER_MSEC) /* longest time between two looks at the status */

enum outcome { NOT_YET, DONE, FAILED };

struct program {
        int pid;
        char name[64];
        bool already; /* the program had received the same order before */
        uint64_t ordered_ns;
        uint64_t bytes; /* evict: bytes that were to leave the cards */
        enum outcome outcome;
        bool again; /* evict: the order is to be given again */
        char in_the_way[2 *
                        FIGURE_MAX]; /* why it has not obeyed, as of the last look at the status;
                                        "": the daemon does not answer */
};

/* ---- one program, as status shows it ---- */

static bool has_why(const json_t *frozen, const char *name)
{
        return client_lists(frozen, "why", name);
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

static bool is_in_state(const json_t *client, const char *name)
{
        const char *state = json_string_value(json_object_get(client, "state"));

        return state && strcmp(state, name) == 0;
}

static bool has_work(const json_t *client)
{
        return is_in_state(client, "waiting") || is_in_state(client, "restoring") ||
               (is_in_state(client, "running") && !json_is_true(json_object_get(client, "idle")));
}

/* Looks at the program on each of its GPUs: it has an entry for each. */
static void look_at_evicted(struct program *p, const json_t *status)
{
        char bytes[UNITS_TEXT_MAX], rest[UNITS_TEXT_MAX], time[UNITS_TEXT_MAX];
        uint64_t unevictable = 0;
        const json_t *gpu, *client;
        size_t i, k;

        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        if (json_integer_value(json_object_get(client, "pid")) != p->pid)
                                continue;
                        /* The program has work, so the daemon has dropped the order. Give it again:
                         * the answer says whether that can help. */
                        if (has_work(client)) {
                                p->again = true;
                                return;
                        }
                        if (!is_in_state(client, "idle"))
                                return;
                        unevictable += (uint64_t)json_integer_value(
                                json_object_get(client, "unevictable"));
                }
        p->outcome = DONE;
        if (p->bytes == 0)
                (void)printf("evicted %d (%s): none of its memory on the card can move\n", p->pid,
                             p->name);
        else
                (void)printf("evicted %d (%s): %s left the card in %s; %s stays, because contexts "
                             "and shared memory cannot move\n",
                             p->pid, p->name, units_format_size(p->bytes, bytes),
                             units_format_duration(clock_now_ns() - p->ordered_ns, time),
                             units_format_size(unevictable, rest));
}

/* One of the three orders. */
struct verb {
        const char *name, *told; /* told: completes "was told to ...", such as "stand still" */
        void (*look)(struct program *p, const json_t *client);
        bool withdrawn; /* the order is withdrawn if the program does not obey in time */
};

/* Notes why the program has not obeyed yet. */
static void look_in_the_way(struct program *p, const json_t *client, const struct verb *verb)
{
        char how[STOP_TEXT_MAX];

        if (p->again)
                (void)strcpy(p->in_the_way, "it had work again each time");
        else if (client_stopped(client, how))
                (void)snprintf(p->in_the_way, sizeof(p->in_the_way), "it is %s", how);
        else if (client_lists(client, "flags", "lost"))
                (void)strcpy(p->in_the_way,
                             verb->withdrawn ? "it has lost its connection"
                                             : "it has lost its connection; it is told when it is "
                                               "back");
        else
                (void)strcpy(p->in_the_way, "it does not answer; it waits for the driver");
}

static void look(struct program *p, const json_t *status, const struct verb *verb)
{
        const json_t *client = clients_find(status, p->pid);

        if (!client) {
                p->outcome = FAILED;
                (void)cli_fail(CLI_FAILED, "process %d (%s) has ended", p->pid, p->name);
        } else if (verb->look) {
                verb->look(p, client);
        } else {
                look_at_evicted(p, status);
        }
        look_in_the_way(p, client, verb);
}

/* ---- all programs ---- */

static json_t *order_for(const struct program *p, const char *name)
{
        return json_pack("{s:s, s:i}", "order", name, "pid", p->pid);
}

/* Gives the order. last: there is no time to give it again. */
static void order(const struct target *target, struct program *p, const struct verb *verb,
                  bool last)
{
        json_t *answer = NULL;
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
        int r = target_dir(target, dir, &kind);

        p->again = false;
        if (r == CLI_OK) {
                r = ask_daemon(dir, kind, order_for(p, verb->name), &answer);
                p->again = r == 0 && !last && json_is_true(json_object_get(answer, "starting"));
                if (!p->again)
                        r = control_answered(r, dir, true, answer, &answer);
        }
        if (r != CLI_OK) {
                p->outcome = FAILED;
                return;
        }
        if (!p->again) {
                (void)snprintf(p->name, sizeof(p->name), "%s",
                               json_string_value(json_object_get(answer, "name"))
                                       ? json_string_value(json_object_get(answer, "name"))
                                       : "?");
                p->already = json_is_true(json_object_get(answer, "already"));
                p->bytes = MAX(p->bytes,
                               (uint64_t)json_integer_value(json_object_get(answer, "bytes")));
                if (!p->ordered_ns)
                        p->ordered_ns = clock_now_ns();
        }
        json_decref(answer);
}

static void order_again(const struct target *target, struct program *p, size_t n,
                        const struct verb *verb, bool last)
{
        for (size_t i = 0; i < n; i++)
                if (p[i].outcome == NOT_YET && p[i].again)
                        order(target, &p[i], verb, last);
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
static void look_at_all(const struct target *target, struct program *p, size_t n,
                        const struct verb *verb)
{
        json_t *status = NULL;
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;

        if (target_dir(target, dir, &kind) == CLI_OK &&
            ask_daemon(dir, kind, json_pack("{s:s}", "order", "status"), &status) == 0 &&
            json_object_get(status, "gpus"))
                for (size_t i = 0; i < n; i++)
                        if (p[i].outcome == NOT_YET && !p[i].again)
                                look(&p[i], status, verb);
        json_decref(status);
}

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
        interrupted = number;
}

/* Withdraws the order: one that has failed must not stop the program at some later time. True: it
 * is withdrawn. */
static bool withdraw(const struct target *target, const struct program *p)
{
        json_t *answer = NULL;
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
        const bool done = target_dir(target, dir, &kind) == CLI_OK &&
                          ask_daemon(dir, kind, order_for(p, "resume"), &answer) == 0 &&
                          !json_object_get(answer, "error");

        json_decref(answer);
        return done;
}

static void give_up(const struct target *target, struct program *p, const struct verb *verb)
{
        const bool own = verb->withdrawn && !p->already;

        p->outcome = FAILED;
        (void)cli_fail(CLI_FAILED, "process %d (%s) was told to %s and has not%s: %s%s", p->pid,
                       p->name, verb->told, interrupted ? " so far" : " within 5 s",
                       *p->in_the_way ? p->in_the_way : "the daemon does not answer",
                       !own                  ? ""
                       : withdraw(target, p) ? "; the order is withdrawn"
                                             : "; the order stays in force until sublet resume");
}

static void wait_for_all(const struct target *target, struct program *p, size_t n,
                         const struct verb *verb)
{
        uint64_t until = clock_now_ns() + WAIT_NS, pause_ns = NSEC_PER_MSEC;

        for (;;) {
                const struct timespec t = {.tv_nsec = (long)pause_ns};
                const bool last = interrupted || clock_now_ns() >= until;

                order_again(target, p, n, verb, last);
                look_at_all(target, p, n, verb);
                if (!any_left(p, n) || last)
                        break;
                (void)nanosleep(&t, NULL);
                pause_ns = MIN(2 * pause_ns, LOOK_NS);
        }
        for (size_t i = 0; i < n; i++)
                if (p[i].outcome == NOT_YET)
                        give_up(target, &p[i], verb);
}

static int carry_out(const struct target *target, struct program *p, size_t n,
                     const struct verb *verb)
{
        const struct sigaction caught = {.sa_handler = interrupt};
        int status = CLI_OK;

        if (verb->withdrawn) {
                (void)sigaction(SIGINT, &caught, NULL);
                (void)sigaction(SIGTERM, &caught, NULL);
        }
        for (size_t i = 0; i < n; i++)
                order(target, &p[i], verb, false);
        wait_for_all(target, p, n, verb);
        for (size_t i = 0; i < n; i++)
                if (p[i].outcome != DONE)
                        status = CLI_FAILED;
        return status;
}

struct which {
        struct target target;
        bool mine, all;
};

const struct option_row programs_options[] = {
        TARGET_OPTION_ROWS(offsetof(struct which, target)),
        {"mine", NULL, "all programs of yours", options_set_true, offsetof(struct which, mine)},
        {"all", NULL, "all programs, of all users", options_set_true, offsetof(struct which, all)},
        {0},
};

static int tell_programs(const struct cli_command *self, int argc, char **argv,
                         const struct verb *verb)
{
        static struct program programs[PROGRAMS_MAX];
        static struct programs named;
        struct which which = {0};
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_WORDS, &which, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if ((words > 0) + which.mine + which.all != 1)
                return cli_fail(CLI_USAGE,
                                "%s which programs? Give numbers or names that sublet status "
                                "shows, or --mine, or --all",
                                self->name);
        if (which.mine || which.all)
                r = programs_add_all(&named, &which.target, which.mine);
        else
                r = programs_add(&named, &which.target, (const char *const *)argv, (size_t)words);
        for (size_t i = 0; i < named.n; i++)
                programs[i].pid = named.pid[i];
        return r == CLI_OK ? carry_out(&which.target, programs, named.n, verb) : r;
}

int pause_main(const struct cli_command *self, int argc, char **argv)
{
        return tell_programs(self, argc, argv,
                             &(struct verb){"pause", "stand still", look_at_paused, true});
}

int resume_main(const struct cli_command *self, int argc, char **argv)
{
        return tell_programs(self, argc, argv,
                             &(struct verb){"resume", "go on", look_at_resumed, false});
}

int evict_main(const struct cli_command *self, int argc, char **argv)
{
        return tell_programs(self, argc, argv,
                             &(struct verb){"evict", "leave the card", NULL, false});
}
