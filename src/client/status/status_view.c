/* status_view.c: owns the layout of the status table. Must never show a figure that the daemon did
 * not report. */
#include "client/status/status_view.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/common/cli.h"
#include "client/figures/client_words.h"
#include "client/figures/columns.h"
#include "client/figures/figures.h"
#include "client/figures/fit_columns.h"
#include "client/status/status_jobs.h"

#define CLIENTS_MAX 4096
/* The columns of the table of clients. Floors and ranks are those of fit_columns.h. A `seldom`
 * column is shown only if some client has a value other than 0 or null. */
static const struct column {
        const char *title, *field;
        enum figure kind;
        int floor, rank;
        bool seldom;
        const char *help;
} columns[] = {
        {"PID", "pid", FIGURE_COUNT, 0, 0, false, "number of the process"},
        {"USER", "user", FIGURE_TEXT, 5, 5, false, "who runs it"},
        {"NAME", "name", FIGURE_TEXT, 10, 0, false,
         "its file, its script or its notebook; or what --name says"},
        {"POD", "tenant", FIGURE_TEXT, 8, 14, true, "its Kubernetes pod, or its Slurm job"},
        {"CLASS", "class", FIGURE_TEXT, 5, 13, true, "its class in the daemon's configuration"},
        {"GROUP", "group", FIGURE_TEXT, 5, 12, true,
         "programs of one group run together, or are ranks of one job"},
        {"PRI", "priority", FIGURE_COUNT, 0, 11, true, "its priority; higher goes first"},
        {"STATE", "state", FIGURE_TEXT, 0, 0, false, "what it does: see below"},
        {"FOR", "since_s", FIGURE_SECONDS, 0, 6, false, "since when"},
        {"ALLOCATED", "allocated", FIGURE_SIZE, 0, 7, false, "memory that it has allocated"},
        {"BACKED", "backed", FIGURE_SIZE, 0, 0, false, "of that, what is on the GPU now"},
        {"EVICTED", "evicted", FIGURE_SIZE, 0, 10, false, "of that, what is in host memory"},
        {"OVERFLOW", "overflow", FIGURE_SIZE, 0, 9, true,
         "memory that it uses in host memory (--memory overflow)"},
        {"MANAGED", "managed", FIGURE_SIZE, 0, 8, true, "managed memory (--memory managed)"},
        {"UNEVICT", "unevictable", FIGURE_SIZE, 0, 3, false,
         "GPU memory that cannot move: contexts, arrays, shared memory"},
        {"ARENA", "arena", FIGURE_SIZE, 0, 1, false, "pinned host memory for what is evicted"},
        {"GPU TIME", "gpu_time_s", FIGURE_SECONDS, 0, 4, false,
         "how long it had a turn and was busy"},
        {"HAND-OFFS", "handoffs", FIGURE_COUNT, 0, 2, false,
         "its turns that ended for another program"},
};

typedef char row_cells[ARRAY_SIZE(columns)][FIGURE_MAX];

static const char *size_of(const json_t *object, const char *field, char buf[static UNITS_TEXT_MAX])
{
        const json_t *value = json_object_get(object, field);

        if (!json_is_number(value) || json_number_value(value) < 0)
                return FIGURE_UNKNOWN;
        return units_format_size((uint64_t)json_number_value(value), buf);
}

static const char *duration_of(const json_t *object, const char *field,
                               char buf[static UNITS_TEXT_MAX])
{
        const json_t *value = json_object_get(object, field);

        if (!json_is_number(value) || !(json_number_value(value) >= 0))
                return FIGURE_UNKNOWN;
        return units_format_duration((uint64_t)(json_number_value(value) * (double)NSEC_PER_SEC),
                                     buf);
}

/* Formats the quantum: "auto", or the set value in seconds. */
static const char *quantum_of(const json_t *status, char buf[static UNITS_TEXT_MAX])
{
        return json_is_string(json_object_get(status, "quantum"))
                       ? figure_string(status, "quantum")
                       : duration_of(status, "quantum", buf);
}

/* Names the processes outside of this daemon, those with most bytes first. */
static void print_others(const json_t *gpu, int width, FILE *out)
{
        const json_t *others = json_object_get(gpu, "others"), *other;
        char text[OTHER_MAX];
        int used = 0;
        size_t i;

        json_array_foreach (others, i, other) {
                other_put(other, text);
                if (used && width && used + 2 + columns_of(text) > width) {
                        (void)fputc('\n', out);
                        used = 0;
                }
                used += fprintf(out, "%s%s",
                                used ? "; "
                                : i  ? "            "
                                     : "    others: ",
                                text);
        }
        if (json_array_size(others))
                (void)fputc('\n', out);
}

static void print_gpu(const json_t *status, const json_t *gpu, int width, FILE *out)
{
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX], d[UNITS_TEXT_MAX];
        char index[FIGURE_MAX], handoffs[FIGURE_MAX];
        const char *compute_mode = figure_compute_mode(gpu);

        figure_put(json_object_get(gpu, "index"), FIGURE_COUNT, index);
        figure_put(json_object_get(gpu, "handoffs"), FIGURE_COUNT, handoffs);
        (void)fprintf(out, "GPU %s  %s  %s\n", index, figure_string(gpu, "name"),
                      figure_string(gpu, "uuid"));
        if (compute_mode)
                (void)fprintf(out, "  %s, until nvidia-smi -c DEFAULT\n", compute_mode);
        (void)fprintf(out, "  capacity %s of %s, used by others %s, headroom %s\n",
                      size_of(gpu, "capacity", a), size_of(gpu, "total", b),
                      size_of(gpu, "foreign", c), size_of(gpu, "headroom", d));
        print_others(gpu, width, out);
        (void)fprintf(out, "  programs see %s; charged %s, committed %s\n",
                      size_of(gpu, "visible", a), size_of(gpu, "charged", b),
                      size_of(gpu, "committed", c));
        (void)fprintf(out, "  unevictable bytes %s of a budget of %s\n",
                      size_of(gpu, "unevictable", a), size_of(gpu, "unevictable_budget", b));
        (void)fprintf(out, "  mode %s, quantum %s (%s now), hand-offs %s%s\n",
                      figure_string(status, "mode"), quantum_of(status, b),
                      duration_of(gpu, "quantum_s", a), handoffs,
                      json_is_true(json_object_get(gpu, "contested")) ? ", contested" : "");
}

/* Prints a cell. A text that is cut ends in "+", as in ps and top. */
static void print_cell(const char *cell, enum figure kind, int width, int gap, FILE *out)
{
        const char *end = "";
        int used = columns_of(cell), fits = (int)strlen(cell), rest;

        if (width == 0)
                return;
        if (kind == FIGURE_TEXT && used > width) {
                fits = (int)columns_fit(cell, width - 1, &used);
                used++;
                end = "+";
        }
        rest = MAX(width - used, 0);
        if (kind == FIGURE_TEXT)
                (void)fprintf(out, "%*s%.*s%s%*s", gap, "", fits, cell, end, rest, "");
        else
                (void)fprintf(out, "%*s%s", gap + rest, "", cell);
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

/* Returns the clients of a GPU that are to be shown, sorted; the caller frees the list. */
static json_t **chosen(const json_t *gpu, int pid, size_t *ret_n)
{
        const json_t *all = json_object_get(gpu, "clients");
        json_t **list = calloc(json_array_size(all) + 1, sizeof(json_t *)), *client;
        size_t i, n = 0;

        json_array_foreach (all, i, client)
                if (list && (!pid || figure_number(client, "pid") == pid))
                        list[n++] = client;
        if (n)
                qsort(list, n, sizeof(json_t *), clients_compare);
        *ret_n = n;
        return list;
}

static void print_clients(json_t *const *clients, size_t count, const json_t *beside,
                          unsigned notes, int width, FILE *out)
{
        size_t n = MIN(count, (size_t)CLIENTS_MAX);
        struct column_size sizes[ARRAY_SIZE(columns)];
        int gap;
        row_cells *rows;

        if (n == 0) {
                (void)fprintf(out, "  no clients\n");
                return;
        }
        rows = calloc(n, sizeof(*rows));
        if (!rows)
                return;
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
                sizes[i] = (struct column_size){0, columns[i].floor, columns[i].rank};
                if (!is_shown(&columns[i], clients, n))
                        continue;
                sizes[i].width = (int)strlen(columns[i].title);
                for (size_t k = 0; k < n; k++) {
                        client_put(clients[k], columns[i].field, columns[i].kind, rows[k][i]);
                        sizes[i].width = MAX(sizes[i].width, columns_of(rows[k][i]));
                }
        }
        gap = fit_columns(sizes, ARRAY_SIZE(columns), width);
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                print_cell(columns[i].title, columns[i].kind, sizes[i].width, gap, out);
        (void)fputc('\n', out);
        for (size_t k = 0; k < n; k++) {
                for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                        print_cell(rows[k][i], columns[i].kind, sizes[i].width, gap, out);
                (void)fputc('\n', out);
                client_notes(clients[k], beside, notes, "        ", width, out);
        }
        free(rows);
}

/* ---- the summary of a GPU ---- */

/* Returns the bytes that the GPU's clients have moved since `before`. */
static double moved_since(const json_t *gpu, const json_t *before)
{
        const json_t *client, *old, *gpus = json_object_get(before, "gpus"), *same;
        double sum = 0;
        size_t i, k, g;

        json_array_foreach (gpus, g, same) {
                if (strcmp(figure_string(same, "uuid"), figure_string(gpu, "uuid")) != 0)
                        continue;
                json_array_foreach (json_object_get(gpu, "clients"), i, client)
                        json_array_foreach (json_object_get(same, "clients"), k, old)
                                if (figure_number(client, "pid") == figure_number(old, "pid"))
                                        sum += MAX(client_moved(client) - client_moved(old), 0.0);
        }
        return sum;
}

/* Prints how many clients are in which kind of state, such as "3 run, 8 wait, 5.1G/s moved". */
static void print_summary(const json_t *gpu, json_t *const *clients, size_t n,
                          const struct status_view *v, FILE *out)
{
        char counts[CLIENTS_SUMMARY_MAX], cell[FIGURE_MAX];

        clients_summary(clients, n, counts);
        (void)fprintf(out, "  %s", counts);
        if (v->before && v->passed_s > 0) {
                figure_size(moved_since(gpu, v->before) / v->passed_s, cell);
                (void)fprintf(out, ", %s/s moved", cell);
        }
        (void)fputc('\n', out);
}

/* Prints what the columns and the states mean. */
void status_view_explain(FILE *out)
{
        (void)fprintf(out,
                      "\nColumns; some are left out in a narrow terminal, or if they are empty:\n");
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                (void)fprintf(out, "  %-9s  %s\n", columns[i].title, columns[i].help);
        (void)fprintf(out, "\nStates:\n");
        clients_explain(out);
}

/* Says what is wrong with the daemon's configuration, if anything is. */
static void print_configuration(const json_t *status, FILE *out)
{
        const json_t *c = json_object_get(status, "configuration");
        const bool none = strcmp(figure_string(c, "state"), "none") == 0;
        const json_t *error = json_object_get(c, "error");

        if (!none && strcmp(figure_string(c, "state"), "last_good") != 0)
                return;
        (void)fprintf(out, "configuration: %s\n  %s until it is corrected; then: sublet reload\n",
                      json_is_string(error) ? json_string_value(error) : "it has a mistake",
                      none ? "no program gets a turn" : "the last good configuration holds");
}

unsigned status_view_print(const json_t *status, const struct status_view *view, FILE *out)
{
        const json_t *gpus = json_object_get(status, "gpus"), *gpu;
        const json_t *host = json_object_get(status, "host_memory");
        const bool freezes = strcmp(figure_string(status, "freeze"), "off") != 0;
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX], d[UNITS_TEXT_MAX];
        unsigned rows = 0;
        size_t i;

        if (view->pid && !clients_find(status, view->pid))
                return 0;
        (void)fprintf(out, "subletd %s, up %s, host memory %s promised of %s, %s used",
                      figure_string(status, "version"), duration_of(status, "uptime_s", a),
                      size_of(host, "committed", b), size_of(host, "budget", c),
                      size_of(host, "used", d));
        if (json_integer_value(json_object_get(host, "pool")) > 0)
                (void)fprintf(out, ", %s in host pools", size_of(host, "pool", a));
        (void)fputc('\n', out);
        print_configuration(status, out);
        json_array_foreach (gpus, i, gpu) {
                size_t n;
                json_t **clients = chosen(gpu, view->pid, &n);

                if (n > 0 || !view->pid) {
                        (void)fputc('\n', out);
                        print_gpu(status, gpu, view->width, out);
                        print_clients(clients, n, json_object_get(gpu, "clients"),
                                      NOTES_FIGURES | (freezes ? NOTES_FREEZING : 0), view->width,
                                      out);
                        if (n > 1)
                                print_summary(gpu, clients, n, view, out);
                }
                rows += (unsigned)n;
                free(clients);
        }
        if (json_array_size(gpus) == 0)
                (void)fprintf(
                        out,
                        "\nno GPU is known yet; sublet doctor says whether the driver answers\n");
        if (!view->pid)
                status_jobs_print(status, out);
        return rows;
}
