/* xdg.c: owns the choice of a user's folders. Must never use a relative path. */
#include "base/xdg.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
        const char *variable, *below_home;
} folders[] = {
        [XDG_CONFIG] = {"XDG_CONFIG_HOME", "/.config"},
        [XDG_DATA] = {"XDG_DATA_HOME", "/.local/share"},
        [XDG_STATE] = {"XDG_STATE_HOME", "/.local/state"},
        [XDG_CACHE] = {"XDG_CACHE_HOME", "/.cache"},
};

int xdg_folder(enum xdg kind, char *ret, size_t size)
{
        const char *named = getenv(folders[kind].variable), *home = getenv("HOME");
        const int below = !named || named[0] != '/';
        int n;

        if (below && (!home || home[0] != '/'))
                return -ENOENT;
        n = snprintf(ret, size, "%s%s", below ? home : named,
                     below ? folders[kind].below_home : "");
        return n >= 0 && (size_t)n < size ? below : -ENAMETOOLONG;
}
