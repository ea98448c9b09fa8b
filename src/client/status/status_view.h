/* status_view.h: prints the daemon's state as a table.
 *
 * A pure function of the daemon's JSON object and the width, so that it can be tested without a
 * daemon or a terminal. A figure that the daemon does not know (null, or a missing field) is shown
 * as N/A, never as 0. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct status_view {
        int width;            /* the most characters in a row, if possible; 0: unlimited */
        int pid;              /* only this program, and its GPUs; 0: all */
        const json_t *before; /* the status `passed_s` ago, from which rates follow; NULL: none */
        double passed_s;
};

/* Prints the table, with programs in the order of clients_compare(). Returns how many rows of
 * programs there are. */
unsigned status_view_print(const json_t *status, const struct status_view *view, FILE *out);
