/* noop_driver.c: a libcuda.so.1 whose entry points all return at once, so that a benchmark measures
 * only the code that runs before them. noop_answers.c defines the calls that must return something;
 * its definitions override the weak ones here. */
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args)      \
        __attribute__((visibility("default"), weak)) CUresult symbol params; \
        CUresult symbol params                                               \
        {                                                                    \
                return CUDA_SUCCESS;                                         \
        }
#include "cuda/cuda_api.def"
