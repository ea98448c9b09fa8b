/* driver.h: the CUDA driver, reached through the door that PROGRAM_DOOR names.
 *
 *   linked     by linked symbols (the default of a program that is linked with libcuda.so.1)
 *   dlsym      by dlopen() and dlsym() (the default of the programs in dl/, which are not linked)
 *   getproc    by cuGetProcAddress_v2, found with dlsym()
 *   getproc1   by the cuGetProcAddress from before CUDA 12
 *
 * A door that cannot be opened ends the program with PROGRAM_EXIT_SETUP. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"

/* The driver's prototypes come from src/cuda/cuda_api.def. */
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

struct driver {
#define D(member, symbol)              __typeof__(symbol) *member;
#define DP(member, symbol, per_thread) D(member, symbol)
#include "driver.def"
};

extern struct driver cu;

/* per_thread_default_streams: uses the symbols for which NULL means the calling thread's stream. */
void driver_open(bool per_thread_default_streams);
