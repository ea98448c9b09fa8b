/* ways.c: owns the names of the ways. Must never know more of a way than its name. */
#include "job/ways.h"

#include <errno.h>
#include <string.h>

const char *const way_names[WAYS] = {
        [WAY_SLICED] = "sliced",
        [WAY_SHARED] = "shared",
        [WAY_TURNS] = "turns",
};

static int read_name(const char *name, size_t n, enum way *ret)
{
        for (unsigned w = 0; w < WAYS; w++)
                if (strlen(way_names[w]) == n && strncmp(name, way_names[w], n) == 0) {
                        *ret = (enum way)w;
                        return 0;
                }
        return -EINVAL;
}

int way_read(const char *name, enum way *ret)
{
        return read_name(name, strlen(name), ret);
}

int ways_read(const char *text, bool ret[static WAYS])
{
        const bool all = strcmp(text, "auto") == 0;
        bool ways[WAYS] = {all, all, all};
        enum way way;

        for (const char *at = text; !all;) {
                const size_t n = strcspn(at, ",");

                if (read_name(at, n, &way) < 0)
                        return -EINVAL;
                ways[way] = true;
                at += n;
                if (!*at++)
                        break;
        }
        memcpy(ret, ways, sizeof(ways));
        return 0;
}

int ways_set(const struct option_row *row, void *field, const char *value)
{
        return ways_read(value, field);
}
