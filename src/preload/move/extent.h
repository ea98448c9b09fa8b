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

/* True if the extent has the full size. That size is the same in all processes, so one process can
 * use the memory that another evicts. */
static inline bool extent_is_whole(const struct gpu *g, const struct extent *e)
{
        return !e->managed && e->bytes == g->heap.extent_bytes;
}

/* Find an address at which an extent that has memory can be copied. If the program has no mapping
 * with write access for its own GPU, one of our windows maps the memory until extent_close(). After
 * a failure *ret_at is 0. extent_close() sets *at to 0, and does nothing if *at is 0 already. */
#define EXTENT_WINDOWS 8u
CUresult extent_open(struct gpu *g, const struct extent *e, unsigned window, CUdeviceptr *ret_at);
void extent_close(const struct extent *e, CUdeviceptr *at);

/* Put memory behind an extent. passed_fd: a descriptor of memory that another process has handed
 * over, which this function closes; -EBADF: create memory. The caller must overwrite all of
 * handed-over memory before the program sees it. */
CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd);
/* Like extent_map(), but with host memory, which the GPU uses over the bus. */
CUresult extent_map_host(const struct gpu *g, struct extent *e);
/* Take the memory away from behind an extent. After a failure the memory is where it was, with its
 * contents. */
CUresult extent_unmap(const struct gpu *g, const struct extent *e);
/* Tries all that moving memory needs, on a little memory of its own: create, map, copy, unmap,
 * release. Waits for the copy. A full card counts as success. */
CUresult extent_probe(const struct gpu *g, CUstream stream);
/* Fills in the argument of cuMemSetAccess that lets these GPUs read and write. gpus: bits 1 <<
 * ordinal. Returns the number of entries. */
unsigned extent_access(uint32_t gpus, CUmemAccessDesc ret[static GPUS_MAX]);
/* Let exactly these other GPUs access an extent of the heap's own memory, which is on the card. */
void extent_allow(struct extent *e, uint32_t peers);
/* Map the memory of a handle's extent again at all addresses where the program had it. If the
 * driver refuses, the GPU is given up. */
void extent_place_back(const struct gpu *g, const struct extent *e);
/* Release the memory, which is mapped nowhere any more. */
CUresult extent_release(const struct extent *e);
/* Release the memory of e, and give e the memory that is mapped at the address of `other`. Both
 * extents have the same size. After a failure the memory of `other` is released. Then e is
 * unchanged or, if its memory could not be mapped again, the GPU is given up. */
CUresult extent_exchange(const struct gpu *g, struct extent *e, struct extent *other);

/* extent_may_leave(): the memory may be handed over to another process. extent_may_adopt(): the
 * extent may get memory from another process. Both are false for special memory that the program
 * has asked for. */
bool extent_may_leave(const struct gpu *g, const struct extent *e);
bool extent_may_adopt(const struct gpu *g, const struct extent *e);
/* Returns a descriptor to hand over. While it is open, the memory exists. -EBADF: the memory was
 * handed over to us, and the driver exports it only once (extent.adopted). */
int extent_export(const struct extent *e);

/* Replace the extent's memory by new memory with the same contents, which can be exported. No work
 * may use the memory meanwhile. Returns 0; or -errno, and nothing has changed. */
int extent_replace(const struct gpu *g, struct extent *e);
