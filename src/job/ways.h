/* ways.h: the ways in which two jobs share a card. */
#pragma once

#include <stdbool.h>

#include "base/options.h"

enum way {
        WAY_SLICED, /* both are on the card, and the driver slices its time */
        WAY_SHARED, /* MPS: their kernels run at the same time */
        WAY_TURNS, /* one job runs after the other: in the mode exclusive, or if both do not fit the
                      card */
        WAYS
};

extern const char *const way_names[WAYS];

/* Reads the name of a way. 0 or -EINVAL. */
int way_read(const char *name, enum way *ret);

#define WAYS_FORM "sliced, shared or turns, several of them with commas, or auto"

/* Reads ways in the form WAYS_FORM. 0 or -EINVAL. */
int ways_read(const char *text, bool ret[static WAYS]);
/* Reads ways as ways_read() does, for a row of options whose field is bool[WAYS]. */
int ways_set(const struct option_row *row, void *field, const char *value);
