/* cuda_versions.h: what the name of an exported driver function says of its version. */
#pragma once

#include <stddef.h>
#include <string.h>

/* The length of a symbol without its version and its per-thread variant: 9 of cuMemFree_v3 and of
 * cuMemFree_v3_ptsz. */
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
