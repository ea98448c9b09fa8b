/* panel.c: owns the picture of a card. Must never draw a figure that is not known as 0. */
#include "client/top/panel.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/figures/client_words.h"
#include "client/figures/figures.h"

#define LABEL 12 /* columns before a bar or a line: "mem", "use  87%", "bus 5.1G/s" */

/* ---- memory, split by client ---- */

struct bar {
        struct frame *f;
        const struct top_view *view;
        int y, x, width;
        double total, sum; /* bytes of the card, and of what is drawn already */
        bool odd;
};

/* Writes a name and its size, or as much of them as fits. */
static void label(struct bar *b, int x, int width, unsigned style, const char *name,
                  const char *size)
{
        char text[2 * FIGURE_MAX + 4];

        (void)snprintf(text, sizeof(text), " %s %s ", name, size);
        if (width < frame_columns(b->f, text))
                (void)snprintf(text, sizeof(text), " %s", name);
        if (width >= 4)
                (void)frame_text(b->f, b->y, x, width, style, text);
}

/* Parts end where their sums end, so that rounding does not add up. */
static void part(struct bar *b, double bytes, unsigned style, wchar_t fill, const char *name)
{
        const int from = (int)(b->sum / b->total * b->width + 0.5);
        char size[FIGURE_MAX];
        int to;

        b->sum = MIN(b->sum + bytes, b->total);
        to = (int)(b->sum / b->total * b->width + 0.5);
        if (to == from)
                return;
        figure_size(bytes, size);
        frame_fill(b->f, b->y, b->x + from, to - from, style, fill);
        label(b, b->x + from, to - from, style, name, size);
        if (!b->view->colours && style != STYLE_DIM)
                frame_fill(b->f, b->y, b->x + from, 1, style, L'|');
}

/* Without colours, neighbours are told apart by the bars between them, and by two fillings. */
static wchar_t filling(struct bar *b)
{
        b->odd = !b->odd;
        if (b->view->colours)
                return L' ';
        if (!b->f->unicode)
                return b->odd ? L'=' : L'#';
        return b->odd ? L'▒' : L'░';
}

static void draw_memory(const json_t *gpu, struct bar b)
{
        const json_t *client;
        size_t i;

        b.total = figure_number(gpu, "total");
        if (b.total <= 0 || b.width <= 0)
                return;
        json_array_foreach (json_object_get(gpu, "clients"), i, client) {
                char text[FIGURE_MAX];

                client_put(client, "name", FIGURE_TEXT, text);
                part(&b, figure_number(client, "charge"),
                     STYLE_BAR + (unsigned)figure_number(client, "hue") % FRAME_HUES, filling(&b),
                     text);
        }
        part(&b, figure_number(gpu, "foreign"), STYLE_OTHERS, b.view->colours ? L' ' : L'/',
             "others");
        part(&b, b.total - b.sum, STYLE_DIM, b.f->unicode ? L'·' : L'.', "free");
}

/* ---- lines of recent use ---- */

/* Returns what stands for a value of 0 to 1 in this row of a chart, counted from below. */
static wchar_t level(const struct frame *f, double value, int row, int height)
{
        static const wchar_t fine[] = L" ▁▂▃▄▅▆▇█", rough[] = L" _.-=+*%#";
        int eighths = (int)(value * height * 8 + 0.5);

        if (value < 0)
                return L' ';
        eighths = MAX(eighths, 1); /* draws a known 0, but nothing for an unknown value */
        return (f->unicode ? fine : rough)[MIN(MAX(eighths - row * 8, 0), 8)];
}

static float value_ago(const float *values, unsigned looks, unsigned ago)
{
        return ago < MIN(looks, (unsigned)HISTORY_LOOKS) ? values[(looks - 1 - ago) % HISTORY_LOOKS]
                                                         : -1;
}

static double greatest(const float *values, unsigned looks, int width)
{
        double most = 0;

        for (int i = 0; i < width; i++)
                most = MAX(most, (double)value_ago(values, looks, (unsigned)i));
        return most;
}

/* Draws a label, the present value, and the values before it, the newest at the right. most: what
 * fills the height. */
static void draw_line(struct frame *f, int y, int x, int width, int height, unsigned style,
                      const char *name, const char *value, const float *values, unsigned looks,
                      double most)
{
        const int at = x + LABEL, n = width - LABEL;

        (void)frame_text(f, y, x, 4, STYLE_DIM, name);
        frame_right(f, y, x + 4, LABEL - 5, STYLE_PLAIN, value);
        for (int i = 0; i < n; i++) {
                const double v = (double)value_ago(values, looks, (unsigned)i);

                for (int row = 0; row < height; row++)
                        frame_fill(
                                f, y + height - 1 - row, at + n - 1 - i, 1, style,
                                level(f, v < 0 || most <= 0 ? MIN(v, 0.0) : v / most, row, height));
        }
}

static void put_use(const json_t *gpu, char cell[static FIGURE_MAX])
{
        if (json_is_number(json_object_get(gpu, "utilization")))
                (void)snprintf(cell, FIGURE_MAX, "%.0f%%", 100 * figure_number(gpu, "utilization"));
        else
                (void)strcpy(cell, FIGURE_UNKNOWN);
}

static void put_bus(const struct history_gpu *past, char cell[static FIGURE_MAX])
{
        const float now = past ? value_ago(past->bus, past->looks, 0) : -1;

        if (now < 0) {
                (void)strcpy(cell, FIGURE_UNKNOWN);
                return;
        }
        figure_size((double)now, cell);
        (void)strcat(cell, "/s");
}

/* Says how long ago the left end is, where there is a line for it. */
static void draw_span(struct frame *f, int y, int width, double interval_s)
{
        char cell[FIGURE_MAX], text[FIGURE_MAX + 8];

        figure_seconds((width - LABEL) * interval_s, cell);
        (void)snprintf(text, sizeof(text), "%s", cell);
        frame_right(f, y, 0, LABEL - 1, STYLE_DIM, text);
}

static void draw_lines(const json_t *gpu, const struct history_gpu *past,
                       const struct top_view *view, struct frame *f, int y, int height)
{
        const int half = (f->width - 2) / 2, right = f->width - half;
        char cell[FIGURE_MAX];

        if (!past)
                return;
        put_use(gpu, cell);
        draw_line(f, y, 0, half, height, STYLE_USE, "use", cell, past->use, past->looks, 1);
        put_bus(past, cell);
        draw_line(f, y, right, half, height, STYLE_BUS, "bus", cell, past->bus, past->looks,
                  greatest(past->bus, past->looks, half - LABEL));
        if (height > 1)
                draw_span(f, y + height - 1, half, view->interval_s);
}

/* ---- the whole ---- */

static void put_counts(const json_t *gpu, char ret[static CLIENTS_SUMMARY_MAX])
{
        json_t *clients = json_object_get(gpu, "clients"), *client;
        const size_t n = json_array_size(clients);
        json_t **list = calloc(n + 1, sizeof(json_t *));
        size_t i;

        *ret = 0;
        if (!list)
                return;
        json_array_foreach (clients, i, client)
                list[i] = client;
        clients_summary(list, n, ret);
        free(list);
}

static void draw_title(const json_t *gpu, struct frame *f, int y, bool with_use)
{
        char counts[CLIENTS_SUMMARY_MAX], name[FIGURE_MAX], cell[FIGURE_MAX], text[256];
        const char *compute_mode = figure_compute_mode(gpu);
        int used;

        (void)snprintf(text, sizeof(text), "GPU %d", (int)figure_number(gpu, "index"));
        used = frame_text(f, y, 0, f->width, STYLE_BOLD, text) + 1;
        figure_put(json_object_get(gpu, "name"), FIGURE_TEXT, name);
        used += frame_text(f, y, used, f->width - used, STYLE_PLAIN, name) + 2;
        if (compute_mode)
                used += frame_text(f, y, used, f->width - used, STYLE_BAD, compute_mode) + 2;
        put_counts(gpu, counts);
        figure_put(json_object_get(gpu, "handoffs"), FIGURE_COUNT, cell);
        (void)snprintf(text, sizeof(text), "%s%s%s hand-offs", counts, *counts ? ", " : "", cell);
        if (with_use) {
                put_use(gpu, cell);
                (void)snprintf(text, sizeof(text), "%s%suse %s", counts, *counts ? ", " : "", cell);
        }
        frame_right(f, y, used, f->width - used, STYLE_PLAIN, text);
}

/* mode: what figure_compute_mode() says, of which the first word is written. */
static int put_memory(const json_t *gpu, const char *mode, char *text, size_t size)
{
        char used[FIGURE_MAX], total[FIGURE_MAX];

        figure_size(figure_number(gpu, "charged") + figure_number(gpu, "foreign"), used);
        figure_size(figure_number(gpu, "total"), total);
        return snprintf(text, size, "%.*s%s%s of %s", mode ? (int)strcspn(mode, " ") : 0,
                        mode ? mode : "", mode ? ", " : "", used, total);
}

void panel_draw(const json_t *gpu, const struct history_gpu *past, const struct top_view *view,
                struct frame *f, int y, int height)
{
        struct bar bar = {.f = f, .view = view, .y = y + (height > 1), .x = LABEL};
        char text[64], use[FIGURE_MAX];
        int room;

        if (height > 1) {
                draw_title(gpu, f, y, height == 2);
                (void)frame_text(f, bar.y, 0, LABEL, STYLE_DIM, "mem");
        } else {
                put_use(gpu, use);
                (void)snprintf(text, sizeof(text), "GPU %d", (int)figure_number(gpu, "index"));
                (void)frame_text(f, y, 0, 6, STYLE_BOLD, text);
                frame_right(f, y, 6, LABEL - 7, STYLE_PLAIN, use);
        }
        room = put_memory(gpu, height > 1 ? NULL : figure_compute_mode(gpu), text, sizeof(text)) +
               1;
        bar.width = f->width - LABEL - room;
        frame_right(f, bar.y, LABEL, f->width - LABEL, STYLE_PLAIN, text);
        draw_memory(gpu, bar);
        if (height > 2)
                draw_lines(gpu, past, view, f, y + 2, height - 2);
}
