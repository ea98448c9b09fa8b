/* fit_columns.h: which columns of a table fit, and how wide they are. Pure. */
#pragma once

#include <stddef.h>

struct column_size {
        int width; /* width of the widest cell; 0: the column is left out */
        int floor; /* the column may be cut to this width; 0: it may not */
        int rank;  /* the column may be left out, the lowest rank first; 0: it may not */
};
#define FIT_EMPTY \
        (-1) /* rank of a column that says nothing: it is left out before any column is cut */

/* Fits the columns into a limit (0: none). Shrinks the gaps, then leaves out empty columns, then
 * others, then cuts, until the table fits. Returns the gap before each column. */
int fit_columns(struct column_size *columns, size_t n, int limit);
