/* nccl_abi.h: NCCL's types, as its public header has had them since release 2.18
 * (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

/* A program's handle of a communicator, of ours or of the real NCCL. */
typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow *ncclWindow_t;
typedef struct ncclConfig ncclConfig_t; /* only passed on */
typedef struct ncclSimInfo ncclSimInfo_t;
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
        char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_ABORT  1

typedef enum {
        ncclSuccess,
        ncclUnhandledCudaError,
        ncclSystemError,
        ncclInternalError,
        ncclInvalidArgument,
        ncclInvalidUsage,
        ncclRemoteError,
        ncclInProgress,
        ncclTimeout,
        ncclNumResults
} ncclResult_t;

typedef enum {
        ncclInt8,
        ncclUint8,
        ncclInt32,
        ncclUint32,
        ncclInt64,
        ncclUint64,
        ncclFloat16,
        ncclFloat32,
        ncclFloat64,
        ncclBfloat16,
        ncclFloat8e4m3,
        ncclFloat8e5m2,
        ncclNumTypes
} ncclDataType_t;

/* Values from ncclNumOps on name the operations that ncclRedOpCreatePreMulSum() has made. */
typedef enum {
        ncclSum,
        ncclProd,
        ncclMax,
        ncclMin,
        ncclAvg,
        ncclNumOps,
        ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;
