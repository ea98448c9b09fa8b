/* cuda.c: owns the table of the driver's functions. */
#include "base/macros.h"
#include "ranks/real/real_functions.h"
#include "ranks/real/lookup.h"

static CUresult missing(void);

#define CU(base, symbol, since, flags, behaviour, detail, params, args) \
        static CUresult missing_##symbol params                         \
        {                                                               \
                return missing();                                       \
        }
#include "cuda/cuda_api.def"

static struct real_cuda cuda = {
#define CU(base, symbol, since, flags, behaviour, detail, params, args) .symbol = missing_##symbol,
#include "cuda/cuda_api.def"
};

static const char *const names[] = {
#define CU(base, symbol, since, flags, behaviour, detail, params, args) #symbol,
#include "cuda/cuda_api.def"
};

_Static_assert(sizeof(cuda) == sizeof(names), "one function for each name");

static CUresult missing(void)
{
        return cuda.cuInit == missing_cuInit ? CUDA_ERROR_NOT_INITIALIZED
                                             : CUDA_ERROR_NOT_SUPPORTED;
}

const struct real_cuda *real_cuda(void)
{
        static struct real_table table = {
                .soname = "libcuda.so.1",
                .n = ARRAY_SIZE(names),
                .names = names,
                .functions = (void **)&cuda,
        };

        real_table_open(&table);
        return &cuda;
}
