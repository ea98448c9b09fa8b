/* memory.h: cuMemAlloc and its family, for others. */
#pragma once

#include "sim/memory/blocks.h"
#include "sim/queue/work.h"

/* The driver's check before it queues a copy or a fill: device addresses are mapped, accessible to
 * some device and within one allocation. Host memory is not checked. graph: it is for a graph,
 * whose own memory may not exist yet. Unlocked. */
bool memory_usable(uint64_t at, uint64_t bytes, bool write, bool graph);

/* Device memory for the driver's own use (module variables). */
CUresult memory_allocate(CUcontext c, uint64_t bytes, CUdeviceptr *ret);
/* Frees at once, without waiting. */
CUresult memory_free(CUdeviceptr ptr);
/* Frees all allocations of the context. sim.lock held. */
void memory_release_context(CUcontext c);

/* managed_api.c */
CUresult prefetch_run(CUcontext c, const struct work_prefetch *w);

/* These two locked, in peer.c: the cards that may use the context's allocations; and the context's
 * end. */
uint32_t peer_devices(CUcontext c);
void peer_forget(CUcontext c);
