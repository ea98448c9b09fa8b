/* ways.h: the ways in which two jobs share a card. */
#pragma once

#include <stdbool.h>

#include "base/options.h"

enum way {
        WAY_SLICED, /* both are on the card, and the driver slices its time */
        WAY_SHARED, /* MPS: their kernels run at the same time */
        WAY_TURNS,  /* one after the other: the mode exclusive, and all that does not fit */
        WAYS
};

extern const char *const way_names[WAYS];

/* Reads the name of a way. 0 or -EINVAL. */
int way_read(const char *name, enum way *ret);

#define WAYS_FORM "sliced, shared or turns, several of them with commas, or auto"

/* Reads a text of this form. 0 or -EINVAL. */
int ways_read(const char *text, bool ret[static WAYS]);
/* The same for a row of options, whose field is bool[WAYS]. */
int ways_set(const struct option_row *row, void *field, const char *value);
