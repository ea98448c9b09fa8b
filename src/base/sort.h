/* sort.h: puts floating-point numbers in order. Thread-safe. */
#pragma once

#include <stdlib.h>

/* For qsort(3), the smallest first. Each item is or begins with a double. */
static inline int compare_doubles(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static inline void sort_doubles(double *values, size_t n)
{
        qsort(values, n, sizeof(*values), compare_doubles);
}
