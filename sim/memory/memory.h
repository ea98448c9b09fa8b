/* memory.h: memory of cuMemAlloc, for other files. */
#pragma once

#include "sim/memory/blocks.h"
#include "sim/queue/work.h"

/* True if a copy or a fill may be queued, as with the driver: device addresses must be mapped,
 * accessible to some device, and within one allocation. Host memory is not checked. graph: the work
 * belongs to a graph, so memory of graphs that does not exist yet is allowed. Takes its locks
 * itself. */
bool memory_usable(uint64_t at, uint64_t bytes, bool write, bool graph);

/* Allocates device memory for the simulator's own use (module variables). */
CUresult memory_allocate(CUcontext c, uint64_t bytes, CUdeviceptr *ret);
/* Frees at once, without waiting. */
CUresult memory_free(CUdeviceptr ptr);
/* Frees memory of cuMemAlloc once a call has waited for what the stream has to do now. Needs
 * sim.lock. */
CUresult memory_free_ordered(CUdeviceptr ptr, CUcontext owner, CUstream stream);
/* As frees_synced(), for memory of cuMemAlloc. Needs sim.lock. */
void memory_synced(CUcontext c, const struct point *p);
/* Frees all allocations of the context. Needs sim.lock. */
void memory_release_context(CUcontext c);

/* ---- managed_api.c ---- */
CUresult prefetch_run(CUcontext c, const struct work_prefetch *w);

/* ---- peer.c ---- */
/* Returns the cards that may use the context's allocations. Needs the space lock. */
uint32_t peer_devices(CUcontext c);
/* Ends all peer access of a context. Needs the space lock. */
void peer_forget(CUcontext c);
