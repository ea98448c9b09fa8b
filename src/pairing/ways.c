/* ways.c: owns the names of the ways. Must never hold more than them. */
#include "pairing/ways.h"

#include <errno.h>
#include <string.h>

const char *const way_names[WAYS] = {
        [WAY_SLICED] = "sliced",
        [WAY_SHARED] = "shared",
        [WAY_TURNS] = "turns",
};

int way_read(const char *name, enum way *ret)
{
        for (unsigned w = 0; w < WAYS; w++)
                if (strcmp(name, way_names[w]) == 0) {
                        *ret = (enum way)w;
                        return 0;
                }
        return -EINVAL;
}
