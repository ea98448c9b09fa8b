/* noop_driver.c: a libcuda.so.1 whose entry points all return at once, so that a benchmark measures
 * only the code before them. noop_answers.c has the calls that must return something, and overrides
 * the weak definitions here. */
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args)      \
        __attribute__((visibility("default"), weak)) CUresult symbol params; \
        CUresult symbol params                                               \
        {                                                                    \
                return CUDA_SUCCESS;                                         \
        }
#include "cuda/cuda_api.def"
