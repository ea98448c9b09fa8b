/* call.h: the prototypes of the entry points, from cuda_api.def, and api_enter(), with which each
 * begins. */
#pragma once

#include "sim/process/sim.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        EXPORT CUresult symbol params;
#include "cuda/cuda_api.def"

enum api_flags {
        API_ANY = 0,          /* the call only needs cuInit */
        API_CONTEXT = 1 << 0, /* the call needs a current context that has not failed */
        API_UNSAFE = 1 << 1,  /* the call is refused while a capture forbids it */
        API_BEFORE_INIT = 1 << 2,
        API_WHILE_LOCKED = 1 << 3, /* the call does not wait for the end of a checkpoint */
};

/* Begins every entry point; function is __func__. An error is the result of the whole call: not
 * initialized, a child after fork, exiting, called from a host function, no context, a failed
 * context, a capture that forbids the call, an injected fault (SIMCUDA_FAIL). */
CUresult api_enter(const char *function, unsigned flags, CUcontext *ret_context);
