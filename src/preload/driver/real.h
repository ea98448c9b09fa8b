/* real.h: the real driver, as found in libcuda.so.1.
 *
 * One member a row of cuda_api.def, named by its exported symbol. No member is ever NULL: before
 * real_open() and where the driver lacks a symbol it is a stub that returns
 * CUDA_ERROR_NOT_INITIALIZED or CUDA_ERROR_NOT_SUPPORTED. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"

#define GPUS_MAX 16 /* as many as the protocol knows */

struct real_driver {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult(*symbol) params;
#include "cuda/cuda_api.def"
#undef CU
};

extern struct real_driver real;

/* In the library that tests watch, calls that may block go past a check (tests/watched/held.c). */
#ifdef SUBLET_WATCHED
extern const struct real_driver real_watched;
#define real real_watched
#endif

/* Does the driver have the row's function at this address? */
bool real_has(unsigned row, const void *address);

/* The ioctl() that libcuda would use without us; NULL: not known yet. */
typedef int real_ioctl_fn(int fd, unsigned long request, ...);
extern _Atomic(real_ioctl_fn *) real_ioctl;

/* Load libcuda.so.1 and fill the table, once; later calls return the first result. 0, or -ENOENT:
 * no driver on this machine, or this process was forked while it was being loaded. Thread-safe,
 * does not allocate with malloc(). */
int real_open(void);

/* Let a row that dlsym() could not find in the driver call this address, which cuGetProcAddress
 * handed out. False: the row has its function. */
bool real_adopt(unsigned row, void *address);
