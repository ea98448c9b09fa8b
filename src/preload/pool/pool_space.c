/* pool_space.c: owns the choice how much address space a pool reserves, and in which extents. Must
 * never take memory: a pool's memory is counted when it is used. */
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/heap/heap.h"
#include "preload/pool/pool_state.h"

#define POOL_FIRST (4 * GIB) /* bytes of the first address space; only its extents are small */

/* Reserves a block. Its chunk becomes the first one of the pool. */
static bool reserve(struct pool *p, uint64_t bytes, uint64_t extent_bytes)
{
        struct heap *h = &p->gpu->heap;
        struct block *b = heap_take_pool(h, bytes, extent_bytes);

        if (b && suballocator_add(&p->suballocator, b) == 0)
                return true;
        if (b)
                heap_bury(h, b);
        return false;
}

/* Small programs get small extents; large programs get extents that other processes can take
 * over. */
int pool_widen(struct pool *p, uint64_t bytes)
{
        const struct heap *h = &p->gpu->heap;
        const bool first = !p->suballocator.chunks && bytes < POOL_FIRST / 2;
        const uint64_t extent = first ? MIN(POOL_STEP, h->extent_bytes) : h->extent_bytes;
        const uint64_t space = first ? MIN(POOL_FIRST, MAX(p->gpu->total, bytes)) : p->gpu->total;

        return reserve(p, align_up(MAX(bytes, space), extent), extent) ? 0 : -1;
}

struct suballocation *pool_pages(struct pool *p, uint64_t pages)
{
        for (const struct chunk *c = p->suballocator.chunks; c; c = c->next)
                if (c->block->bytes == pages && c->lowest->bytes == pages &&
                    c->lowest->free_list == &p->suballocator.common)
                        return c->lowest;
        return reserve(p, pages, MIN(pages, p->gpu->heap.extent_bytes))
                       ? p->suballocator.chunks->lowest
                       : NULL;
}
