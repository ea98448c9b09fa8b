/* client.h: this process as a client of the simulated MPS, if CUDA_MPS_PIPE_DIRECTORY names a
 * directory in which a control daemon listens. Thread-safe after mps_join(). */
#pragma once

#include "sim/process/sim.h"

/* Joins, at each cuInit until it succeeds. failed() is called from a thread of its own, once at
 * most: the server or another client has failed, or the process may not go on. Success also without
 * MPS. */
CUresult mps_join(void (*failed)(CUresult error));
/* True if this process takes part, until it ends. */
bool mps_takes_part(void);
/* Returns the part of a card's processors that this process may use, in percent: what
 * CUDA_MPS_ACTIVE_THREAD_PERCENTAGE said when it joined; 100 if it takes no part. */
double mps_percentage(void);
/* Work of this process has failed, and with it that of all clients of the server. */
void mps_tell_fault(void);
