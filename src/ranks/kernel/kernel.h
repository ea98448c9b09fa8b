/* kernel.h: kernels from texts that the library embeds. A text is loaded into a context when it is
 * first needed there. Any thread. */
#pragma once

#include "cuda/cuda_abi.h"

struct kernel {
        CUfunction function;
        unsigned multiprocessors; /* of the GPU */
};

/* Finds a kernel in the current context, and loads its text if need be. The driver may wait for all
 * work of the context meanwhile. text, name: must stay; text must be the same address each time. */
CUresult kernel_find(const char *text, const char *name, struct kernel *ret);
