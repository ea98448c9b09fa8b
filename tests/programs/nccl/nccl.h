/* nccl.h: NCCL's binary interface as the checks see it, and the table of its functions.
 *
 * The checks judge src/ranks, so they do not use its declarations. Numbers and layouts are those of
 * NCCL 2.28. Enumerations that a check passes wrong values for are plain int here. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/cuda_abi.h"

typedef struct ncclComm *ncclComm_t;
typedef struct {
        char internal[128];
} ncclUniqueId;

typedef enum {
        ncclSuccess = 0,
        ncclUnhandledCudaError = 1,
        ncclSystemError = 2,
        ncclInternalError = 3,
        ncclInvalidArgument = 4,
        ncclInvalidUsage = 5,
        ncclRemoteError = 6,
        ncclInProgress = 7,
        ncclNumResults = 8,
} ncclResult_t;

enum {
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
        ncclNumTypes,
};

enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps };
enum { ncclScalarDevice, ncclScalarHostImmediate };

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR    (-1)
#define NCCL_SHRINK_DEFAULT   0
#define NCCL_SHRINK_ABORT     1

typedef struct {
        size_t size;
        unsigned int magic, version;
        int blocking, cgaClusterSize, minCTAs, maxCTAs;
        const char *netName;
        int splitShare, trafficClass;
        const char *commName;
        int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer,
                nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                             \
        {                                                                                   \
                .size = sizeof(ncclConfig_t), .magic = 0xcafebeef, .version = 22809,        \
                .blocking = NCCL_CONFIG_UNDEF_INT, .cgaClusterSize = NCCL_CONFIG_UNDEF_INT, \
                .minCTAs = NCCL_CONFIG_UNDEF_INT, .maxCTAs = NCCL_CONFIG_UNDEF_INT,         \
                .splitShare = NCCL_CONFIG_UNDEF_INT, .trafficClass = NCCL_CONFIG_UNDEF_INT, \
                .collnetEnable = NCCL_CONFIG_UNDEF_INT, .CTAPolicy = NCCL_CONFIG_UNDEF_INT, \
                .shrinkShare = NCCL_CONFIG_UNDEF_INT, .nvlsCTAs = NCCL_CONFIG_UNDEF_INT,    \
                .nChannelsPerNetPeer = NCCL_CONFIG_UNDEF_INT,                               \
                .nvlinkCentricSched = NCCL_CONFIG_UNDEF_INT,                                \
        }

struct nccl {
#define N(result, member, needed, params) result(*member) params;
#include "nccl.def"
};

extern struct nccl nccl; /* members that are not needed may be NULL */

/* Fills the table from libnccl.so.2, or from the libraries that are loaded already. Ends the
 * program if a needed function is missing. */
void nccl_open(void);
