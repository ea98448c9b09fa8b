/* layout.c: owns how the terminal's lines are shared out. Must never depend on anything but its
 * arguments. */
#include "client/top/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/figures/columns.h"
#include "client/figures/client_words.h"
#include "client/figures/figures.h"
#include "client/top/keys.h"
#include "client/top/panel.h"
#include "client/top/top_table.h"

#define ROWS_LEAST   5 /* programs that are shown before cards get more lines */
#define CHART_PART   6 /* a chart gets at most this part of the height */
#define DETAIL_MOST  7
#define MESSAGE_MOST 4
#define TEXT_MOST    3 /* lines at most of the queue, and of the programs outside the daemon */
#define TEXT_MAX     1024

/* The lines of each part, from above. A part without room has none. */
struct plan {
        int header, card, others, queue, rows, detail, message, keys;
};

/* Returns the lines of all but the rows. */
static int around(const struct plan *p, int cards)
{
        return p->header + p->card * cards + p->others + p->queue + 1 + p->detail + p->message +
               p->keys;
}

/* Shares out the height. Rows come first, up to what there is; then the details; then the cards.
 * others, queue: lines that these texts need. message: lines that the message needs; 0: this is a
 * snapshot. */
static struct plan make_plan(int height, int cards, size_t rows, int others, int queue, int detail,
                             int message)
{
        struct plan p = {.header = height > 3, .card = height > 5};
        const int wanted = (int)MIN(MAX(rows, (size_t)1), (size_t)1000);
        const int least = MIN(wanted, ROWS_LEAST);
        const bool live = message > 0;
        const int most = height > 16 || !live ? TEXT_MOST : height > 8;

        p.message = height > 6 ? MIN(message, height / 6) : 0;
        p.keys = live && height > 8;
        p.others = MIN(others, most);
        p.queue = MIN(queue, most);
        if (around(&p, cards) + 1 > height)
                p.card = 0;
        for (int card = 2; card <= 3 && p.card; card++)
                if (around(&p, cards) + (card - p.card) * cards + least <= height)
                        p.card = card;
        if (live && detail && around(&p, cards) + detail + MIN(wanted, 2 * least) <= height)
                p.detail = detail;
        while (live && p.card >= 3 && p.card < 2 + height / CHART_PART &&
               around(&p, cards) + cards + MIN(wanted, 4 * least) + 2 <= height)
                p.card++;
        p.rows = MAX(height - around(&p, cards), 0);
        return p;
}

/* ---- parts ---- */

static void draw_header(const json_t *status, const struct top_view *view, struct frame *f, int y)
{
        const json_t *host = json_object_get(status, "host_memory");
        const json_t *quantum = json_object_get(status, "quantum");
        char up[FIGURE_MAX], promised[FIGURE_MAX], used[FIGURE_MAX], all[FIGURE_MAX],
                turns[FIGURE_MAX], text[512];
        int x = frame_text(f, y, 0, f->width, STYLE_BOLD, "sublet top") + 2;

        if (!status)
                return;
        figure_put(json_object_get(status, "uptime_s"), FIGURE_SECONDS, up);
        figure_put(json_object_get(host, "committed"), FIGURE_SIZE, promised);
        figure_put(json_object_get(host, "used"), FIGURE_SIZE, used);
        figure_put(json_object_get(host, "budget"), FIGURE_SIZE, all);
        figure_put(quantum, json_is_string(quantum) ? FIGURE_TEXT : FIGURE_SECONDS, turns);
        (void)snprintf(text, sizeof(text),
                       "host memory %s promised of %s, %s used   mode %s, turns %s   up %s",
                       promised, all, used, figure_string(status, "mode"), turns, up);
        (void)frame_text(f, y, x, f->width - x, STYLE_PLAIN, text);
        if (f->width - x > frame_columns(f, text) + 24)
                frame_right(f, y, x, f->width - x, STYLE_DIM, figure_string(status, "time"));
}

/* Returns what the message's lines say: why figures are old, else the message, else the filter. */
static const char *said(const struct top_view *view, char buf[static TOP_TEXT_MAX])
{
        if (!view->typing && *view->absent)
                return view->absent;
        if (!view->typing && *view->message)
                return view->message;
        *buf = 0;
        if (view->typing || *view->filter)
                (void)snprintf(buf, TOP_TEXT_MAX, "filter: %s%s", view->filter,
                               view->typing ? "_" : "");
        return buf;
}

/* Returns how many bytes of the text fit a line; breaks at a space. */
static size_t line_of(const struct frame *f, const char *text)
{
        const size_t all = strlen(text);
        size_t fits, space;
        int used;

        fits = columns_fit(text, MAX(f->width, 1), &used);
        if (fits == all)
                return all;
        for (space = fits; space > 0 && text[space] != ' '; space--)
                ;
        return space ? space : MAX(fits, (size_t)1);
}

/* Returns the lines that the text needs. */
static int text_height(const struct frame *f, const char *text, int most)
{
        int lines = 0;

        do {
                text += line_of(f, text);
                text += *text == ' ';
                lines++;
        } while (*text && lines < most);
        return lines;
}

static int message_height(const struct frame *f, const struct top_view *view)
{
        char buf[TOP_TEXT_MAX] = "";

        return text_height(f, said(view, buf), MESSAGE_MOST);
}

/* Writes the text into these lines. */
static void draw_text(struct frame *f, int y, int height, unsigned style, const char *text)
{
        char line[TEXT_MAX];

        for (int i = 0; i < height && *text; i++) {
                const size_t n = i + 1 < height ? line_of(f, text) : strlen(text);

                (void)snprintf(line, sizeof(line), "%.*s", (int)MIN(n, sizeof(line) - 1), text);
                (void)frame_text(f, y + i, 0, f->width, style, line);
                text += n;
                text += *text == ' ';
        }
}

/* Writes how many submitted jobs wait, and what the first of them waits for. False: none waits. */
static bool put_queue(const json_t *status, char text[static TEXT_MAX])
{
        const json_t *jobs = json_object_get(status, "jobs"), *job, *first = NULL;
        char name[FIGURE_MAX], since[FIGURE_MAX];
        const char *why, *after_place;
        unsigned waiting = 0;
        size_t i;

        json_array_foreach (jobs, i, job) {
                if (strcmp(figure_string(job, "state"), "waiting") != 0)
                        continue;
                first = waiting++ ? first : job;
        }
        if (!first)
                return false;
        if (json_is_string(json_object_get(first, "name")))
                figure_put(json_object_get(first, "name"), FIGURE_TEXT, name);
        else
                (void)strcpy(name, "another user's job");
        figure_put(json_object_get(first, "since_s"), FIGURE_SECONDS, since);
        why = json_string_value(json_object_get(first, "why")); /* "place 1: ..." */
        after_place = why ? strstr(why, ": ") : NULL;
        (void)snprintf(text, TEXT_MAX, "queue: %u wait%s, first %s for %s, bound %.2f%s%s", waiting,
                       waiting == 1 ? "s" : "", name, since, figure_number(first, "bound"),
                       after_place ? ": " : "", after_place ? after_place + 2 : "");
        return true;
}

/* Names the programs outside the daemon that hold memory of a card. False: there are none. */
static bool put_others(const json_t *status, char text[static TEXT_MAX])
{
        const json_t *gpus = json_object_get(status, "gpus"), *gpu, *other;
        char one[OTHER_MAX], card[FIGURE_MAX];
        size_t i, k, used = 0;

        json_array_foreach (gpus, i, gpu) {
                *card = 0;
                if (json_array_size(gpus) > 1)
                        (void)snprintf(card, sizeof(card), " of GPU %d",
                                       (int)figure_number(gpu, "index"));
                json_array_foreach (json_object_get(gpu, "others"), k, other) {
                        other_put(other, one);
                        if (used < TEXT_MAX)
                                used += (size_t)snprintf(text + used, TEXT_MAX - used, "%s%s%s",
                                                         used ? "; " : "others: ", one, card);
                }
        }
        return used > 0;
}

/* Returns the lines that a text needs, at most TEXT_MOST; 0: there is none. */
static int height_of(const struct frame *f, bool is_there, const char *text)
{
        return is_there ? text_height(f, text, TEXT_MOST) : 0;
}

/* Draws the message, and which rows are shown. */
static void draw_message(const struct table *t, const struct top_view *view, struct frame *f, int y,
                         int height, int rows)
{
        const size_t last = MIN(view->first + (size_t)MAX(rows, 0), t->n);
        const bool bad = *view->absent || (*view->message && view->bad);
        char buf[TOP_TEXT_MAX] = "", place[80];
        const char *text = said(view, buf);

        (void)snprintf(place, sizeof(place), "%zu-%zu of %zu", t->n ? view->first + 1 : 0, last,
                       t->n);
        if (t->n > (size_t)MAX(rows, 0) || *view->filter)
                frame_right(f, y + height - 1, 0, f->width, STYLE_DIM, place);
        draw_text(f, y, height, view->typing ? STYLE_BOLD : bad ? STYLE_BAD : STYLE_PLAIN, text);
}

static void draw_keys(struct frame *f, int y)
{
        int x = 0;

        for (const struct key_help *k = keys_help; k->keys; k++) {
                const int need = frame_columns(f, k->keys) + frame_columns(f, k->word) + 2;

                if (!k->word[0] || x + need - 1 > f->width)
                        continue;
                x += frame_text(f, y, x, f->width - x, STYLE_KEY, k->keys) + 1;
                x += frame_text(f, y, x, f->width - x, STYLE_PLAIN, k->word) + 1;
        }
}

static void draw_detail(const struct table *t, const struct top_view *view, struct frame *f, int y,
                        int height)
{
        char name[FIGURE_MAX], text[2 * FIGURE_MAX];

        for (size_t i = 0; i < t->n; i++) {
                const json_t *client = t->rows[i].client;

                if ((int)figure_number(client, "pid") != view->pid || t->rows[i].gpu != view->gpu)
                        continue;
                client_put(client, "name", FIGURE_TEXT, name);
                (void)snprintf(text, sizeof(text), " %d %s ", view->pid, name);
                frame_fill(f, y, 0, f->width, STYLE_DIM, f->unicode ? L'─' : L'-');
                (void)frame_text(f, y, 2, f->width - 4, STYLE_BOLD, text);
                (void)table_detail(&t->rows[i], f, f->width, y + 1, height - 1);
                return;
        }
}

/* Returns the lines that the details of the selected program need; 0: none is selected. */
static int detail_height(const struct table *t, const struct top_view *view, int width)
{
        for (size_t i = 0; i < t->n; i++)
                if ((int)figure_number(t->rows[i].client, "pid") == view->pid &&
                    t->rows[i].gpu == view->gpu)
                        return MIN(table_detail(&t->rows[i], NULL, width, 0, 0) + 1, DETAIL_MOST);
        return 0;
}

static void draw_help(struct frame *f)
{
        static const char *const meanings[] = {
                "mem: the card's memory by program, as the daemon counts it; others: outside it",
                "RESID: on the card.  EVICT: in host memory until its next turn.",
                "OVERFLOW: in host memory, used there.  MODE: how its memory is shared.",
                "ASKED: least-most share, weight.  GOT: time with a turn, of the last 30 s.",
                "BUS: bytes moved a second.  NEXT: when its next turn is expected.",
        };
        int y = 1;

        (void)frame_text(f, 0, 0, f->width, STYLE_BOLD, "sublet top: keys");
        for (const struct key_help *k = keys_help; k->keys; k++) {
                (void)frame_text(f, y, 1, 12, STYLE_KEY, k->keys);
                (void)frame_text(f, y++, 14, f->width - 14, STYLE_PLAIN, k->help);
        }
        y++;
        for (size_t i = 0; i < ARRAY_SIZE(meanings); i++)
                (void)frame_text(f, y++, 1, f->width - 1, STYLE_PLAIN, meanings[i]);
        (void)frame_text(f, MIN(y + 1, f->height - 1), 1, f->width - 1, STYLE_DIM,
                         "any key goes back");
}

/* ---- the whole ---- */

/* Lists the rows for keys, and scrolls so that the selected one is shown. A selection ends with its
 * program: the next key must not hit another. */
static void select_row(const struct table *t, struct top_view *view, size_t height,
                       struct top_rows *ret)
{
        static struct top_row *list;
        struct top_row *bigger = realloc(list, (t->n + 1) * sizeof(*list));
        size_t at = t->n;

        *ret = (struct top_rows){.page = height};
        if (!bigger)
                return;
        list = bigger;
        for (size_t i = 0; i < t->n; i++) {
                list[i] = (struct top_row){(int)figure_number(t->rows[i].client, "pid"),
                                           t->rows[i].gpu};
                if (list[i].pid == view->pid && list[i].gpu == view->gpu)
                        at = i;
        }
        ret->list = list;
        ret->n = t->n;
        if (at == t->n)
                view->pid = 0;
        else if (at < view->first)
                view->first = at;
        else if (height && at >= view->first + height)
                view->first = at - height + 1;
        view->first = MIN(view->first, t->n > height ? t->n - height : 0);
}

static void draw_nothing(const json_t *status, const struct top_view *view, const struct table *t,
                         struct frame *f, int y)
{
        const char *text = "no program shares a GPU yet: sublet run -- COMMAND starts one";

        if (!status)
                text = *view->absent ? view->absent : "asking the daemon";
        else if (t->all)
                text = "no program matches the filter";
        (void)frame_text(f, y, 1, f->width - 1, STYLE_DIM, text);
}

/* Dims old figures, so that nobody takes them for present ones. */
static void fade(struct frame *f, int height)
{
        for (int i = 0; i < MIN(height, f->height) * f->width; i++)
                f->cells[i].style = STYLE_DIM;
}

void layout_draw(const struct history *h, struct top_view *view, struct frame *f,
                 struct top_rows *ret_rows)
{
        const json_t *status = history_now(h), *gpus = json_object_get(status, "gpus"), *gpu;
        const int cards = (int)json_array_size(gpus);
        char queue[TEXT_MAX] = "", others[TEXT_MAX] = "";
        struct table t;
        struct plan p;
        size_t i;
        int y = 0;

        table_make(status, view, &t);
        select_row(&t, view, 0, ret_rows);
        p = make_plan(f->height, cards, t.n, height_of(f, put_others(status, others), others),
                      height_of(f, put_queue(status, queue), queue),
                      detail_height(&t, view, f->width), view->live ? message_height(f, view) : 0);
        select_row(&t, view, (size_t)p.rows, ret_rows);
        if (view->help) {
                draw_help(f);
                return;
        }
        if (p.header)
                draw_header(status, view, f, y++);
        json_array_foreach (gpus, i, gpu) {
                if (p.card)
                        panel_draw(gpu, history_gpu(h, (int)figure_number(gpu, "index")), view, f,
                                   y, p.card);
                y += p.card;
        }
        draw_text(f, y, p.others, STYLE_PLAIN, others);
        y += p.others;
        draw_text(f, y, p.queue, STYLE_WAITS, queue);
        y += p.queue;
        table_draw(&t, view, f, y++, p.rows);
        if (!t.n)
                draw_nothing(status, view, &t, f, y);
        if (status && *view->absent)
                fade(f, y + p.rows);
        y += p.rows;
        if (p.detail)
                draw_detail(&t, view, f, y, p.detail);
        y += p.detail;
        if (p.message)
                draw_message(&t, view, f, y, p.message, p.rows);
        y += p.message;
        if (p.keys)
                draw_keys(f, y);
}

int layout_height(const struct history *h, const struct top_view *view, int width)
{
        const json_t *status = history_now(h);
        const struct frame f = {.width = width};
        char queue[TEXT_MAX], others[TEXT_MAX];
        struct table t;

        table_make(status, view, &t);
        return 2 + height_of(&f, put_others(status, others), others) +
               height_of(&f, put_queue(status, queue), queue) +
               3 * (int)json_array_size(json_object_get(status, "gpus")) + (int)MAX(t.n, (size_t)1);
}
