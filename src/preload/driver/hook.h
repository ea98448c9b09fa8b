/* hook.h: declares hook_<symbol>() for each CUSTOM row of cuda_api.def. These functions are written
 * by hand, each in its module. hooks.h explains the other behaviours. */
#pragma once

#include "cuda/cuda_abi.h"

#define CU_PASS(...)
#define CU_SUBMIT(...)
#define CU_UNIFIED(...)
#define CU_RETRY(...)
#define CU_CUSTOM(symbol, params) CUresult hook_##symbol params;
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        CU_##behaviour(symbol, params)
#include "cuda/cuda_api.def"
