/* memory.h: cuMemAlloc and its family, for others. */
#pragma once

#include "sim/memory/blocks.h"
#include "sim/queue/work.h"

/* What the driver looks at before it queues a copy or a fill: device addresses are mapped,
 * accessible to some device and within one allocation. Host memory is the program's own risk.
 * graph: it is for a graph, whose own memory need not be there yet. Unlocked. */
bool memory_usable(uint64_t at, uint64_t bytes, bool write, bool graph);

/* Device memory for the driver's own use (module variables). */
CUresult memory_allocate(CUcontext c, uint64_t bytes, CUdeviceptr *ret);
/* At once, without waiting. */
CUresult memory_free(CUdeviceptr ptr);
/* Everything allocated in the context. sim.lock held. */
void memory_release_context(CUcontext c);

/* managed_api.c */
CUresult prefetch_run(CUcontext c, const struct work_prefetch *w);

/* These two locked. peer.c: the cards that may use what is allocated in the context; the context is
 * going. */
uint32_t peer_devices(CUcontext c);
void peer_forget(CUcontext c);
