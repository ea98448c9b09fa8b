/* layout.h: draws the picture that sublet top shows.
 *
 * A pure function of what is known, what a person has chosen, and the size of the terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/top/frame.h"
#include "client/top/top_history.h"

#define TOP_TEXT_MAX   256
#define TOP_FILTER_MAX 64

/* The viewer's choices and the message line; keys.c changes them. */
struct top_view {
        unsigned sort; /* number of a column (top_table.h) */
        bool reverse;
        char filter[TOP_FILTER_MAX]; /* "": all programs */
        bool typing;                 /* the filter is being typed */
        bool help;
        int pid, gpu;               /* the selected program; pid 0: none */
        size_t first;               /* the first row that is shown */
        char message[TOP_TEXT_MAX]; /* "": none */
        bool bad;                   /* the message is bad news */
        char absent[TOP_TEXT_MAX];  /* why the figures are old, or missing; "": they are not */
        bool colours;               /* false: programs are told apart by signs */
        bool live; /* false: a snapshot, without the selected program and the keys */
        double interval_s;
};

/* The rows in their order, for keys that act on them. */
struct top_rows {
        struct top_row {
                int pid, gpu;
        } * list;
        size_t n, page; /* page: how many are shown at a time */
};

/* Draws into a frame that frame_begin() has set up. Moves view->first so that the selected row is
 * shown, and ends the selection of a program that is gone. *ret_rows is valid until the next
 * call. */
void layout_draw(const struct history *h, struct top_view *view, struct frame *f,
                 struct top_rows *ret_rows);

/* Returns the height at which all programs are shown. */
int layout_height(const struct history *h, const struct top_view *view, int width);
