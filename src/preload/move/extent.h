/* extent.h: the physical memory behind one extent, and the places where it is mapped: the one
 * address of the heap's own memory, or wherever the program has mapped its handle.
 *
 * The extent is marked busy by the caller, who does not hold core_lock; nobody else touches it
 * meanwhile. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/state/core.h"
#include "preload/heap/heap.h"

/* All whole ones are of one size, so that what one process evicts is what another needs. */
static inline bool extent_is_whole(const struct gpu *g, const struct extent *e)
{
        return !e->managed && e->bytes == g->heap.extent_bytes;
}

/* Where copies of an extent that has memory can go to and come from. What the program has mapped
 * nowhere where its own GPU may write is mapped in one of so many windows of ours meanwhile. *at is
 * 0 after a failure and after extent_close(), which does nothing then. */
#define EXTENT_WINDOWS 8u
CUresult extent_open(struct gpu *g, const struct extent *e, unsigned window, CUdeviceptr *ret_at);
void extent_close(const struct extent *e, CUdeviceptr *at);

/* passed_fd: memory of another process to take, whose contents must all be overwritten before the
 * program sees them; it is closed either way. -EBADF: none, create it. */
CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd);
/* The same with memory of the host, which the GPU uses over the bus. */
CUresult extent_map_host(const struct gpu *g, struct extent *e);
void extent_unmap(const struct extent *e);
/* What cuMemSetAccess takes where these GPUs, 1 << ordinal, may read and write. Returns how many.
 */
unsigned extent_access(uint32_t gpus, CUmemAccessDesc ret[static GPUS_MAX]);
/* Map the heap's own memory, which is there, for these other GPUs and no more. */
void extent_allow(struct extent *e, uint32_t peers);
/* Wherever the extent belongs, for memory that is there already. */
CUresult extent_place(const struct gpu *g, const struct extent *e);
/* The memory alone: it is mapped nowhere any more. */
void extent_release(const struct extent *e);
/* Put what is mapped at another extent's address into this one's place, whose memory is given back.
 * It is the same number of bytes. Not CUDA_SUCCESS: nothing has changed, and other is gone. */
CUresult extent_exchange(const struct gpu *g, struct extent *e, struct extent *other);

/* Memory of this extent may go to another process, or another's may take its place. The program
 * may have asked for memory of a special kind. */
bool extent_may_leave(const struct gpu *g, const struct extent *e);
bool extent_may_adopt(const struct gpu *g, const struct extent *e);
/* A descriptor that keeps the memory of this extent, to be passed on, or -EBADF: it was passed on
 * to us, and the driver does that but once (extent.adopted). */
int extent_export(const struct extent *e);

/* Put memory that can be exported in the place of what is there, with the same contents, while
 * nothing uses it. 0, or -errno: everything is as it was. */
int extent_replace(const struct gpu *g, struct extent *e);
