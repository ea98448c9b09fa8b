/* cuda.c: owns the table of the driver's functions. */
#include "ranks/real/real_functions.h"

static CUresult missing(void);

#define TABLE   real_cuda
#define LIST    "cuda/cuda_api.def"
#define LIBRARY soname = "libcuda.so.1"
#include "ranks/real/real_table.h"

static CUresult missing(void)
{
        return functions.cuInit == missing_cuInit ? CUDA_ERROR_NOT_INITIALIZED
                                                  : CUDA_ERROR_NOT_SUPPORTED;
}
