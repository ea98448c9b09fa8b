/* noop_driver.c: a libcuda.so.1 whose every entry point returns at once, so that what is measured
 * is the cost of getting there. What must answer something is in noop_answers.c; it wins over the
 * weak definitions here. */
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args)      \
        __attribute__((visibility("default"), weak)) CUresult symbol params; \
        CUresult symbol params                                               \
        {                                                                    \
                return CUDA_SUCCESS;                                         \
        }
#include "cuda/cuda_api.def"
