/* poison.h: a GPU on which a context of this process has failed.
 *
 * A sticky error (a kernel that writes to unmapped memory) ends all contexts of the process on the
 * GPU, and the process gets no new one (measured, driver 580). All later calls return that error,
 * and nobody can read the memory. So the memory is given back at once, even without a turn, and no
 * thread waits for it. Its addresses are not used again: the program still has pointers to them. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;

/* True for an error after which the driver fails every call of the process on that GPU. */
bool poison_sticks(CUresult r);

/* Records the result of a driver call. True: the GPU is lost to this process. core_lock held. */
bool poison_note(struct gpu *g, CUresult r) REQUIRES(core_lock);
/* Gives the GPU up with this error: a call that the program cannot do without has failed, though
 * the driver does not say that the GPU is lost. core_lock held. */
void poison_give_up(struct gpu *g, CUresult why) REQUIRES(core_lock);

/* Returns the sticky error of the calling thread's GPU; CUDA_SUCCESS: no error is known. */
CUresult poison_current(void);
