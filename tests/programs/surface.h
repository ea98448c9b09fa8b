/* surface.h: every entry point of the driver, found through the door that PROGRAM_DOOR names, and
 * what the parts of the program `surface` share.
 *
 * A part calls each entry point of its family once or more and looks at what came of it. What a
 * driver may lack, or refuse on this card, is called through MAY: absent or not supported is fine,
 * any other failure is not. */
#pragma once

#include <stddef.h>

#include "program.h"

struct surface {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult(*symbol) params;
#include "cuda/cuda_api.def"
#undef CU
};

/* A member is NULL where the driver has no such entry point. */
extern struct surface all;

/* After driver_open(), by the same door. */
void surface_open(void);

#define MAY(symbol, args)                                                                \
        do {                                                                             \
                CUresult may_ = all.symbol ? all.symbol args : CUDA_ERROR_NOT_SUPPORTED; \
                if (may_ != CUDA_ERROR_NOT_SUPPORTED && may_ != CUDA_ERROR_NOT_FOUND)    \
                        program_check(may_, #symbol, __FILE__, __LINE__);                \
        } while (0)

#define SURFACE_BYTES ((size_t)4096)

/* Two pieces of device memory, two of pinned host memory, a stream, a context: for everybody. */
struct playground {
        CUcontext context;
        CUdevice device;
        CUdeviceptr a, b;
        uint8_t *h, *h2;
        CUstream s;
        uint64_t random;
};
extern struct playground play;

/* New contents for play.h. */
void play_fill(void);
/* All is done, and so many bytes there are those of play.h. */
void play_expect(CUdeviceptr at, size_t bytes, const char *after);
/* The word there. */
uint32_t play_word(CUdeviceptr at);

/* surface_submit.inc, for the ordinary entry points and for those of per-thread default streams. */
void submit_plain(void);
void submit_per_thread(void);

/* surface_rest.c: what has no such variants. */
void rest_modules(void);
void rest_memory(void);
void rest_virtual(void);
void rest_arrays(void);
void rest_graphs(void);
void rest_contexts(void);
