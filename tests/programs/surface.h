/* surface.h: every entry point of the driver, found through the door that PROGRAM_DOOR names, and
 * the objects that the parts of the program `surface` share.
 *
 * A part calls each entry point of its family once or more and checks the results. It uses MAY for
 * entry points that a driver may lack, or refuse on this card: no other failure is accepted. */
#pragma once

#include <stddef.h>

#include "program.h"

struct surface {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult(*symbol) params;
#include "cuda/cuda_api.def"
};

/* A member is NULL if the driver has no such entry point. */
extern struct surface all;

/* Fills `all`, after driver_open() and through the same door. */
void surface_open(void);

#define MAY(symbol, args)                                                                \
        do {                                                                             \
                CUresult may_ = all.symbol ? all.symbol args : CUDA_ERROR_NOT_SUPPORTED; \
                if (may_ != CUDA_ERROR_NOT_SUPPORTED && may_ != CUDA_ERROR_NOT_FOUND)    \
                        program_check(may_, #symbol, __FILE__, __LINE__);                \
        } while (0)

#define SURFACE_BYTES ((size_t)4096)

/* Objects that all parts use: two pieces of device memory, two of pinned memory, a stream, a
 * context. */
struct playground {
        CUcontext context;
        CUdevice device;
        CUdeviceptr a, b;
        uint8_t *h, *h2;
        CUstream s;
        uint64_t random;
};
extern struct playground play;

/* Writes new contents to play.h. */
void play_fill(void);
/* Waits for all work, and checks that the bytes at `at` are equal to the first bytes of play.h. */
void play_expect(CUdeviceptr at, size_t bytes, const char *after);
/* Returns the word at an address. */
uint32_t play_word(CUdeviceptr at);

/* Run surface_submit.inc: once with the ordinary entry points, once with the per-thread ones. */
void submit_plain(void);
void submit_per_thread(void);

/* Call the entry points that have no per-thread variant (surface_rest.c). */
void rest_modules(void);
void rest_memory(void);
void rest_virtual(void);
void rest_arrays(void);
void rest_graphs(void);
void rest_contexts(void);
