/* frame.h: a picture of the terminal, in cells. Every text passes here, so that none can steer the
 * terminal. Knows no terminal and no colour: a style says what a cell is, screen.c how it looks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

#define FRAME_HUES 12 /* colours by which programs are told apart */

enum style {
        STYLE_PLAIN,
        STYLE_DIM,
        STYLE_BOLD,
        STYLE_HEAD,   /* the titles of the columns */
        STYLE_SORTED, /* the title of the column by which rows are sorted */
        STYLE_RUNS,
        STYLE_WAITS,
        STYLE_MOVES,
        STYLE_PAUSED,
        STYLE_BAD,
        STYLE_KEY,
        STYLE_USE,
        STYLE_BUS,
        STYLE_OTHERS, /* memory of programs outside the daemon */
        STYLE_HUE,    /* the first of FRAME_HUES: a mark in a program's colour */
        STYLE_BAR = STYLE_HUE + FRAME_HUES, /* the first of FRAME_HUES: text on such a colour */
        STYLES = STYLE_BAR + FRAME_HUES,
};
#define STYLE_SELECTED 0x80u /* added to the styles of the row that is selected */
#define STYLE_OF(n)    ((n)&0x7fu)

struct cell {
        wchar_t c; /* 0: the right half of a wide character */
        uint8_t style;
};

struct frame {
        int width, height;
        bool unicode; /* false: ASCII only. true needs a UTF-8 locale */
        struct cell *cells;
};

/* Sets up an empty frame, in place of an earlier one. 0 or -ENOMEM. */
int frame_begin(struct frame *f, int width, int height, bool unicode);
void frame_free(struct frame *f);

/* Returns the columns that a text needs. */
int frame_columns(const struct frame *f, const char *text);
/* Writes UTF-8 into at most `width` columns; a text that is cut ends in "+", as in ps and top. What
 * is outside the frame is left out. Returns the columns that were used. */
int frame_text(struct frame *f, int y, int x, int width, unsigned style, const char *text);
/* Writes a text as frame_text() does, but at the right end of these columns. */
void frame_right(struct frame *f, int y, int x, int width, unsigned style, const char *text);
void frame_fill(struct frame *f, int y, int x, int width, unsigned style, wchar_t c);
void frame_select(struct frame *f, int y);

/* Prints the cells as lines of text, without spaces at their ends. */
void frame_print(const struct frame *f, FILE *out);
