/* reduce.h: puts the kernel that reduces into a stream, whose context is the current one. A type's
 * kernel is loaded into a context when it is first needed. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "ranks/real/nccl_abi.h"
#include "ranks/reduce/reduce_kernels.h"

/* An operation on the elements of all ranks. */
struct reduce_op {
        ncclDataType_t type;
        enum reduce_operation kind;
        uint32_t divide; /* the result is divided by it; 1: it is not */
        /* Each rank's elements are first multiplied by its own scalar: *scalar in memory that the
         * GPU reads, or the low bytes of `bits` if `scalar` is 0. */
        bool scales;
        CUdeviceptr scalar;
        uint64_t bits;
};

/* Bytes of an element; 0: there is no such type. */
unsigned reduce_bytes(ncclDataType_t type);

/* Loads the kernel of a type. The driver may wait for all work of the context meanwhile. */
CUresult reduce_prepare(ncclDataType_t type);
/* out[i], and out2[i] unless out2 is 0, is sources[0][i] op … op sources[n - 1][i], in this order,
 * so it has the same bits on each rank and in each run. out may be one of the sources. */
CUresult reduce_launch(const struct reduce_op *op, const CUdeviceptr *sources, unsigned n,
                       CUdeviceptr out, CUdeviceptr out2, uint64_t count, CUstream stream);
/* to[i] is from[i] times this rank's scalar. */
CUresult reduce_scale(const struct reduce_op *op, CUdeviceptr from, CUdeviceptr to, uint64_t count,
                      CUstream stream);
