/* preload_list.c: owns how LD_PRELOAD and ASAN_OPTIONS are put together. Must never lose
 * what the user has set. */
#include "base/preload_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static int is_our_library(const char *item)
{
        const char *base = strrchr(item, '/');

        base = base ? base + 1 : item;
        return strcmp(base, "libsublet.so") == 0 || strcmp(base, "libsublet-ranks.so") == 0;
}

char *preload_list(const char *now, const char *library)
{
        _cleanup_free_ char *old = strdup(now ? now : "");
        const size_t n = strlen(library ? library : "") + strlen(now ? now : "") + 2;
        char *rest = old, *item, *value = malloc(n);
        size_t used;

        if (!old || !value) {
                free(value);
                return NULL;
        }
        used = (size_t)snprintf(value, n, "%s", library ? library : "");
        while ((item = strsep(&rest, " :"))) /* ld.so(8): there is no quoting */
                if (item[0] && !is_our_library(item))
                        used += (size_t)snprintf(value + used, n - used, "%s%s", used ? ":" : "",
                                                 item);
        return value;
}

char *preload_asan_options(const char *now)
{
        static const char option[] = "verify_asan_link_order";
        char *value;

        if (now && strstr(now, option))
                return strdup(now);
        return asprintf(&value, "%s%s%s=0", now ? now : "", now && now[0] ? ":" : "", option) < 0
                       ? NULL
                       : value;
}
