/* frame.c: owns the cells of a picture. Must never store a character that a terminal would obey,
 * nor one that takes another number of columns than the frame says. */
#include "client/top/frame.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

int frame_begin(struct frame *f, int width, int height, bool unicode)
{
        const size_t n = (size_t)MAX(width, 0) * (size_t)MAX(height, 0);
        struct cell *cells = realloc(f->cells, MAX(n, (size_t)1) * sizeof(*cells));

        if (!cells)
                return -ENOMEM;
        *f = (struct frame){MAX(width, 0), MAX(height, 0), unicode, cells};
        for (size_t i = 0; i < n; i++)
                cells[i] = (struct cell){L' ', STYLE_PLAIN};
        return 0;
}

void frame_free(struct frame *f)
{
        free(f->cells);
        *f = (struct frame){0};
}

/* Reads one character. *ret_columns: 0 for marks that belong to the character before. */
static size_t read_one(const struct frame *f, const char *text, wchar_t *ret, int *ret_columns)
{
        size_t n = 1;

        *ret = (unsigned char)*text < 0x80 ? (wchar_t)*text : L'\0';
        if (!*ret && f->unicode)
                n = mbrtowc(ret, text, MB_LEN_MAX, &(mbstate_t){0});
        if (n > MB_LEN_MAX)
                n = 1; /* no UTF-8 */
        while (n && (text[n] & 0xc0) == 0x80)
                n++; /* '?' stands for all of it */
        *ret_columns = wcwidth(*ret);
        if (!*ret || *ret_columns < 0) {
                *ret = L'?';
                *ret_columns = 1;
        }
        return n;
}

int frame_columns(const struct frame *f, const char *text)
{
        int sum = 0, columns;
        wchar_t c;

        while (*text) {
                text += read_one(f, text, &c, &columns);
                sum += columns;
        }
        return sum;
}

static struct cell *cell_at(struct frame *f, int y, int x)
{
        return y >= 0 && y < f->height && x >= 0 && x < f->width ? &f->cells[y * f->width + x]
                                                                 : NULL;
}

static void put(struct frame *f, int y, int x, unsigned style, wchar_t c)
{
        struct cell *cell = cell_at(f, y, x);

        if (cell)
                *cell = (struct cell){c, (uint8_t)style};
}

int frame_text(struct frame *f, int y, int x, int width, unsigned style, const char *text)
{
        bool cut;
        int used = 0, columns;
        wchar_t c;

        width = MIN(width, f->width - x);
        if (width <= 0)
                return 0;
        cut = frame_columns(f, text) > width;
        while (*text) {
                text += read_one(f, text, &c, &columns);
                if (used + columns > width - cut)
                        break;
                if (columns > 0)
                        put(f, y, x + used, style, c);
                if (columns == 2)
                        put(f, y, x + used + 1, style, 0);
                used += columns;
        }
        if (cut)
                put(f, y, x + used++, style, L'+');
        return used;
}

void frame_right(struct frame *f, int y, int x, int width, unsigned style, const char *text)
{
        const int columns = frame_columns(f, text);

        (void)frame_text(f, y, x + MAX(width - columns, 0), MIN(columns, width), style, text);
}

void frame_fill(struct frame *f, int y, int x, int width, unsigned style, wchar_t c)
{
        for (int i = 0; i < width; i++)
                put(f, y, x + i, style, c);
}

void frame_select(struct frame *f, int y)
{
        for (int x = 0; x < f->width; x++) {
                struct cell *cell = cell_at(f, y, x);

                if (cell)
                        cell->style |= STYLE_SELECTED;
        }
}

void frame_print(const struct frame *f, FILE *out)
{
        for (int y = 0; y < f->height; y++) {
                const struct cell *line = &f->cells[y * f->width];
                int n = f->width;

                while (n > 0 && line[n - 1].c == L' ')
                        n--;
                for (int x = 0; x < n; x++)
                        if (line[x].c)
                                (void)fprintf(out, "%lc", (wint_t)line[x].c);
                (void)fputc('\n', out);
        }
}
