/* real_nccl.h: the real NCCL, for communicators whose ranks have cards of their own. It works like
 * real_functions.h. */
#pragma once

#include <stdbool.h>

#include "ranks/real/nccl_abi.h"

struct real_nccl {
#define NCCL(name, params, args, behaviour) ncclResult_t(*name) params;
#include "ranks/real/nccl_api.def"
        const char *(*ncclGetLastError)(ncclComm_t comm);
};

/* Missing functions return ncclInvalidUsage. */
const struct real_nccl *real_nccl(void);
bool real_nccl_is_there(void);
