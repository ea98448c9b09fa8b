/* client.h: this process as a client of the simulated MPS, if CUDA_MPS_PIPE_DIRECTORY names a
 * directory in which a control daemon listens. Thread-safe after mps_join(). */
#pragma once

#include "sim/process/sim.h"

/* Joins MPS, at each cuInit until it succeeds. Succeeds also without MPS. failed() is called at
 * most once, from a thread of its own: the server or another client has failed, or this process was
 * terminated. */
CUresult mps_join(void (*failed)(CUresult error));
/* True if this process takes part, until it ends. */
bool mps_takes_part(void);
/* Returns the part of a card's processors that this process may use, in percent: what
 * CUDA_MPS_ACTIVE_THREAD_PERCENTAGE said when it joined; 100 if it takes no part. */
double mps_percentage(void);
/* Tells the server that work of this process has failed, and with it the work of all its
 * clients. */
void mps_tell_fault(void);
