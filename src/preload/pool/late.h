/* late.h: what is freed during a capture, or by the driver's own calls before all is done that was
 * submitted before. It is the program's until then, and moves with the rest. core_lock held for all
 * of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;
struct heap_place;

/* Free it once everything that has been submitted so far is done. */
CUresult late_free(struct gpu *g, const struct heap_place *p) REQUIRES(core_lock);
/* The program has freed it already. */
bool late_is(const struct heap_place *p);
/* Release what is no longer used, while no capture is on. In how many ns there will be more;
 * UINT64_MAX: not by itself. The lock is given up meanwhile; the agent. */
uint64_t late_tend(uint64_t now_ns) REQUIRES(core_lock);
