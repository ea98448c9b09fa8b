/* flags.h: flags in a stream, for the files of this room. See collectives.h. */
#pragma once

#include "cuda/cuda_abi.h"
#include "ranks/ring/ring.h"

/* Set a flag for a rank, or for all others (RING_ALL), once what is before it in the stream is
 * done. */
CUresult flags_set(const struct ring *r, enum ring_flag flag, unsigned part, unsigned to,
                   CUstream stream);
/* Wait for a rank's flag, or for the flags of all other ranks (RING_ALL), and clear what was
 * awaited. */
CUresult flags_wait(const struct ring *r, enum ring_flag flag, unsigned part, unsigned from,
                    CUstream stream);
/* Wait for any of some bells of this rank, and clear all bells. bells: a bit for each. */
CUresult flags_wait_bells(const struct ring *r, unsigned bells, CUstream stream);
