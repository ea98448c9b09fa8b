/* late.h: memory that is freed during a capture, or that the driver's own calls free before all
 * submitted work is done. Until it is released it counts as allocated and moves like other memory.
 * core_lock is held in all functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;
struct heap_place;

/* Free the allocation once all work that was submitted so far is done. */
CUresult late_free(struct gpu *g, const struct heap_place *p) UNLOCKS(core_lock);
/* True if the program has already freed the allocation. */
bool late_is(const struct heap_place *p);
/* Release freed memory that no work uses any more, unless a capture is in progress. Returns in how
 * many ns to call again; UINT64_MAX: when kicked. For the agent. */
uint64_t late_tend(uint64_t now_ns) UNLOCKS(core_lock);
