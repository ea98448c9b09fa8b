/* poison.h: a GPU that a context of this process has failed on.
 *
 * A sticky error (a kernel that writes where nothing is) ends all contexts that the process has on
 * the GPU, and it gets no new one (measured, driver 580). Their calls answer that error from then
 * on, and what they had in memory cannot be reached by anybody. So it is given back at once,
 * whoever runs, and nobody waits for it to come back. Its addresses are not used again: the program
 * still knows them. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;

/* A call on the GPU has failed: true if it was for good, which is remembered. core_lock held. */
bool poison_note(struct gpu *g, CUresult r) REQUIRES(core_lock);

/* The error of the GPU that the calling thread uses; CUDA_SUCCESS: none, as far as is known. */
CUresult poison_current(void);
