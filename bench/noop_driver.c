/* noop_driver.c: a libcuda.so.1 whose entry points all return at once, so that a benchmark measures
 * the way to them. Calls that need an answer are in noop_answers.c, which overrides the weak
 * definitions here. */
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args)      \
        __attribute__((visibility("default"), weak)) CUresult symbol params; \
        CUresult symbol params                                               \
        {                                                                    \
                return CUDA_SUCCESS;                                         \
        }
#include "cuda/cuda_api.def"
