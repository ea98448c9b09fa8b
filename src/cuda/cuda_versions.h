/* cuda_versions.h: separates the name of an exported driver function from its version. */
#pragma once

#include <stddef.h>
#include <string.h>

/* Returns the length of a symbol without its version and its per-thread suffix: 9 for cuMemFree_v3
 * and for cuMemFree_v3_ptsz. */
static inline size_t cuda_stem(const char *symbol)
{
        size_t n = strlen(symbol), digits = n;

        if (n > 5 && (!strcmp(symbol + n - 5, "_ptsz") || !strcmp(symbol + n - 5, "_ptds")))
                digits = n -= 5;
        while (digits > 0 && symbol[digits - 1] >= '0' && symbol[digits - 1] <= '9')
                digits--;
        if (digits < n && digits > 2 && symbol[digits - 1] == 'v' && symbol[digits - 2] == '_')
                n = digits - 2;
        return n;
}
