/* extent.h: the physical memory behind one extent.
 *
 * The extent is marked busy by the caller, who does not hold core.lock; nobody else touches it
 * meanwhile. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/core.h"
#include "preload/heap.h"

/* All whole ones are of one size, so that what one process evicts is what another needs. */
static inline bool extent_is_whole(const struct gpu *g, const struct extent *e)
{
        return !e->managed && e->bytes == g->heap.extent_bytes;
}

/* passed_fd: memory of another process to take, whose contents must all be overwritten before the
 * program sees them; it is closed either way. -EBADF: none, create it. */
CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd);
void extent_unmap(const struct extent *e);

/* A descriptor that keeps the memory of this extent, to be passed on, or -EBADF: it was passed on
 * to us, and the driver does that but once. */
int extent_export(const struct extent *e);
