/* top_table.h: the table of programs: which rows, in which order, which columns. Pure. */
#pragma once

#include "client/top/frame.h"
#include "client/top/layout.h"

struct table_row {
        json_t *client;
        const json_t *card;
        int gpu;
};

struct table {
        struct table_row *rows; /* the rows that the filter passes, sorted */
        size_t n, all;          /* all: how many rows there are without the filter */
        bool gpus;              /* there are several cards */
};

/* Returns the number of the column with this name, such as "resident"; -1: there is none. */
int table_column(const char *name);
const char *table_column_name(unsigned column); /* NULL behind the last */
/* Returns the next column to sort by, in this direction. */
unsigned table_next(unsigned column, int direction);

/* Makes the list. *ret is valid until the next call. */
void table_make(const json_t *status, const struct top_view *view, struct table *ret);
/* Draws the titles into line y and rows into the `height` lines below. */
void table_draw(const struct table *t, const struct top_view *view, struct frame *f, int y,
                int height);
/* Draws all that is known of a program. Returns the lines used; f NULL: draws nothing. */
int table_detail(const struct table_row *row, struct frame *f, int width, int y, int height);
