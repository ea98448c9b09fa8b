/* heap_end.h: frees a heap at the end of a test. In the library a heap lives as long as its
 * process. */
#pragma once

#include <stdlib.h>

#include "preload/heap/heap.h"
#include "preload/heap/slab.h"

/* Frees the heap's accounts, whatever they contain. Does not free memory that a pool keeps in its
 * blocks, or host memory of extents. */
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
