/* throttle.h: the throttle. It keeps the work in flight short while others may want the GPU, so
 * that a drain takes little longer than the longest kernel.
 *
 * Submissions to a stream are counted in groups, with an event behind each; at most two groups are
 * in flight. How many submissions make a group follows from how long the last group took, by the
 * events' stamps of the GPU. A thread that may not submit yet waits outside the gate, and never for
 * ever: the work in flight may depend on what is held back here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

void throttle_set(uint64_t bound_ns); /* 0 switches it off; for the agent */
/* The calling thread, inside the gate, wants to submit to the stream. True: it may, and the
 * submission is counted. */
bool throttle_pass(CUstream stream);
/* After throttle_pass() said no: wait, outside the gate, until another try is worth it. */
void throttle_wait(CUstream stream);
void throttle_forget_stream(CUstream stream); /* the stream is about to be destroyed */
void throttle_forget(CUcontext context);      /* the context is about to be destroyed */
/* The thread has ended, and its default stream with it; another thread may get its record. */
struct gate_thread;
void throttle_forget_thread(const struct gate_thread *t);
