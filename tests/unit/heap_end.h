/* heap_end.h: the end of a heap, which the library's own never come to: they live as long as their
 * process. For tests that have a heap each, with heap.c and slab.c. */
#pragma once

#include <stdlib.h>

#include "preload/heap/heap.h"
#include "preload/heap/slab.h"

/* The books are given back, whatever is in them. Of what a pool keeps in its blocks, and of host
 * memory that extents have, nothing is. */
static inline void heap_end(struct heap *h)
{
        struct block **const lists[] = {h->blocks, h->handles};
        const size_t counts[] = {h->count, h->handle_count};

        for (unsigned k = 0; k < 2; k++) {
                for (size_t i = 0; i < counts[k]; i++) {
                        slab_delete(lists[k][i]->slab);
                        free(lists[k][i]->users);
                        free(lists[k][i]->extents);
                        free(lists[k][i]);
                }
                free(lists[k]);
        }
        free(h->holes);
        *h = (struct heap){0};
}
