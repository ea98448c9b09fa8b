/* driver_stub.c: defines every symbol of the driver, so that programs can be linked. Each function
 * prints that the stub was loaded instead of a driver. */
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        __attribute__((visibility("default"))) CUresult symbol params;  \
        CUresult symbol params                                          \
        {                                                               \
                return CUDA_ERROR_STUB_LIBRARY;                         \
        }
#include "cuda/cuda_api.def"
