/* bound.h: keep the work in flight short while others may want the GPU, so that a drain takes
 * little longer than the longest kernel.
 *
 * For each kind of work (a kernel, a graph, a sort of copy) is known what it took, between events
 * that the GPU itself stamps, alone at first and every second again; what was never seen takes
 * unknown long. On each stream another submission passes while what is in flight is known to take
 * no more than the bound: of what is longer, or unknown, there is one. Who may not pass waits, not
 * inside the gate, and never for ever: what is in flight may depend on what is held back here.
 * Where it did, its time is not learned, and the next such hold is shorter.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

void bound_set(uint64_t bound_ns); /* 0 switches off; the agent */
/* The calling thread, inside the gate, wants to submit such work to the stream. True: it may, and
 * is counted. */
bool bound_pass(CUstream stream, uint64_t work);
/* It may not yet: wait, outside the gate, until that is worth another try. */
void bound_wait(CUstream stream);
/* What was in flight has stood still meanwhile: nothing is learned from how long it took. */
void bound_restart(void);
void bound_forget_stream(CUstream stream); /* it is about to be destroyed */
void bound_forget(CUcontext context);      /* it is about to be destroyed */
/* It has ended, and its default stream with it; another one may get its record. */
struct gate_thread;
void bound_forget_thread(const struct gate_thread *t);
