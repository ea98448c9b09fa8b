/* throttle.h: the throttle keeps the work in flight short while other programs may want the GPU. So
 * a drain takes little longer than the longest kernel.
 *
 * Submissions to a stream are counted in groups, with an event behind each; at most two groups are
 * in flight. The size of a group follows from how long the last group took, by the GPU's time
 * stamps of the events. A thread that may not submit yet waits outside the gate, but never for
 * ever: the work in flight may depend on the submission that it holds back. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

void throttle_set(uint64_t bound_ns); /* 0 switches the throttle off; for the agent */
/* The calling thread, inside the gate, is about to submit to the stream. True: it may, and the
 * submission is counted. */
bool throttle_pass(CUstream stream);
/* After throttle_pass() returned false: wait, outside the gate, until another try is worthwhile. */
void throttle_wait(CUstream stream);
void throttle_forget_stream(CUstream stream); /* the stream is about to be destroyed */
void throttle_forget(CUcontext context);      /* the context is about to be destroyed */
/* The thread has ended, and its per-thread default stream with it. Its record may be reused. */
struct gate_thread;
void throttle_forget_thread(const struct gate_thread *t);
