/* extent.h: the physical memory behind one extent, and the addresses at which it is mapped: the
 * single address of the heap's own memory, or each address at which the program has mapped its
 * handle.
 *
 * The caller marks the extent busy and does not hold core_lock; no other thread touches the
 * extent. */
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

/* The address at which an extent with memory can be copied. If the program has no mapping with
 * write access for its own GPU, one of our windows maps the memory until extent_close(). *at is 0
 * after a failure and after extent_close(), which then does nothing. */
#define EXTENT_WINDOWS 8u
CUresult extent_open(struct gpu *g, const struct extent *e, unsigned window, CUdeviceptr *ret_at);
void extent_close(const struct extent *e, CUdeviceptr *at);

/* passed_fd: memory handed over by another process, closed in any case; -EBADF: create memory. All
 * contents of handed-over memory must be overwritten before the program sees them. */
CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd);
/* Like extent_map(), but with host memory, which the GPU uses over the bus. */
CUresult extent_map_host(const struct gpu *g, struct extent *e);
void extent_unmap(const struct extent *e);
/* Fills in the argument of cuMemSetAccess that lets these GPUs (1 << ordinal) read and write.
 * Returns the number of entries. */
unsigned extent_access(uint32_t gpus, CUmemAccessDesc ret[static GPUS_MAX]);
/* Map the heap's own memory, which is on the card, for these other GPUs and no others. */
void extent_allow(struct extent *e, uint32_t peers);
/* Map memory that is on the card already at all addresses of the extent. */
CUresult extent_place(const struct gpu *g, const struct extent *e);
/* Release the memory, which is mapped nowhere any more. */
void extent_release(const struct extent *e);
/* Put the memory mapped at the address of `other` in place of that of e, which is released. Both
 * have the same size. After a failure e is unchanged, and the memory of `other` is released. */
CUresult extent_exchange(const struct gpu *g, struct extent *e, struct extent *other);

/* extent_may_leave(): the memory may be handed to another process. extent_may_adopt(): it may come
 * from another process. Both are false for special memory that the program has asked for. */
bool extent_may_leave(const struct gpu *g, const struct extent *e);
bool extent_may_adopt(const struct gpu *g, const struct extent *e);
/* Returns a descriptor to hand over, which keeps the extent's memory. -EBADF: the memory was handed
 * over to us, and the driver exports it only once (extent.adopted). */
int extent_export(const struct extent *e);

/* Replace the memory by memory that can be exported, with the same contents, while no work uses it.
 * 0, or -errno: nothing has changed. */
int extent_replace(const struct gpu *g, struct extent *e);
