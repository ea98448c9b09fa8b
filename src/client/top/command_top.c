/* command_top.c: sublet top. Owns the loop between the daemon and a person. Must never wait for the
 * daemon while a person may press a key. */
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/shares.h"
#include "base/units.h"
#include "client/figures/client_words.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/figures/figures.h"
#include "client/top/keys.h"
#include "client/top/layout.h"
#include "client/top/screen.h"
#include "client/top/top_table.h"
#include "client/figures/user_names.h"

#define INTERVAL_NS  (1500 * NSEC_PER_MSEC)
#define INTERVAL_MIN (100 * NSEC_PER_MSEC)
#define INTERVAL_MAX (3600 * NSEC_PER_SEC)
#define ANSWER_NS    (3 * NSEC_PER_SEC)    /* how long the daemon may take to answer */
#define SETTLE_NS    (100 * NSEC_PER_MSEC) /* time from an order to the look at its effect */
#define ORDERS_MAX   16                    /* orders that wait while the daemon answers */
#define WIDTH        80
#define WIDTH_MAX    1000

struct top {
        struct target target;
        struct top_view view;
        struct top_rows rows;
        struct history *history;
        struct frame frame;
        uint64_t interval_ns;
        unsigned width; /* columns of the snapshot; 0: not given */
        bool snapshot;
        bool unicode;

        /* At most one order is under way, or a look at the status; other orders wait. */
        struct ask_talk talk;
        struct top_order asked; /* name NULL: the status was asked for */
        struct top_order waiting[ORDERS_MAX];
        unsigned n_waiting;
        int set_pid, set_priority; /* an order after the last look; pid 0: there was none */
        uint64_t asked_ns, next_ns;
};

/* ---- options ---- */

static int set_interval(const struct option_row *row, void *field, const char *value)
{
        uint64_t *ns = field;

        return units_parse_duration(value, ns) < 0 || *ns < INTERVAL_MIN || *ns > INTERVAL_MAX
                       ? -EINVAL
                       : 0;
}

static int set_sort(const struct option_row *row, void *field, const char *value)
{
        const int column = table_column(value);
        char all[512] = "";

        if (column >= 0) {
                *(unsigned *)field = (unsigned)column;
                return CLI_OK;
        }
        for (unsigned i = 0; table_column_name(i); i++)
                (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
                               table_column_name(i));
        return cli_fail(CLI_USAGE, "--sort takes a column, not '%s': %s", value, all);
}

static int set_filter(const struct option_row *row, void *view, const char *value)
{
        struct top_view *v = view;

        (void)snprintf(v->filter, sizeof(v->filter), "%s", value);
        return 0;
}

#define AT(field) offsetof(struct top, field)

const struct option_row top_options[] = {
        TARGET_OPTION_ROWS(AT(target)),
        {"interval", "TIME", "time between two looks, such as 500ms or 5s; default 1500ms",
         set_interval, AT(interval_ns), .form = "a time from 100ms to 1h"},
        {"sort", "COLUMN", "sort by this column; default state", set_sort, AT(view.sort)},
        {"filter", "TEXT", "show only programs whose name, user, pid, ... contains TEXT",
         set_filter, AT(view)},
        {"snapshot", NULL, "print one picture as text, after two looks", options_set_true,
         AT(snapshot)},
        {"width", "N", "width of the snapshot; default COLUMNS, else 80", options_set_count,
         AT(width), .parameter = WIDTH_MAX},
        {0},
};

/* ---- a snapshot ---- */

static int look_once(struct top *t)
{
        json_t *status;
        int r = control_order(&t->target, json_pack("{ss}", "order", "status"), &status);

        if (r != CLI_OK)
                return r;
        users_name(status);
        history_add(t->history, status);
        json_decref(status);
        return CLI_OK;
}

static int snapshot_width(const struct top *t)
{
        const char *columns = getenv("COLUMNS");
        const int said = columns ? atoi(columns) : 0;

        return t->width ? (int)t->width : said > 0 ? MIN(said, WIDTH_MAX) : WIDTH;
}

static int snapshot(struct top *t)
{
        const struct timespec nap = {.tv_sec = (time_t)(t->interval_ns / NSEC_PER_SEC),
                                     .tv_nsec = (long)(t->interval_ns % NSEC_PER_SEC)};
        const int width = snapshot_width(t);
        int r = look_once(t);

        if (r == CLI_OK) {
                (void)nanosleep(&nap, NULL);
                r = look_once(t);
        }
        if (r != CLI_OK)
                return r;
        if (frame_begin(&t->frame, width, layout_height(t->history, &t->view, width), t->unicode) <
            0)
                return cli_fail(CLI_FAILED, "no memory for the picture");
        layout_draw(t->history, &t->view, &t->frame, &t->rows);
        frame_print(&t->frame, stdout);
        return CLI_OK;
}

/* ---- the talk with the daemon ---- */

/* Says why there are no figures. The next look tries again. */
static void say_absent(struct top *t, int r, const char *dir)
{
        const char *why = strerror(-r);

        if (r == -ETIMEDOUT)
                why = "it does not answer";
        else if (r == -EACCES || r == -EPERM)
                why = "no permission";
        if (r == -ENOENT || r == -ENOTDIR || r == -ECONNREFUSED)
                (void)snprintf(t->view.absent, sizeof(t->view.absent),
                               "no subletd is running at %s: waiting for one", dir);
        else
                (void)snprintf(t->view.absent, sizeof(t->view.absent),
                               "no answer from the subletd at %s (%s): trying again", dir, why);
}

/* Returns the priority that a program has, as far as is known. */
static int priority_of(const struct top *t, int pid)
{
        return t->set_pid == pid
                       ? t->set_priority
                       : (int)figure_number(clients_find(history_now(t->history), pid), "priority");
}

static json_t *order_of(const struct top *t, const struct top_order *o)
{
        char number[16];
        int priority;

        if (!o->name)
                return json_pack("{ss}", "order", "status");
        if (strcmp(o->name, "priority") != 0)
                return json_pack("{ss,si}", "order", o->name, "pid", o->pid);
        priority =
                MIN(MAX(priority_of(t, o->pid) + o->by, -SHARES_PRIORITY_MAX), SHARES_PRIORITY_MAX);
        (void)snprintf(number, sizeof(number), "%d", priority);
        return json_pack("{ss,si,ss}", "order", "set_program", "pid", o->pid, "priority", number);
}

static void ask(struct top *t, const struct top_order *what)
{
        char dir[PATHS_DIR_MAX] = "";
        enum paths_kind kind;
        json_t *order;
        int r;

        t->asked = *what;
        t->asked_ns = clock_now_ns();
        t->next_ns = t->asked_ns + t->interval_ns;
        if (target_dir(&t->target, dir, &kind) != CLI_OK)
                return;
        order = order_of(t, what);
        r = ask_begin(dir, kind, order, true, &t->talk);
        json_decref(order);
        if (r < 0)
                say_absent(t, r, dir);
}

static void take_priority(struct top *t, const json_t *answer)
{
        const char *value = figure_string(answer, "value");

        t->set_pid = t->asked.pid;
        t->set_priority = atoi(value);
        (void)snprintf(t->view.message, sizeof(t->view.message), "%d has priority %s%s",
                       t->asked.pid, value,
                       json_is_true(json_object_get(answer, "lowered"))
                               ? ": the daemon's owner allows no more"
                               : "");
}

/* Says in the message line what the daemon answered to an order. */
static void say_answer(struct top *t, const json_t *answer)
{
        const struct top_order *o = &t->asked;
        const json_t *bytes = json_object_get(answer, "bytes"); /* the answer to evict has it */
        const bool already = json_is_true(json_object_get(answer, "already"));
        char name[FIGURE_MAX], size[FIGURE_MAX];

        if (strcmp(o->name, "priority") == 0) {
                take_priority(t, answer);
                return;
        }
        figure_put(json_object_get(answer, "name"), FIGURE_TEXT, name);
        figure_put(bytes, FIGURE_SIZE, size);
        (void)snprintf(t->view.message, sizeof(t->view.message), "%s %d (%s): %s%s", o->name,
                       o->pid, name,
                       bytes     ? size
                       : already ? "ordered before"
                                 : "ordered",
                       bytes ? " leave the card" : "");
}

static void take_answer(struct top *t, json_t *answer)
{
        const char *error = json_string_value(json_object_get(answer, "error"));

        t->view.absent[0] = 0;
        if (error || t->asked.name)
                t->view.bad = error;
        if (error) {
                (void)snprintf(t->view.message, sizeof(t->view.message), "refused: %s", error);
        } else if (t->asked.name) {
                say_answer(t, answer);
        } else {
                users_name(answer);
                history_add(t->history, answer);
                t->set_pid = 0;
        }
        if (t->asked.name)
                t->next_ns = clock_now_ns() + SETTLE_NS;
}

/* Reads what there is of an answer. True: the picture has changed. */
static bool listen_to(struct top *t)
{
        char dir[PATHS_DIR_MAX] = "";
        json_t *answer = NULL;
        enum paths_kind kind;
        int r = ask_more(&t->talk, false, &answer);

        if (r == 0 && clock_now_ns() - t->asked_ns < ANSWER_NS)
                return false;
        if (r == 0)
                r = -ETIMEDOUT;
        ask_end(&t->talk);
        if (r > 0) {
                take_answer(t, answer);
                json_decref(answer);
        } else {
                (void)target_dir(&t->target, dir, &kind);
                say_absent(t, r == -ECONNRESET ? -ECONNREFUSED : r, dir);
        }
        return true;
}

/* ---- the loop ---- */

static volatile sig_atomic_t told_to_end;

static void on_end(int signal)
{
        told_to_end = 1;
}

static void draw(struct top *t)
{
        int width, height;

        screen_size(&width, &height);
        if (frame_begin(&t->frame, width, height, t->unicode) < 0)
                return;
        layout_draw(t->history, &t->view, &t->frame, &t->rows);
        screen_draw(&t->frame);
}

/* Handles the keys that were pressed. False: a person wants to leave. */
static bool read_keys(struct top *t)
{
        struct top_order order;
        unsigned key;

        while (screen_key(&key)) {
                switch (keys_press(&t->view, &t->rows, key, &order)) {
                case KEYS_QUIT:
                        return false;
                case KEYS_ORDER:
                        if (t->n_waiting < ORDERS_MAX)
                                t->waiting[t->n_waiting++] = order;
                        break;
                case KEYS_NOTHING:
                        break;
                }
        }
        return true;
}

/* Begins the next order or look, if one is due. True: the picture has changed. */
static bool begin_order(struct top *t)
{
        const struct top_order status = {0}, order = t->waiting[0];

        if (t->talk.fd >= 0)
                return false;
        if (t->n_waiting) {
                t->n_waiting--;
                memmove(&t->waiting[0], &t->waiting[1], t->n_waiting * sizeof(order));
                ask(t, &order);
        } else if (clock_now_ns() >= t->next_ns) {
                ask(t, &status);
        }
        return t->talk.fd < 0 && *t->view.absent;
}

static int wait_ms(const struct top *t)
{
        const uint64_t until = t->talk.fd >= 0 ? t->asked_ns + ANSWER_NS : t->next_ns;

        return (int)MIN(sub_sat(until, clock_now_ns()) / NSEC_PER_MSEC + 1, UINT64_C(3600000));
}

static void loop(struct top *t)
{
        bool changed = true;

        while (!told_to_end) {
                struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.events = POLLIN}};

                changed |= begin_order(t);
                if (changed)
                        draw(t);
                changed = false;
                fds[1].fd = t->talk.fd;
                if (poll(fds, 2, wait_ms(t)) < 0) /* a signal, such as that of a new size */
                        changed = true;
                if ((fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)))
                        return;
                if (fds[0].revents || changed) {
                        if (!read_keys(t))
                                return;
                        changed = true;
                }
                if (t->talk.fd >= 0)
                        changed |= listen_to(t);
        }
}

static int live(struct top *t)
{
        const struct sigaction end = {.sa_handler = on_end};
        const char *type = getenv("TERM");
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
        int r = target_dir(&t->target, dir, &kind); /* a message would spoil the picture later */

        if (r != CLI_OK)
                return r;
        if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
                return cli_fail(CLI_FAILED, "top needs a terminal: --snapshot prints one picture");
        if (screen_open(&t->view.colours) < 0)
                return cli_fail(CLI_FAILED,
                                "top cannot use this terminal (TERM=%s): --snapshot prints one "
                                "picture",
                                type ? type : "");
        (void)sigaction(SIGINT, &end, NULL);
        (void)sigaction(SIGTERM, &end, NULL);
        (void)sigaction(SIGHUP, &end, NULL);
        t->view.live = true;
        loop(t);
        if (t->talk.fd >= 0)
                ask_end(&t->talk);
        screen_close();
        return CLI_OK;
}

int top_main(const struct cli_command *self, int argc, char **argv)
{
        struct top t = {.interval_ns = INTERVAL_NS, .talk.fd = -EBADF};
        int r;

        t.view.sort = (unsigned)table_column("state");
        r = cli_parse(self, argc, argv, OPTIONS_NO_WORDS, &t, NULL);
        if (r != CLI_OK)
                return cli_parsed(r);
        (void)setlocale(LC_CTYPE, "");
        t.unicode = screen_is_unicode();
        t.view.interval_s = (double)t.interval_ns / (double)NSEC_PER_SEC;
        t.history = history_new();
        if (!t.history)
                return cli_fail(CLI_FAILED, "no memory for the figures");
        r = t.snapshot ? snapshot(&t) : live(&t);
        history_free(t.history);
        frame_free(&t.frame);
        return r;
}
