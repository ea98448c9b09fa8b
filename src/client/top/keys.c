/* keys.c: owns the meaning of keys. Must never act on a program itself. */
#include "client/top/keys.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/top/top_table.h"

#define ESCAPE 0x1b

const struct key_help keys_help[] = {
        {"q", "quit", "quit"},
        {"h", "help", "show or leave this help"},
        {"< >", "sort", "sort by the column on the left or right"},
        {"i", "", "invert the order"},
        {"/", "filter", "show only rows with a text; Enter keeps it, Esc ends it"},
        {"p", "pause", "let the selected program stand still on the GPU"},
        {"r", "resume", "let it go on"},
        {"e", "evict", "move its memory to the host, until its next turn"},
        {"+ -", "priority", "give it a higher or lower priority"},
        {"arrows", "", "select a program; also j k PgUp PgDn Home End; Esc: none"},
        {0},
};

/* ---- the selected program ---- */

static size_t selected(const struct top_view *view, const struct top_rows *rows)
{
        size_t i = 0;

        while (i < rows->n && (rows->list[i].pid != view->pid || rows->list[i].gpu != view->gpu))
                i++;
        return i;
}

static void move(struct top_view *view, const struct top_rows *rows, long by)
{
        const long last = (long)rows->n - 1;
        long to;

        if (last < 0)
                return;
        to = view->pid ? (long)selected(view, rows) : (long)view->first + (by < 0 ? 1 : -1);
        to += by;
        to = MIN(MAX(to, 0L), last);
        view->pid = rows->list[to].pid;
        view->gpu = rows->list[to].gpu;
}

static void sort(struct top_view *view, int direction)
{
        view->sort = table_next(view->sort, direction);
        view->bad = false;
        (void)snprintf(view->message, sizeof(view->message), "sorted by %s",
                       table_column_name(view->sort));
}

static enum keys_act order(struct top_view *view, const struct top_rows *rows, const char *name,
                           int by, struct top_order *ret)
{
        const size_t at = selected(view, rows);

        if (at == rows->n) {
                view->bad = true;
                (void)snprintf(view->message, sizeof(view->message),
                               "select a program first, with the arrow keys");
                return KEYS_NOTHING;
        }
        *ret = (struct top_order){name, view->pid, by};
        return KEYS_ORDER;
}

/* ---- the filter ---- */

static void type(struct top_view *view, unsigned key)
{
        const size_t n = strlen(view->filter);
        size_t cut = n;

        if (key == '\r' || key == '\n' || key == ESCAPE) {
                view->typing = false;
                if (key == ESCAPE)
                        view->filter[0] = 0;
        } else if (key == KEYS_BACKSPACE || key == 0x7f || key == '\b') {
                while (cut > 0 && (view->filter[--cut] & 0xc0) == 0x80)
                        ;
                view->filter[cut] = 0;
        } else if (key >= ' ' && key < 0x80 && n + 1 < TOP_FILTER_MAX) {
                view->filter[n] = (char)key;
                view->filter[n + 1] = 0;
        } else if (key >= 0xa0 && key < KEYS_UP && n + 4 < TOP_FILTER_MAX) {
                static const unsigned leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
                const unsigned bytes = key < 0x800 ? 2 : key < 0x10000 ? 3 : 4;

                for (unsigned i = bytes - 1; i > 0; i--, key >>= 6)
                        view->filter[n + i] = (char)(0x80 | (key & 0x3f));
                view->filter[n] = (char)(leads[bytes] | key);
                view->filter[n + bytes] = 0;
        }
}

/* ---- the whole ---- */

enum keys_act keys_press(struct top_view *view, const struct top_rows *rows, unsigned key,
                         struct top_order *ret_order)
{
        const long page = (long)MAX(rows->page, (size_t)1);

        view->message[0] = 0;
        if (view->help) {
                view->help = false;
                return key == 'q' ? KEYS_QUIT : KEYS_NOTHING;
        }
        if (view->typing) {
                type(view, key);
                return KEYS_NOTHING;
        }
        switch (key) {
        case 'q':
                return KEYS_QUIT;
        case 'h':
        case '?':
                view->help = true;
                break;
        case '<':
        case KEYS_LEFT:
                sort(view, -1);
                break;
        case '>':
        case KEYS_RIGHT:
                sort(view, 1);
                break;
        case 'i':
                view->reverse = !view->reverse;
                break;
        case '/':
                view->typing = true;
                break;
        case ESCAPE:
                view->filter[0] = 0;
                view->pid = 0;
                view->first = 0;
                break;
        case KEYS_UP:
        case 'k':
                move(view, rows, -1);
                break;
        case KEYS_DOWN:
        case 'j':
                move(view, rows, 1);
                break;
        case KEYS_PAGE_UP:
                move(view, rows, -page);
                break;
        case KEYS_PAGE_DOWN:
        case ' ':
                move(view, rows, page);
                break;
        case KEYS_HOME:
                move(view, rows, -(long)rows->n);
                break;
        case KEYS_END:
                move(view, rows, (long)rows->n);
                break;
        case 'p':
                return order(view, rows, "pause", 0, ret_order);
        case 'r':
                return order(view, rows, "resume", 0, ret_order);
        case 'e':
                return order(view, rows, "evict", 0, ret_order);
        case '+':
                return order(view, rows, "priority", 1, ret_order);
        case '-':
                return order(view, rows, "priority", -1, ret_order);
        default:
                break;
        }
        return KEYS_NOTHING;
}
