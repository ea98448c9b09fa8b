/* pages.h: the files that the library writes about the processes of a job (wire/wire_measure.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/wire_measure.h"

#define PAGES_MAX 16u

/* One look at all processes of the job that have submitted work. */
struct pages {
        unsigned n;
        struct measure_page *page[PAGES_MAX];
};

/* Reads the files in the folder. whole: also reads the arrays of kernels, graphs and nodes, which
 * may otherwise be old. Files that are no page yet are left out. */
void pages_read(struct pages *p, const char *folder, bool whole);
void pages_free(struct pages *p);
/* Returns the page of this process; NULL: there is none. */
const struct measure_page *pages_find(const struct pages *p, uint32_t pid);
/* Returns the page of the process that has submitted most since `before`; NULL: none has. */
const struct measure_page *pages_leader(const struct pages *p, const struct pages *before);
/* Removes the files and the folder. */
void pages_remove(const char *folder);

static inline uint64_t pages_get(const _Atomic uint64_t *counter)
{
        return atomic_load_explicit(counter, memory_order_relaxed);
}
