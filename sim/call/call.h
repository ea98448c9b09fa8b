/* call.h: the entry points, with the prototypes of cuda_api.def, and how each begins. */
#pragma once

#include "sim/process/sim.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        EXPORT CUresult symbol params;
#include "cuda/cuda_api.def"
#undef CU

enum api_flags {
        API_ANY = 0,          /* needs cuInit, no more */
        API_CONTEXT = 1 << 0, /* needs a current context that has not failed */
        API_UNSAFE = 1 << 1,  /* refused while a capture forbids it */
        API_BEFORE_INIT = 1 << 2,
};

/* The start of every entry point; function is __func__. A result other than success is the call's
 * result: not initialized, a child after fork, leaving, called from a host function, no context, a
 * failed context, a capture that forbids the call, an injected fault (SIMCUDA_FAIL). */
CUresult api_enter(const char *function, unsigned flags, CUcontext *ret_context);
