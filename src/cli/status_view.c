/* status_view.c: owns the layout of the status table. Must never show a figure that the daemon did
 * not report. */
#include "cli/status_view.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/columns.h"

#define CELL_MAX    80
#define CLIENTS_MAX 4096
#define UNKNOWN     "N/A"

enum kind { TEXT, COUNT, SIZE, SECONDS };

/* The columns of the table of clients. In a table that is too wide, a column with a floor may be
 * cut to that width, and columns with a rank are left out, lowest rank first. A seldom column is
 * shown only if some client has a value other than 0 or null. */
static const struct column {
        const char *title, *field;
        enum kind kind;
        int floor, rank;
        bool seldom;
        const char *help;
} columns[] = {
        {"PID", "pid", COUNT, 0, 0, false, "number of the process"},
        {"USER", "user", TEXT, 5, 5, false, "who runs it"},
        {"NAME", "name", TEXT, 10, 0, false,
         "its file, its script or its notebook; or what --name says"},
        {"CLASS", "class", TEXT, 5, 13, true, "its class in the daemon's configuration"},
        {"GROUP", "group", TEXT, 5, 12, true, "programs of one group run together"},
        {"PRI", "priority", COUNT, 0, 11, true, "its priority; higher goes first"},
        {"STATE", "state", TEXT, 0, 0, false, "what it does: see below"},
        {"FOR", "since_s", SECONDS, 0, 6, false, "since when"},
        {"ALLOCATED", "allocated", SIZE, 0, 7, false, "memory that it has allocated"},
        {"BACKED", "backed", SIZE, 0, 0, false, "of that, what is on the GPU now"},
        {"EVICTED", "evicted", SIZE, 0, 10, false, "of that, what is in host memory"},
        {"OVERFLOW", "overflow", SIZE, 0, 9, true,
         "memory that it uses in host memory (--memory overflow)"},
        {"MANAGED", "managed", SIZE, 0, 8, true, "managed memory (--memory managed)"},
        {"UNEVICT", "unevictable", SIZE, 0, 3, false,
         "GPU memory that cannot move: contexts, arrays, shared memory"},
        {"ARENA", "arena", SIZE, 0, 1, false, "pinned host memory for what is evicted"},
        {"GPU TIME", "gpu_time_s", SECONDS, 0, 4, false, "how long it had a turn and was busy"},
        {"HAND-OFFS", "handoffs", COUNT, 0, 2, false, "its turns that ended for another program"},
};

enum { RANKS = 13 };

typedef char row_cells[ARRAY_SIZE(columns)][CELL_MAX];

/* Formats a size like "41.8G", in steps of 1024 as ls -h; writing "iB" would cost 24 columns a
 * line. */
static void put_short_size(double bytes, char cell[CELL_MAX])
{
        static const char units[] = "BKMGTPE";
        size_t i = 0;

        for (; bytes >= 1023.5 && i + 2 < sizeof(units); i++)
                bytes /= 1024;
        (void)snprintf(cell, CELL_MAX, "%.*f%c", i > 0 && bytes < 99.95 ? 1 : 0, bytes, units[i]);
        if (bytes == 0)
                (void)strcpy(cell, "0");
}

/* Formats a duration like "3.2s", "47s", "3m20s", "2h05m", "4d11h". */
static void put_short_seconds(double s, char cell[CELL_MAX])
{
        unsigned long whole = s > 0 && s < 1e12 ? (unsigned long)s : 0;

        if (s < 9.95)
                (void)snprintf(cell, CELL_MAX, "%.1fs", s > 0 ? s : 0);
        else if (whole < 60)
                (void)snprintf(cell, CELL_MAX, "%.0fs", s);
        else if (whole < 3600)
                (void)snprintf(cell, CELL_MAX, "%lum%02lus", whole / 60, whole % 60);
        else if (whole < 86400)
                (void)snprintf(cell, CELL_MAX, "%luh%02lum", whole / 3600, whole % 3600 / 60);
        else
                (void)snprintf(cell, CELL_MAX, "%lud%02luh", whole / 86400, whole % 86400 / 3600);
}

/* Another user's program may have any name. */
static void put_text(const char *text, char cell[CELL_MAX])
{
        (void)text_copy(cell, CELL_MAX, text);
}

static void put_cell(const json_t *value, enum kind kind, char cell[CELL_MAX])
{
        if (kind == TEXT && json_is_string(value))
                put_text(json_string_value(value), cell);
        else if (kind == COUNT && json_is_integer(value))
                (void)snprintf(cell, CELL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else if (kind == SIZE && json_is_number(value))
                put_short_size(json_number_value(value), cell);
        else if (kind == SECONDS && json_is_number(value))
                put_short_seconds(json_number_value(value), cell);
        else
                (void)strcpy(cell, UNKNOWN);
}

static const json_t *frozen_of(const json_t *client)
{
        return json_object_get(client, "frozen");
}

bool status_lists(const json_t *object, const char *field, const char *text)
{
        const json_t *item;
        size_t i;

        json_array_foreach (json_object_get(object, field), i, item)
                if (json_is_string(item) && strcmp(json_string_value(item), text) == 0)
                        return true;
        return false;
}

const json_t *status_client(const json_t *status, int pid)
{
        json_t *gpu, *client, *found = NULL;
        size_t i, k;

        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                json_array_foreach (json_object_get(gpu, "clients"), k, client)
                        if (json_integer_value(json_object_get(client, "pid")) == pid &&
                            (!found || json_is_object(json_object_get(client, "frozen"))))
                                found = client; /* of two entries prefer the one with "frozen":
                                                   the other has lost its connection */
        return found;
}

static bool is_frozen_for(const json_t *client, const char *reason)
{
        return status_lists(frozen_of(client), "why", reason);
}

static bool is_frozen(const json_t *client)
{
        return json_number_value(json_object_get(frozen_of(client), "for_s")) > 0;
}

/* True if a user has paused the program and it is frozen; STATE then shows "paused". */
static bool is_paused(const json_t *client)
{
        return is_frozen(client) && is_frozen_for(client, "paused");
}

static void put_field(const json_t *client, const struct column *column, char cell[CELL_MAX])
{
        const json_t *value = json_object_get(client, column->field);

        if (is_paused(client) && strcmp(column->field, "state") == 0)
                (void)strcpy(cell, "paused");
        else if (is_paused(client) && strcmp(column->field, "since_s") == 0)
                put_cell(json_object_get(frozen_of(client), "for_s"), SECONDS, cell);
        else
                put_cell(value, column->kind, cell);
}

static const char *text_of(const json_t *object, const char *field)
{
        const char *text = json_string_value(json_object_get(object, field));

        return text ? text : UNKNOWN;
}

static const char *size_of(const json_t *object, const char *field, char buf[static UNITS_TEXT_MAX])
{
        const json_t *value = json_object_get(object, field);

        if (!json_is_number(value) || json_number_value(value) < 0)
                return UNKNOWN;
        return units_format_size((uint64_t)json_number_value(value), buf);
}

static const char *duration_of(const json_t *object, const char *field,
                               char buf[static UNITS_TEXT_MAX])
{
        const json_t *value = json_object_get(object, field);

        if (!json_is_number(value) || !(json_number_value(value) >= 0))
                return UNKNOWN;
        return units_format_duration((uint64_t)(json_number_value(value) * (double)NSEC_PER_SEC),
                                     buf);
}

/* Formats the quantum: "auto", or the set value in seconds. */
static const char *quantum_of(const json_t *status, char buf[static UNITS_TEXT_MAX])
{
        return json_is_string(json_object_get(status, "quantum"))
                       ? text_of(status, "quantum")
                       : duration_of(status, "quantum", buf);
}

static void print_gpu(const json_t *status, const json_t *gpu, FILE *out)
{
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX], d[UNITS_TEXT_MAX];
        char index[CELL_MAX], handoffs[CELL_MAX];

        put_cell(json_object_get(gpu, "index"), COUNT, index);
        put_cell(json_object_get(gpu, "handoffs"), COUNT, handoffs);
        (void)fprintf(out, "GPU %s  %s  %s\n", index, text_of(gpu, "name"), text_of(gpu, "uuid"));
        (void)fprintf(out, "  capacity %s of %s, used by others %s, headroom %s\n",
                      size_of(gpu, "capacity", a), size_of(gpu, "total", b),
                      size_of(gpu, "foreign", c), size_of(gpu, "headroom", d));
        (void)fprintf(out, "  programs see %s; charged %s, committed %s\n",
                      size_of(gpu, "visible", a), size_of(gpu, "charged", b),
                      size_of(gpu, "committed", c));
        (void)fprintf(out, "  unevictable bytes %s of a budget of %s\n",
                      size_of(gpu, "unevictable", a), size_of(gpu, "unevictable_budget", b));
        (void)fprintf(out, "  mode %s, quantum %s (%s now), hand-offs %s%s\n",
                      text_of(status, "mode"), quantum_of(status, b),
                      duration_of(gpu, "quantum_s", a), handoffs,
                      json_is_true(json_object_get(gpu, "contested")) ? ", contested" : "");
}

/* Returns a number; 0: not known. */
static double number_of(const json_t *object, const char *field)
{
        return json_number_value(json_object_get(object, field));
}

/* The notes below a client's row. width: the most columns in a line, or 0: all notes in one line.
 * used: columns used in the present line, or 0: nothing printed yet. */
struct notes {
        FILE *out;
        int width, used;
};

static void add_note(struct notes *n, const char *text)
{
        static const char indent[] = "        ";
        const char *separator = n->used ? ", " : indent;

        if (n->used && n->width && n->used + (int)strlen(", ,") + columns_of(text) > n->width) {
                (void)fputs(",\n", n->out);
                separator = indent;
                n->used = 0;
        }
        (void)fprintf(n->out, "%s%s", separator, text);
        n->used += (int)strlen(separator) + columns_of(text);
}

static void note_flags(struct notes *n, const json_t *client)
{
        const json_t *flags = json_object_get(client, "flags"), *flag;
        char cell[CELL_MAX];
        size_t i;

        if (json_is_true(json_object_get(client, "idle")) && !is_paused(client))
                add_note(n, "idle");
        json_array_foreach (flags, i, flag) {
                put_cell(flag, TEXT, cell);
                if (strcmp(cell, "idle") != 0)
                        add_note(n, cell);
        }
}

/* Adds notes about freezing. For a paused client the columns STATE and FOR already show most of
 * this. */
static void note_frozen(struct notes *n, const json_t *client)
{
        char cell[CELL_MAX], text[2 * CELL_MAX];

        if (is_frozen(client) && !is_paused(client)) {
                put_cell(json_object_get(frozen_of(client), "for_s"), SECONDS, cell);
                (void)snprintf(text, sizeof(text), "frozen for %s", cell);
                add_note(n, text);
        }
        if (is_frozen(client) && is_frozen_for(client, "away"))
                add_note(n, "without its memory");
        if (json_is_true(json_object_get(client, "paused")) && !is_paused(client))
                add_note(n, "told to pause");
}

/* Adds notes about the memory mode, unless it is the default. */
static void note_memory(struct notes *n, const json_t *client)
{
        const char *mode = json_string_value(json_object_get(client, "memory"));
        double keep = number_of(client, "keep");
        char cell[CELL_MAX], text[2 * CELL_MAX];

        if (!mode || strcmp(mode, "swap") == 0)
                return;
        put_text(mode, cell);
        (void)snprintf(text, sizeof(text), "memory %s", cell);
        add_note(n, text);
        if (keep > 0) {
                put_short_size(keep, cell);
                (void)snprintf(text, sizeof(text), "keeps to %s", cell);
                add_note(n, text);
        }
}

static void note_number(struct notes *n, const json_t *client, const char *field, double usual,
                        const char *before, double unit, const char *after)
{
        const json_t *value = json_object_get(client, field);
        char text[2 * CELL_MAX];

        if (!json_is_number(value) || json_number_value(value) == usual)
                return;
        (void)snprintf(text, sizeof(text), "%s %g%s", before, json_number_value(value) * unit,
                       after);
        add_note(n, text);
}

/* Adds notes about what the program has of its own, and its memory cap. */
static void note_share(struct notes *n, const json_t *client)
{
        char cell[CELL_MAX], text[2 * CELL_MAX];

        note_number(n, client, "weight", 1, "weight", 1, "");
        note_number(n, client, "minimum", 0, "minimum", 100, "%");
        note_number(n, client, "maximum", 0, "maximum", 100, "%");
        if (json_is_integer(json_object_get(client, "memory_cap"))) {
                put_short_size(number_of(client, "memory_cap"), cell);
                (void)snprintf(text, sizeof(text), "memory cap %s", cell);
                add_note(n, text);
        }
        if (json_is_true(json_object_get(client, "held")))
                add_note(n, "waits because it has used its maximum");
}

/* True if this program has not begun its turn yet: its memory comes back. */
static bool is_on_its_way(json_t *const *clients, size_t count, const json_t *pid)
{
        for (size_t i = 0; i < count; i++)
                if (json_equal(json_object_get(clients[i], "pid"), pid))
                        return strcmp(text_of(clients[i], "state"), "restoring") == 0;
        return false;
}

/* Prints the notes: flags, freezing, the client that this one waits for, the memory mode, shares
 * and caps, and the bytes that did not have to be copied. Most clients have no notes. */
static void print_notes(const json_t *client, json_t *const *clients, size_t count, int width,
                        FILE *out)
{
        const json_t *waiting_for = json_object_get(client, "waiting_for");
        double spared = number_of(client, "spared_out") + number_of(client, "spared_in");
        double moved = number_of(client, "moved_out") + number_of(client, "moved_in");
        char cell[CELL_MAX], all[CELL_MAX], text[3 * CELL_MAX];
        struct notes n = {.out = out, .width = width};

        note_flags(&n, client);
        note_frozen(&n, client);
        if (json_is_true(json_object_get(client, "waits_for_foreign"))) {
                add_note(&n, "waits for memory held outside this daemon");
        } else if (json_is_integer(waiting_for)) {
                (void)snprintf(text, sizeof(text), "waits %s pid %" JSON_INTEGER_FORMAT,
                               is_on_its_way(clients, count, waiting_for) ? "behind" : "for",
                               json_integer_value(waiting_for));
                add_note(&n, text);
        }
        note_memory(&n, client);
        note_share(&n, client);
        if (spared > 0) {
                put_short_size(spared, cell);
                put_short_size(spared + moved, all);
                (void)snprintf(text, sizeof(text), "%s of %s not copied", cell, all);
                add_note(&n, text);
        }
        if (n.used)
                (void)fputc('\n', out);
}

/* Prints a cell. A text that is cut ends in "+", as in ps and top. */
static void print_cell(const char *cell, enum kind kind, int width, int gap, FILE *out)
{
        const char *end = "";
        int used = columns_of(cell), fits = (int)strlen(cell), rest;

        if (width == 0)
                return;
        if (kind == TEXT && used > width) {
                fits = (int)columns_fit(cell, width - 1, &used);
                used++;
                end = "+";
        }
        rest = MAX(width - used, 0);
        if (kind == TEXT)
                (void)fprintf(out, "%*s%.*s%s%*s", gap, "", fits, cell, end, rest, "");
        else
                (void)fprintf(out, "%*s%s", gap + rest, "", cell);
}

/* Returns the width of the shown columns. least: counts a column that has a floor as cut to it. */
static int table_width(const int widths[static ARRAY_SIZE(columns)], int gap, bool least)
{
        int total = 0;

        for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                if (widths[i] > 0)
                        total += gap + (least && columns[i].floor ? MIN(widths[i], columns[i].floor)
                                                                  : widths[i]);
        return total;
}

/* Fits the columns into a limit; at first each column is as wide as its widest cell. Shrinks the
 * gaps, then leaves columns out, then cuts texts, until the table fits. A column that is left out
 * gets width 0. Returns the gap. */
static int fit_columns(int widths[static ARRAY_SIZE(columns)], int limit)
{
        if (limit == 0 || table_width(widths, 2, false) <= limit)
                return 2;
        for (int rank = 1; rank <= RANKS && table_width(widths, 1, true) > limit; rank++)
                for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                        if (columns[i].rank == rank)
                                widths[i] = 0;
        while (table_width(widths, 1, false) > limit) {
                size_t widest = ARRAY_SIZE(columns);

                for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                        if (columns[i].floor && widths[i] > columns[i].floor &&
                            (widest == ARRAY_SIZE(columns) || widths[i] > widths[widest]))
                                widest = i;
                if (widest == ARRAY_SIZE(columns))
                        break;
                widths[widest]--;
        }
        return 1;
}

static bool is_shown(const struct column *column, json_t *const *clients, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const json_t *value = json_object_get(clients[i], column->field);

                if (json_integer_value(value) != 0 || json_string_value(value))
                        return true;
        }
        return !column->seldom;
}

/* ---- which clients, in which order ---- */

/* In the order in which the rows stand; the summary has their words. */
static const struct {
        const char *state, *verb; /* "" : as the one before */
        const char *help;
} states[] = {
        {"running", "run", "it may compute: all of its memory is on the GPU"},
        {"draining", "", "its turn ends: its work in flight is awaited"},
        {"evicting", "", "its memory leaves the GPU"},
        {"restoring", "wait", "its memory comes back for its turn"},
        {"waiting", "", "it has work, and waits for its turn or for memory"},
        {"idle", "idle", "it has no work, and needs no turn"},
};

static size_t rank_of(const json_t *client)
{
        const char *state = text_of(client, "state");
        size_t i = 0;

        while (i < ARRAY_SIZE(states) && strcmp(states[i].state, state) != 0)
                i++;
        return i;
}

static int compare_clients(const void *a, const void *b)
{
        const json_t *one = *(json_t *const *)a, *two = *(json_t *const *)b;
        const size_t ranks[] = {rank_of(one), rank_of(two)};
        const double since[] = {number_of(one, "since_s"), number_of(two, "since_s")};

        if (ranks[0] != ranks[1])
                return ranks[0] < ranks[1] ? -1 : 1;
        if (since[0] != since[1])
                return since[0] > since[1] ? -1 : 1;
        return number_of(one, "pid") < number_of(two, "pid") ? -1 : 1;
}

/* Returns the clients of a GPU that are to be shown, sorted; the caller frees the list. */
static json_t **chosen(const json_t *gpu, int pid, size_t *ret_n)
{
        const json_t *all = json_object_get(gpu, "clients");
        json_t **list = calloc(json_array_size(all) + 1, sizeof(json_t *)), *client;
        size_t i, n = 0;

        json_array_foreach (all, i, client)
                if (list && (!pid || number_of(client, "pid") == pid))
                        list[n++] = client;
        if (n)
                qsort(list, n, sizeof(json_t *), compare_clients);
        *ret_n = n;
        return list;
}

static void print_clients(json_t *const *clients, size_t count, int width, FILE *out)
{
        size_t n = MIN(count, (size_t)CLIENTS_MAX);
        int widths[ARRAY_SIZE(columns)], gap;
        row_cells *rows;

        if (n == 0) {
                (void)fprintf(out, "  no clients\n");
                return;
        }
        rows = calloc(n, sizeof(*rows));
        if (!rows)
                return;
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
                widths[i] = 0;
                if (!is_shown(&columns[i], clients, n))
                        continue;
                widths[i] = (int)strlen(columns[i].title);
                for (size_t k = 0; k < n; k++) {
                        put_field(clients[k], &columns[i], rows[k][i]);
                        widths[i] = MAX(widths[i], columns_of(rows[k][i]));
                }
        }
        gap = fit_columns(widths, width);
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                print_cell(columns[i].title, columns[i].kind, widths[i], gap, out);
        (void)fputc('\n', out);
        for (size_t k = 0; k < n; k++) {
                for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                        print_cell(rows[k][i], columns[i].kind, widths[i], gap, out);
                (void)fputc('\n', out);
                print_notes(clients[k], clients, n, width, out);
        }
        free(rows);
}

/* ---- the summary of a GPU ---- */

static double moved_by(const json_t *client)
{
        return number_of(client, "moved_in") + number_of(client, "moved_out");
}

/* Returns the bytes that the GPU's clients have moved since `before`. */
static double moved_since(const json_t *gpu, const json_t *before)
{
        const json_t *client, *old, *gpus = json_object_get(before, "gpus"), *same;
        double sum = 0;
        size_t i, k, g;

        json_array_foreach (gpus, g, same) {
                if (strcmp(text_of(same, "uuid"), text_of(gpu, "uuid")) != 0)
                        continue;
                json_array_foreach (json_object_get(gpu, "clients"), i, client)
                        json_array_foreach (json_object_get(same, "clients"), k, old)
                                if (number_of(client, "pid") == number_of(old, "pid"))
                                        sum += MAX(moved_by(client) - moved_by(old), 0.0);
        }
        return sum;
}

/* Prints how many clients are in which kind of state, such as "3 run, 8 wait, 5.1G/s moved". */
static void print_summary(const json_t *gpu, json_t *const *clients, size_t n,
                          const struct status_view *v, FILE *out)
{
        unsigned counts[ARRAY_SIZE(states)] = {0};
        const char *separator = "  ";
        char cell[CELL_MAX];
        size_t kind = 0;

        for (size_t i = 0; i < n; i++) {
                const size_t rank = rank_of(clients[i]);

                if (rank < ARRAY_SIZE(states))
                        counts[rank]++;
        }
        for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
                kind = *states[i].verb ? i : kind;
                if (kind != i)
                        counts[kind] += counts[i];
        }
        for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
                if (!*states[i].verb || !counts[i])
                        continue;
                (void)fprintf(out, "%s%u %s", separator, counts[i], states[i].verb);
                separator = ", ";
        }
        if (v->before && v->passed_s > 0) {
                put_short_size(moved_since(gpu, v->before) / v->passed_s, cell);
                (void)fprintf(out, "%s%s/s moved", separator, cell);
                separator = ", ";
        }
        if (*separator == ',')
                (void)fputc('\n', out);
}

void status_view_explain(FILE *out)
{
        (void)fprintf(out,
                      "\nColumns; some are left out in a narrow terminal, or if they are empty:\n");
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                (void)fprintf(out, "  %-9s  %s\n", columns[i].title, columns[i].help);
        (void)fprintf(out, "\nStates:\n");
        for (size_t i = 0; i < ARRAY_SIZE(states); i++)
                (void)fprintf(out, "  %-9s  %s\n", states[i].state, states[i].help);
        (void)fprintf(out, "  %-9s  %s\n", "paused", "it stands still until sublet resume");
}

unsigned status_view_print(const json_t *status, const struct status_view *view, FILE *out)
{
        const json_t *gpus = json_object_get(status, "gpus"), *gpu;
        const json_t *host = json_object_get(status, "host_memory");
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX];
        unsigned rows = 0;
        size_t i;

        if (view->pid && !status_client(status, view->pid))
                return 0;
        (void)fprintf(out, "subletd %s, up %s, host memory %s committed of %s\n",
                      text_of(status, "version"), duration_of(status, "uptime_s", a),
                      size_of(host, "committed", b), size_of(host, "budget", c));
        json_array_foreach (gpus, i, gpu) {
                size_t n;
                json_t **clients = chosen(gpu, view->pid, &n);

                if (n > 0 || !view->pid) {
                        (void)fputc('\n', out);
                        print_gpu(status, gpu, out);
                        print_clients(clients, n, view->width, out);
                        if (n > 1)
                                print_summary(gpu, clients, n, view, out);
                }
                rows += (unsigned)n;
                free(clients);
        }
        if (json_array_size(gpus) == 0)
                (void)fprintf(out, "\nno GPU is in use yet\n");
        return rows;
}
