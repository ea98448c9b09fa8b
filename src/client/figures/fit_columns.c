/* fit_columns.c: owns the choice of columns in a narrow table. Must never leave out a column
 * without a rank. */
#include "client/figures/fit_columns.h"

#include <stdbool.h>

#include "base/macros.h"

/* Returns the width of the shown columns. least: columns with a floor count as cut to the floor. */
static int table_width(const struct column_size *columns, size_t n, int gap, bool least)
{
        int total = 0;

        for (size_t i = 0; i < n; i++)
                if (columns[i].width > 0)
                        total += gap + (least && columns[i].floor
                                                ? MIN(columns[i].width, columns[i].floor)
                                                : columns[i].width);
        return total;
}

static void leave_out_rank(struct column_size *columns, size_t n, int rank)
{
        for (size_t i = 0; i < n; i++)
                if (columns[i].rank == rank)
                        columns[i].width = 0;
}

/* Leaves out the columns of the lowest rank. False: none is left that has a rank. */
static bool leave_out(struct column_size *columns, size_t n)
{
        int lowest = 0;

        for (size_t i = 0; i < n; i++)
                if (columns[i].width && columns[i].rank && (!lowest || columns[i].rank < lowest))
                        lowest = columns[i].rank;
        if (lowest)
                leave_out_rank(columns, n, lowest);
        return lowest;
}

int fit_columns(struct column_size *columns, size_t n, int limit)
{
        if (limit == 0 || table_width(columns, n, 2, false) <= limit)
                return 2;
        if (table_width(columns, n, 1, false) > limit)
                leave_out_rank(columns, n, FIT_EMPTY);
        while (table_width(columns, n, 1, true) > limit && leave_out(columns, n))
                ;
        while (table_width(columns, n, 1, false) > limit) {
                size_t widest = n;

                for (size_t i = 0; i < n; i++)
                        if (columns[i].floor && columns[i].width > columns[i].floor &&
                            (widest == n || columns[i].width > columns[widest].width))
                                widest = i;
                if (widest == n)
                        break;
                columns[widest].width--;
        }
        return 1;
}
