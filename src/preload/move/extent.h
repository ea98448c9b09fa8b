/* extent.h: the physical memory behind one extent, and the addresses at which it is mapped: the
 * single address of the heap's own memory, or each address at which the program has mapped its
 * handle.
 *
 * The caller marks the extent busy and does not hold core_lock; no other thread touches it
 * meanwhile. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/state/core.h"
#include "preload/heap/heap.h"

/* All whole extents have one size, so that one process can use the memory that another evicts. */
static inline bool extent_is_whole(const struct gpu *g, const struct extent *e)
{
        return !e->managed && e->bytes == g->heap.extent_bytes;
}

/* The address at which an extent with memory can be copied. Memory that the program has mapped
 * nowhere with write access for its own GPU is mapped in one of so many windows of ours meanwhile.
 * *at is 0 after a failure and after extent_close(), which then does nothing. */
#define EXTENT_WINDOWS 8u
CUresult extent_open(struct gpu *g, const struct extent *e, unsigned window, CUdeviceptr *ret_at);
void extent_close(const struct extent *e, CUdeviceptr *at);

/* passed_fd: memory handed over by another process, or -EBADF: create memory. Its contents must all
 * be overwritten before the program sees them. The descriptor is closed in any case. */
CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd);
/* The same with host memory, which the GPU uses over the bus. */
CUresult extent_map_host(const struct gpu *g, struct extent *e);
void extent_unmap(const struct extent *e);
/* The argument of cuMemSetAccess for these GPUs (1 << ordinal) to read and write. Returns their
 * number. */
unsigned extent_access(uint32_t gpus, CUmemAccessDesc ret[static GPUS_MAX]);
/* Map the heap's own memory, which is on the card, for these other GPUs and no others. */
void extent_allow(struct extent *e, uint32_t peers);
/* Map memory that is on the card already at all addresses of the extent. */
CUresult extent_place(const struct gpu *g, const struct extent *e);
/* Release the memory, which is mapped nowhere any more. */
void extent_release(const struct extent *e);
/* Put the memory mapped at another extent's address in place of this one's, which is released. Both
 * have the same size. Not CUDA_SUCCESS: nothing has changed, and other is gone. */
CUresult extent_exchange(const struct gpu *g, struct extent *e, struct extent *other);

/* Memory of this extent may be handed to another process, or replaced by another's. False for
 * memory of a special kind that the program has asked for. */
bool extent_may_leave(const struct gpu *g, const struct extent *e);
bool extent_may_adopt(const struct gpu *g, const struct extent *e);
/* A descriptor that keeps the memory of this extent, to be handed over. -EBADF: the memory was
 * handed over to us, and the driver exports it only once (extent.adopted). */
int extent_export(const struct extent *e);

/* Replace the memory by memory that can be exported, with the same contents, while no work uses it.
 * 0, or -errno: nothing has changed. */
int extent_replace(const struct gpu *g, struct extent *e);
