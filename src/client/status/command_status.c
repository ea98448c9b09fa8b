/* command_status.c: sublet status. Must never change anything. */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/clock.h"
#include "base/places.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/talk/simulator_dir.h"
#include "client/status/status_view.h"
#include "client/figures/user_names.h"
#include "client/figures/client_words.h"

#define WATCH_NS (1 * NSEC_PER_SEC) /* time between two tables of --watch */

struct request {
        struct target target;
        bool json, watch;
        int pid; /* 0: all programs */
};

const struct option_row status_options[] = {
        TARGET_OPTION_ROWS(offsetof(struct request, target)),
        {"json", NULL, "print the daemon's state, in JSON", options_set_true,
         offsetof(struct request, json)},
        {"watch", NULL, "show it again every second, until Ctrl-C", options_set_true,
         offsetof(struct request, watch)},
        {0},
};

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

/* Returns the daemon's age. Its growth is the time between two answers. */
static double seconds_of(const json_t *status)
{
        return json_number_value(json_object_get(status, "uptime_s"));
}

/* Names --sim: newcomers look for programs on the simulated driver under the usual daemon. */
static void point_to_simulator(const struct target *target)
{
        char dir[PATHS_DIR_MAX], path[PATH_MAX];

        if (target->simulated || target->daemon ||
            simulator_dir(getenv("SIMCUDA_SESSION"), dir) != CLI_OK)
                return;
        if (paths_join(dir, PATHS_CONTROL_SOCKET, path, sizeof(path)) == 0 &&
            access(path, F_OK) == 0)
                (void)cli_fail(CLI_OK, "programs on the simulated driver have a daemon of their "
                                       "own: sublet status --sim shows them");
}

static int ask(const struct request *q, json_t **ret)
{
        int r = control_order(&q->target, json_pack("{ss}", "order", "status"), ret);

        if (r == CLI_OK)
                users_name(*ret);
        else
                point_to_simulator(&q->target);
        return r;
}

/* Returns CLI_OK, or CLI_FAILED after a message: the program is not there. */
static int show(const struct request *q, const json_t *status, const json_t *before)
{
        const struct status_view view = {.width = width_of_stdout(),
                                         .pid = q->pid,
                                         .before = before,
                                         .passed_s = seconds_of(status) - seconds_of(before)};

        if (q->watch && isatty(STDOUT_FILENO))
                (void)printf("\033[H\033[2J");
        if (status_view_print(status, &view, stdout) > 0 || !q->pid)
                return CLI_OK;
        return cli_fail(
                CLI_FAILED,
                "no program with pid %d shares a GPU under this daemon: sublet status shows all",
                q->pid);
}

/* A second daemon of this user counts the first one's programs as foreign, so both are shown. */
static void show_others(const struct request *q)
{
        const struct paths_input in = paths_input_here();
        struct private_place places[PLACES_MAX];
        const struct status_view view = {.width = width_of_stdout()};
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
        unsigned n;

        if (q->target.daemon || q->target.simulated || q->pid ||
            target_dir(&q->target, dir, &kind) != CLI_OK)
                return;
        n = places_look(&in, places);
        for (unsigned i = 0; i < n; i++) {
                const bool named = places[i].named || kind == PATHS_NAMED;
                json_t *answer;
                int r;

                if (places[i].error < 0 || places[i].elsewhere || strcmp(places[i].dir, dir) == 0)
                        continue;
                r = ask_daemon(places[i].dir, places[i].named ? PATHS_NAMED : PATHS_PRIVATE,
                               json_pack("{ss}", "order", "status"), &answer);
                if (r < 0)
                        continue;
                if (!clients_use(answer)) { /* this daemon ends soon */
                        json_decref(answer);
                        continue;
                }
                if (!q->json) {
                        users_name(answer);
                        (void)printf("\nin %s:\n", places[i].dir);
                        (void)status_view_print(answer, &view, stdout);
                        (void)fflush(stdout);
                }
                json_decref(answer);
                if (named)
                        (void)cli_fail(CLI_OK,
                                       "your programs are under two daemons, in %s and in %s, and "
                                       "take no turns with each other: " PLACES_ONE,
                                       dir, places[i].dir);
                else
                        (void)cli_fail(CLI_OK,
                                       "two daemons of yours are at work, and their programs take "
                                       "no turns with each other: " PLACES_JOIN,
                                       places[i].dir);
        }
}

static int watch(const struct request *q)
{
        const struct timespec nap = {.tv_sec = WATCH_NS / NSEC_PER_SEC};
        json_t *before = NULL, *now;
        int r;

        while ((r = ask(q, &now)) == CLI_OK) {
                r = show(q, now, before);
                json_decref(before);
                before = now;
                if (r != CLI_OK || fflush(stdout) != 0)
                        break;
                (void)nanosleep(&nap, NULL);
        }
        json_decref(before);
        return r;
}

int status_main(const struct cli_command *self, int argc, char **argv)
{
        struct request q = {0};
        json_t *answer;
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_WORDS, &q, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words > 1)
                return cli_fail(CLI_USAGE, "status takes one pid, not also '%s'", argv[1]);
        if (words == 1 && cli_read_pid(argv[0], &q.pid) < 0)
                return cli_fail(CLI_USAGE, "status takes the number of a process, not '%s'",
                                argv[0]);
        if (q.json && (q.watch || q.pid))
                return cli_fail(CLI_USAGE, "--json prints the whole state, once");
        if (q.watch)
                return watch(&q);
        r = ask(&q, &answer);
        if (r != CLI_OK)
                return r;
        if (q.json) {
                (void)json_dumpf(answer, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
                (void)putchar('\n');
        } else {
                r = show(&q, answer, NULL);
                (void)fflush(stdout);
                if (json_array_size(json_object_get(answer, "gpus")) == 0)
                        point_to_simulator(&q.target);
        }
        show_others(&q);
        json_decref(answer);
        return r;
}
