/* reduce_kernels.h: the kernel that reduces and scales elements on a GPU, as PTX texts. The caller
 * loads the text of the type that it needs with cuModuleLoadData, and launches the kernel.
 *
 * Each text has the kernel for one element type, and needs a driver of CUDA 11 and a GPU of compute
 * capability 7.0, or later ones. The kernel takes struct reduce_arguments:
 *
 *   out[i] = out2[i] = (from[0][i] op from[1][i] op ... op from[n-1][i]) / divide, or * scalar
 *
 * The order is from left to right, so the same sources give the same bits with any launch shape, on
 * any GPU. A NaN's sign and payload may differ between GPUs.
 *  - Integers wrap. They wrap before the division, which truncates.
 *  - double is computed in double. All other floating types are computed in float and rounded once,
 *    to nearest even, after the division or multiplication.
 *  - A minimum or maximum is the other number if one is a NaN, as fminf() and fmaxf() say. Two NaNs
 *    give a NaN. -0 is less than +0.
 *  - fp8 has the formats of the OCP 8-bit floating point specification. Results that are too large,
 *    and infinities, become the largest finite number. A NaN stays a NaN.
 *
 * Launch any grid of up to REDUCE_THREADS_MAX threads a block, each dimension but x being 1. The
 * kernel needs no dynamic shared memory. It loads 16 bytes at a time if all addresses are multiples
 * of 16, else one element. */
#pragma once

#include <stdint.h>

#include "ranks/reduce/reduce_shared.h"

#define REDUCE_KERNEL "reduce"

/* The element types have the numbers of ncclDataType_t. */
enum reduce_type {
#define REDUCE_TYPE(name, bytes) REDUCE_##name,
#include "ranks/reduce/reduce_types.def"
        REDUCE_TYPES
};

extern const char *const reduce_ptx[REDUCE_TYPES];
extern const uint32_t reduce_size[REDUCE_TYPES]; /* bytes of an element */

/* The parameters of the kernel, in its order and layout. The host passes the address of each member
 * in cuLaunchKernel's array of parameters. All addresses in them are the device's, and multiples of
 * the element's size. */
struct reduce_arguments {
        struct {
                uint64_t from[REDUCE_SOURCES_MAX];
        } sources;
        uint32_t n;         /* sources: 1 to REDUCE_SOURCES_MAX */
        uint32_t operation; /* a value of enum reduce_operation */
        uint64_t out;       /* may be the address of a source; must not overlap one otherwise */
        uint64_t out2;      /* address of a second result, with the limits of out; 0: none */
        uint64_t count;     /* elements */
        uint32_t divide;    /* 0 and 1: no division; at most INT32_MAX */
        uint32_t scales;    /* not 0: the scalar multiplies, and nothing divides */
        uint64_t scalar;    /* address of an element that the device can read; 0: use `bits` */
        uint64_t bits;      /* the scalar is in the low bits */
};
