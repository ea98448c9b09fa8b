/* top_table.c: owns the table of programs: columns, order, filter, and the details of one program.
 * Must never show a figure that the daemon did not report. */
#include "client/top/top_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "client/figures/client_words.h"
#include "client/figures/figures.h"
#include "client/figures/fit_columns.h"

#define ROWS_MAX 4096
#define SHORT_ID 12  /* digits of a container's id, as container engines show them */
#define NONE     "-" /* there is none: not the same as unknown */
#define CELL_MAX (2 * FIGURE_MAX)

enum how { TEXT, COUNT, SIZE, SECONDS, ID, GPU, STATE, ASKED, GOT, RATE, NEXT, NOTE };

/* Floors and ranks are those of fit_columns.h. A column may have no value other than the usual one.
 * Then it is the first to be left out in a narrow terminal (SPARE), or is never shown (SELDOM). */
enum when { ALWAYS, SPARE, SELDOM };

static const struct column {
        const char *name, *title, *field;
        enum how how;
        enum when when;
        int least, floor, rank; /* least: a width that keeps the table from jumping */
} columns[] = {
        {"gpu", "GPU", NULL, GPU, ALWAYS, 0, 0, 18},
        {"pid", "PID", "pid", COUNT, ALWAYS, 7, 0, 20},
        {"user", "USER", "user", TEXT, ALWAYS, 0, 4, 7},
        {"name", "NAME", "name", TEXT, ALWAYS, 10, 8, 0},
        {"container", "CONTAINER", "container", ID, SELDOM, 0, 9, 4},
        {"pod", "POD", "tenant", TEXT, SELDOM, 0, 8, 3},
        {"priority", "PRI", "priority", COUNT, SPARE, 0, 0, 8},
        {"state", "STATE", "state", STATE, ALWAYS, 9, 0, 0},
        {"for", "FOR", "since_s", SECONDS, ALWAYS, 5, 0, 15},
        {"allocated", "ALLOC", "allocated", SIZE, ALWAYS, 6, 0, 14},
        {"resident", "RESID", "backed", SIZE, ALWAYS, 6, 0, 19},
        {"evicted", "EVICT", "evicted", SIZE, ALWAYS, 6, 0, 12},
        {"overflow", "OVERFLOW", "overflow", SIZE, SPARE, 0, 0, 11},
        {"managed", "MANAGED", "managed", SIZE, SPARE, 0, 0, 10},
        {"mode", "MODE", "memory", TEXT, SPARE, 0, 0, 6},
        {"asked", "ASKED", NULL, ASKED, SPARE, 0, 0, 9},
        {"got", "GOT", "got", GOT, ALWAYS, 4, 0, 16},
        {"handoffs", "HAND-OFFS", "handoffs", COUNT, ALWAYS, 0, 0, 5},
        {"bus", "BUS", "bus", RATE, ALWAYS, 6, 0, 13},
        {"next", "NEXT", "expected_s", NEXT, ALWAYS, 5, 0, 17},
        {"notes", "NOTES", NULL, NOTE, SELDOM, 0, 12, 2},
};
enum { COLUMNS = ARRAY_SIZE(columns) };

int table_column(const char *name)
{
        for (unsigned i = 0; i < COLUMNS; i++)
                if (strcmp(columns[i].name, name) == 0)
                        return (int)i;
        return -1;
}

const char *table_column_name(unsigned column)
{
        return column < COLUMNS ? columns[column].name : NULL;
}

unsigned table_next(unsigned column, int direction)
{
        const unsigned sortable = COLUMNS - 1; /* rows are not sorted by notes */

        return (column + sortable + (direction > 0 ? 1 : sortable - 1)) % sortable;
}

/* ---- cells ---- */

static bool is_known(const json_t *client, const char *field)
{
        return json_is_number(json_object_get(client, field));
}

/* Writes what the program asked for: "20-80%", "x2", both, or that it asked for nothing, if that is
 * known. */
static void put_asked(const json_t *client, char cell[static CELL_MAX])
{
        const double least = figure_number(client, "minimum");
        const double most = figure_number(client, "maximum");
        const double weight = figure_number(client, "weight");
        int used = 0;

        if (!is_known(client, "weight")) { /* it is another user's program */
                (void)strcpy(cell, FIGURE_UNKNOWN);
                return;
        }
        *cell = 0;
        if (least > 0 || most > 0)
                used = snprintf(cell, CELL_MAX, "%.0f-%.0f%%", 100 * least,
                                100 * (most > 0 ? most : 1));
        if (weight > 0 && weight != 1)
                used += snprintf(cell + used, (size_t)(CELL_MAX - used), "%sx%g", used ? " " : "",
                                 weight);
        if (!used)
                (void)strcpy(cell, NONE);
}

/* Returns the flag that matters more than the state, if there is one. */
static const char *trouble(const json_t *client)
{
        static const char *const flags[] = {"lost", "poisoned", "overdue", "detached"};

        for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
                if (client_lists(client, "flags", flags[i]))
                        return flags[i];
        return NULL;
}

static void put_state(const json_t *client, char cell[static CELL_MAX])
{
        const char *flag = trouble(client);

        if (flag)
                (void)strcpy(cell, flag);
        else
                client_put(client, "state", FIGURE_TEXT, cell);
}

/* A running program has its turn; one that is idle or paused expects none. */
static void put_next(const json_t *client, char cell[static CELL_MAX])
{
        const char *state = figure_string(client, "state");

        if (is_known(client, "expected_s"))
                figure_seconds(figure_number(client, "expected_s"), cell);
        else if (client_is_paused(client) || strcmp(state, "idle") == 0)
                (void)strcpy(cell, NONE);
        else
                (void)strcpy(cell, strcmp(state, "running") == 0 ? "now" : FIGURE_UNKNOWN);
}

static void put_notes(const struct table_row *row, char cell[static CELL_MAX])
{
        FILE *out = fmemopen(cell, CELL_MAX, "w");

        *cell = 0;
        if (!out)
                return;
        client_notes(row->client, json_object_get(row->card, "clients"), 0, "", 0, out);
        (void)fclose(out);
        cell[CELL_MAX - 1] = 0;
        cell[strcspn(cell, "\n")] = 0;
}

static void put_rate(const json_t *client, const char *field, char cell[static CELL_MAX])
{
        figure_put(json_object_get(client, field), FIGURE_SIZE, cell);
        if (figure_number(client, field) > 0)
                (void)strcat(cell, "/s");
}

static void put(const struct table_row *row, const struct column *c, char cell[static CELL_MAX])
{
        const json_t *client = row->client;

        switch (c->how) {
        case TEXT:
                client_put(client, c->field, FIGURE_TEXT, cell);
                break;
        case COUNT:
                client_put(client, c->field, FIGURE_COUNT, cell);
                break;
        case SIZE:
                client_put(client, c->field, FIGURE_SIZE, cell);
                break;
        case SECONDS:
                client_put(client, c->field, FIGURE_SECONDS, cell);
                break;
        case ID:
                client_put(client, c->field, FIGURE_TEXT, cell);
                cell[SHORT_ID] = 0;
                break;
        case GPU:
                (void)snprintf(cell, CELL_MAX, "%d", row->gpu);
                break;
        case STATE:
                put_state(client, cell);
                break;
        case ASKED:
                put_asked(client, cell);
                break;
        case GOT:
                if (is_known(client, c->field))
                        (void)snprintf(cell, CELL_MAX, "%.0f%%",
                                       100 * figure_number(client, c->field));
                else
                        (void)strcpy(cell, FIGURE_UNKNOWN);
                break;
        case RATE:
                put_rate(client, c->field, cell);
                break;
        case NEXT:
                put_next(client, cell);
                break;
        case NOTE:
                put_notes(row, cell);
                break;
        }
}

static bool is_left(const struct column *c)
{
        return c->how == TEXT || c->how == ID || c->how == STATE || c->how == NOTE;
}

static unsigned state_style(const json_t *client)
{
        const char *state = figure_string(client, "state");

        if (trouble(client))
                return STYLE_BAD;
        if (client_is_paused(client))
                return STYLE_PAUSED;
        if (strcmp(state, "running") == 0)
                return json_is_true(json_object_get(client, "idle")) ? STYLE_PLAIN : STYLE_RUNS;
        if (strcmp(state, "waiting") == 0)
                return STYLE_WAITS;
        return strcmp(state, "idle") == 0 ? STYLE_DIM : STYLE_MOVES;
}

static unsigned cell_style(const struct table_row *row, const struct column *c, const char *cell)
{
        if (c->how == STATE)
                return state_style(row->client);
        if (strcmp(cell, FIGURE_UNKNOWN) == 0 || strcmp(cell, "0") == 0 ||
            strcmp(cell, NONE) == 0 || c->how == NOTE)
                return STYLE_DIM;
        if (c->how == RATE)
                return STYLE_BUS;
        return strcmp(c->name, "name") == 0 ? STYLE_BOLD : STYLE_PLAIN;
}

/* ---- which rows, in which order ---- */

static bool has(const char *text, const char *filter)
{
        return text && strcasestr(text, filter);
}

static bool matches(const struct table_row *row, const char *filter)
{
        static const char *const fields[] = {"user",   "name",  "container", "pod",
                                             "tenant", "group", "class"};
        char cell[CELL_MAX];

        if (!*filter)
                return true;
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
                if (has(json_string_value(json_object_get(row->client, fields[i])), filter))
                        return true;
        put_state(row->client, cell);
        if (has(cell, filter))
                return true;
        client_put(row->client, "pid", FIGURE_COUNT, cell);
        return has(cell, filter);
}

/* Returns a figure for the order; what is not known is below all that is known. */
static double order_of(const struct table_row *row, const struct column *c)
{
        const char *state;

        switch (c->how) {
        case GPU:
                return -row->gpu; /* ascending, as texts are */
        case ASKED:
                return figure_number(row->client, "minimum") +
                       figure_number(row->client, "weight") / 1e6;
        case NEXT:
                if (is_known(row->client, c->field))
                        return -figure_number(row->client, c->field);
                state = figure_string(row->client, "state");
                return strcmp(state, "running") == 0 ? 0 : -INFINITY;
        default:
                return is_known(row->client, c->field) ? figure_number(row->client, c->field)
                                                       : -INFINITY;
        }
}

static const struct top_view *ordered_by;

static int compare_rows(const void *a, const void *b)
{
        const struct table_row *one = a, *two = b;
        const struct column *c = &columns[ordered_by->sort];
        int order = 0;

        if (c->how == TEXT || c->how == ID) {
                order = strcasecmp(figure_string(one->client, c->field),
                                   figure_string(two->client, c->field));
        } else if (c->how != STATE) {
                const double x = order_of(one, c), y = order_of(two, c);

                order = (x < y) - (x > y);
        }
        if (!order)
                order = clients_compare(&one->client, &two->client);
        if (!order)
                order = one->gpu - two->gpu;
        return ordered_by->reverse ? -order : order;
}

void table_make(const json_t *status, const struct top_view *view, struct table *ret)
{
        static struct table_row rows[ROWS_MAX];
        json_t *gpus = json_object_get(status, "gpus"), *gpu, *client;
        size_t i, k;

        *ret = (struct table){.rows = rows, .gpus = json_array_size(gpus) > 1};
        json_array_foreach (gpus, i, gpu)
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        rows[ret->n] =
                                (struct table_row){client, gpu, (int)figure_number(gpu, "index")};
                        ret->all++;
                        if (ret->n + 1 < ROWS_MAX && matches(&rows[ret->n], view->filter))
                                ret->n++;
                }
        ordered_by = view;
        qsort(rows, ret->n, sizeof(*rows), compare_rows);
}

/* ---- drawing ---- */

static bool is_usual(const char *cell)
{
        static const char *const usual[] = {"", "0", NONE, FIGURE_UNKNOWN, "swap"};

        for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
                if (strcmp(cell, usual[i]) == 0)
                        return true;
        return false;
}

/* Finds the width of each column over all rows, also those that are not shown now: the columns stay
 * where they are when a person scrolls. */
static void measure(const struct table *t, const struct frame *f,
                    struct column_size sizes[static COLUMNS])
{
        char cell[CELL_MAX];

        for (unsigned i = 0; i < COLUMNS; i++) {
                const struct column *c = &columns[i];
                bool any = c->when == ALWAYS;

                sizes[i] = (struct column_size){MAX(c->least, (int)strlen(c->title)), c->floor,
                                                c->rank};
                for (size_t k = 0; k < t->n; k++) {
                        put(&t->rows[k], c, cell);
                        any |= !is_usual(cell);
                        sizes[i].width = MAX(sizes[i].width, frame_columns(f, cell));
                }
                if (!any && c->when == SPARE)
                        sizes[i].rank = FIT_EMPTY;
                if ((!any && c->when == SELDOM) || (c->how == GPU && !t->gpus))
                        sizes[i].width = 0;
        }
}

static void draw_cell(struct frame *f, int y, int x, int width, const struct column *c,
                      unsigned style, const char *cell)
{
        if (is_left(c))
                (void)frame_text(f, y, x, width, style, cell);
        else
                frame_right(f, y, x, width, style, cell);
}

static void draw_titles(struct frame *f, const struct column_size sizes[static COLUMNS],
                        const struct top_view *view, int gap, int y)
{
        const char down = view->reverse ? '^' : 'v';
        int x = 0;

        frame_fill(f, y, 0, f->width, STYLE_HEAD, L' ');
        for (unsigned i = 0; i < COLUMNS; i++) {
                const struct column *c = &columns[i];
                const int title = (int)strlen(c->title);
                const bool sorted = view->live && i == view->sort;
                int at;

                if (!sizes[i].width)
                        continue;
                draw_cell(f, y, x + gap, sizes[i].width, c, sorted ? STYLE_SORTED : STYLE_HEAD,
                          c->title);
                at = x + gap + (is_left(c) ? title : sizes[i].width - title - 1);
                if (sorted)
                        frame_fill(f, y, at, 1, STYLE_SORTED,
                                   !f->unicode     ? (wchar_t)down
                                   : view->reverse ? L'▲'
                                                   : L'▼');
                x += gap + sizes[i].width;
        }
}

static void draw_row(const struct table_row *row, struct frame *f,
                     const struct column_size sizes[static COLUMNS], bool colours, int gap, int y)
{
        const json_t *hue = json_object_get(row->client, "hue");
        char cell[CELL_MAX];
        int x = 0;

        if (colours && json_is_integer(hue))
                frame_fill(f, y, 0, 1, STYLE_HUE + (unsigned)(json_integer_value(hue) % FRAME_HUES),
                           f->unicode ? L'▌' : L'|');
        for (unsigned i = 0; i < COLUMNS; i++) {
                if (!sizes[i].width)
                        continue;
                put(row, &columns[i], cell);
                draw_cell(f, y, x + gap, sizes[i].width, &columns[i],
                          cell_style(row, &columns[i], cell), cell);
                x += gap + sizes[i].width;
        }
}

void table_draw(const struct table *t, const struct top_view *view, struct frame *f, int y,
                int height)
{
        struct column_size sizes[COLUMNS];
        int gap;

        measure(t, f, sizes);
        gap = fit_columns(sizes, COLUMNS, f->width);
        draw_titles(f, sizes, view, gap, y);
        for (int i = 0; i < height && view->first + (size_t)i < t->n; i++) {
                const struct table_row *row = &t->rows[view->first + (size_t)i];

                draw_row(row, f, sizes, view->colours, gap, y + 1 + i);
                if (view->live && row->gpu == view->gpu &&
                    (int)figure_number(row->client, "pid") == view->pid)
                        frame_select(f, y + 1 + i);
        }
}

/* ---- the details of one program ---- */

/* A paragraph of pairs, such as "user ann". */
struct flow {
        struct frame *f; /* NULL: only counts the lines */
        int width, y, x, lines, height;
};

static void flow_add(struct flow *w, const char *label, const char *value)
{
        static const struct frame plain = {.unicode = true};
        const struct frame *f = w->f ? w->f : &plain;
        const int need = (int)strlen(label) + 1 + frame_columns(f, value);

        if (w->x + 2 + need > w->width && w->x > 0) {
                w->x = 0;
                w->lines++;
        }
        if (w->f && w->lines < w->height) {
                (void)frame_text(w->f, w->y + w->lines, w->x + 2, w->width - w->x - 2, STYLE_DIM,
                                 label);
                (void)frame_text(w->f, w->y + w->lines, w->x + 3 + (int)strlen(label),
                                 w->width - w->x - 3 - (int)strlen(label), STYLE_PLAIN, value);
        }
        w->x += 2 + need;
}

static void flow_field(struct flow *w, const json_t *client, const char *label, const char *field,
                       enum figure kind, bool always)
{
        char cell[CELL_MAX];

        client_put(client, field, kind, cell);
        if (always || !is_usual(cell))
                flow_add(w, label, cell);
}

int table_detail(const struct table_row *row, struct frame *f, int width, int y, int height)
{
        struct flow w = {f, width, y, 0, 0, height};
        const json_t *c = row->client;
        char cell[CELL_MAX];

        flow_field(&w, c, "allocated", "allocated", FIGURE_SIZE, true);
        flow_field(&w, c, "resident", "backed", FIGURE_SIZE, true);
        flow_field(&w, c, "evicted", "evicted", FIGURE_SIZE, true);
        flow_field(&w, c, "overflow", "overflow", FIGURE_SIZE, true);
        flow_field(&w, c, "managed", "managed", FIGURE_SIZE, true);
        flow_field(&w, c, "mode", "memory", FIGURE_TEXT, true);
        flow_field(&w, c, "way", "way", FIGURE_TEXT, true);
        flow_field(&w, c, "unevictable", "unevictable", FIGURE_SIZE, true);
        put_asked(c, cell);
        flow_add(&w, "share asked", cell);
        put(row, &columns[table_column("got")], cell);
        flow_add(&w, "got", cell);
        flow_field(&w, c, "GPU time", "gpu_time_s", FIGURE_SECONDS, true);
        flow_field(&w, c, "waited", "waited_s", FIGURE_SECONDS, true);
        flow_field(&w, c, "hand-offs", "handoffs", FIGURE_COUNT, true);
        flow_field(&w, c, "moved out", "moved_out", FIGURE_SIZE, true);
        flow_field(&w, c, "in", "moved_in", FIGURE_SIZE, true);
        put_next(c, cell);
        flow_add(&w, "next turn", cell);
        flow_field(&w, c, "user", "user", FIGURE_TEXT, true);
        flow_field(&w, c, "priority", "priority", FIGURE_COUNT, true);
        flow_field(&w, c, "class", "class", FIGURE_TEXT, false);
        flow_field(&w, c, "memory cap", "memory_cap", FIGURE_SIZE, false);
        flow_field(&w, c, "group", "group", FIGURE_TEXT, false);
        flow_field(&w, c, "container", "container", FIGURE_TEXT, false);
        flow_field(&w, c, "pod", "tenant", FIGURE_TEXT, false);
        put_notes(row, cell);
        if (*cell)
                flow_add(&w, "notes", cell);
        return w.lines + 1;
}
