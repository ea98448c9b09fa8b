/* bound.h: keep the work in flight short while somebody waits for the GPU, so that a drain takes
 * little longer than the longest kernel.
 *
 * Each stream has a window: how many submissions may be in flight on it. It follows from how long
 * those before took, so that what is in flight when one more is submitted takes about the bound.
 * Events between the submissions tell how far the stream has come. Who finds the window full waits,
 * not inside the gate, and never for ever: what is in flight may depend on what is held back here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

void bound_set(uint64_t bound_ns); /* 0 switches off; the agent */
/* The calling thread, inside the gate, wants to submit to the stream. True: it may, and is counted.
 */
bool bound_pass(CUstream stream);
/* It may not yet: wait, outside the gate, until that is worth another try. */
void bound_wait(CUstream stream);
void bound_forget_stream(CUstream stream); /* it is about to be destroyed */
void bound_forget(CUcontext context);      /* it is about to be destroyed */
