/* real.h: the real driver, as found in libcuda.so.1.
 *
 * The table has one member for each row of cuda_api.def, named by its exported symbol. No member is
 * ever NULL: before real_open(), and if the driver lacks the symbol, it is a stub that returns
 * CUDA_ERROR_NOT_INITIALIZED or CUDA_ERROR_NOT_SUPPORTED. */
#pragma once

#include <stdbool.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"

#define GPUS_MAX 16 /* as many as the protocol allows */

struct real_driver {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult(*symbol) params;
#include "cuda/cuda_api.def"
};

extern struct real_driver real;

/* The test build of the library checks that no call that may block is made with core_lock held
 * (tests/watched/held.c). */
#ifdef SUBLET_WATCHED
extern const struct real_driver real_watched;
#define real real_watched
#endif

/* In the library itself `real` also notes the file that makes the call, for the log (tell.h). Calls
 * made in doors.c count as the program's. */
#ifdef SUBLET_TELLS
extern bool tell_all;
extern __thread const char *tell_caller __attribute__((tls_model("initial-exec")));

static inline __typeof__(real) *real_from(const char *file)
{
        if (unlikely(tell_all))
                tell_caller = file;
        return &real;
}
#undef real
#define real (*real_from(__FILE__))
#endif

/* True if this address is the driver's function for the row. */
bool real_has(unsigned row, const void *address);

/* The ioctl() that libcuda would call without us; NULL: not known yet. */
typedef int real_ioctl_fn(int fd, unsigned long request, ...);
extern _Atomic(real_ioctl_fn *) real_ioctl;

/* Load libcuda.so.1 and fill the table, once; later calls return the first result. 0; -ENOENT: this
 * machine has no driver, or this process was forked while the driver was being loaded. Thread-safe;
 * does not allocate with malloc(). */
int real_open(void);

/* Set a row's function, which dlsym() did not find in the driver, to an address that
 * cuGetProcAddress returned. False: the row has a function already. */
bool real_adopt(unsigned row, void *address);
