/* bound.h: keep the work in flight short while somebody waits for the GPU, so that a drain takes
 * little longer than the longest kernel.
 *
 * Before a submission an event is recorded now and then; while the oldest that is not done is older
 * than the bound, submitting threads wait, not inside the gate. They never wait for ever: what is
 * in flight may depend on what is held back here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

void bound_set(uint64_t bound_ns); /* 0 switches off; the agent */
bool bound_exceeded(void);
void bound_wait(void);
void bound_note(CUstream stream);     /* the calling thread is about to submit to it */
void bound_forget(CUcontext context); /* it is about to be destroyed */
