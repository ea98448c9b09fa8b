/* trouble.h: driver calls of our own that fail, though the GPU has memory for them.
 *
 * The driver may fail a call once, and succeed the next time. So a failed call is repeated, at
 * growing intervals. After half a minute the GPU gets a small test of all that moving memory needs.
 * If it fails the test while memory of the program is away, the GPU is given up: it counts as
 * failed (poison.h) before any thread of the program runs without its memory. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;

/* A call of ours has failed. A lack of memory is no trouble. core_lock held. */
void trouble_note(struct gpu *g, CUresult why) REQUIRES(core_lock);
/* Memory has moved. core_lock held. */
void trouble_end(struct gpu *g) REQUIRES(core_lock);
/* Memory of the program is lost: from now on the program's work on this GPU gets this error.
 * core_lock held. */
void trouble_give_up(struct gpu *g, CUresult why) REQUIRES(core_lock);
/* True until the next attempt is due. core_lock held. */
bool trouble_waits(const struct gpu *g) REQUIRES(core_lock);
/* True if there is trouble. Forgets it if nobody has tried again for long. core_lock held. */
bool trouble_stands(struct gpu *g) REQUIRES(core_lock);

/* Waits until the work in a stream of ours has ended, even if the driver fails a call meanwhile:
 * memory that a copy still uses must not be taken away. core_lock not held. */
CUresult trouble_await(CUstream stream);

/* Finds out whether a context of the process has failed, and whether the GPU is to be given up.
 * prepared: the result of transfer_prepare(). The agent's thread, core_lock not held. */
void trouble_look(struct gpu *g, CUresult prepared);
