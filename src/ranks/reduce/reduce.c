/* reduce.c: owns the launches of the kernels that reduce. */
#include "ranks/reduce/reduce.h"

#include "base/macros.h"
#include "ranks/kernel/kernel.h"
#include "ranks/real/real_functions.h"

#define BLOCKS_PER_SM 4u

unsigned reduce_bytes(ncclDataType_t type)
{
        return (unsigned)type < REDUCE_TYPES ? reduce_size[type] : 0;
}

/* Finds the kernel of a type in the current context, and loads it if need be. */
static CUresult find(ncclDataType_t type, struct kernel *ret)
{
        return reduce_bytes(type) ? kernel_find(reduce_ptx[type], REDUCE_KERNEL, ret)
                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult reduce_prepare(ncclDataType_t type)
{
        struct kernel k;

        return find(type, &k);
}

static CUresult launch(ncclDataType_t type, struct reduce_arguments *a, CUstream stream)
{
        const uint64_t most = (a->count + REDUCE_THREADS_MAX - 1) / REDUCE_THREADS_MAX;
        void *arguments[] = {&a->sources, &a->n,      &a->operation, &a->out,    &a->out2,
                             &a->count,   &a->divide, &a->scales,    &a->scalar, &a->bits};
        struct kernel k;
        CUresult e = find(type, &k);

        if (e != CUDA_SUCCESS || a->count == 0)
                return e;
        return real_cuda()->cuLaunchKernel(
                k.function, (unsigned)MIN(most, (uint64_t)k.multiprocessors * BLOCKS_PER_SM), 1, 1,
                REDUCE_THREADS_MAX, 1, 1, 0, stream, arguments, NULL);
}

CUresult reduce_launch(const struct reduce_op *op, const CUdeviceptr *sources, unsigned n,
                       CUdeviceptr out, CUdeviceptr out2, uint64_t count, CUstream stream)
{
        struct reduce_arguments a = {.n = n,
                                     .operation = op->kind,
                                     .out = out,
                                     .out2 = out2,
                                     .count = count,
                                     .divide = op->divide};

        for (unsigned i = 0; i < n; i++)
                a.sources.from[i] = sources[i];
        return launch(op->type, &a, stream);
}

CUresult reduce_scale(const struct reduce_op *op, CUdeviceptr from, CUdeviceptr to, uint64_t count,
                      CUstream stream)
{
        struct reduce_arguments a = {.sources.from = {from},
                                     .n = 1,
                                     .out = to,
                                     .count = count,
                                     .scales = true,
                                     .scalar = op->scalar,
                                     .bits = op->bits};

        return launch(op->type, &a, stream);
}
