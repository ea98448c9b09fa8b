/* reduce.c: owns the kernels that are loaded: for each context, those of the types in use. */
#include "ranks/reduce/reduce.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "ranks/real/real_functions.h"

#define BLOCKS_PER_SM 4u

/* The kernels of one context. A context's modules end with it, so none is unloaded. */
struct loaded {
        struct loaded *next;
        CUcontext context;
        unsigned long long id; /* 0: unknown, as with drivers before CUDA 12 */
        unsigned blocks;
        CUmodule modules[REDUCE_TYPES];
        CUfunction kernels[REDUCE_TYPES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded *contexts;

unsigned reduce_bytes(ncclDataType_t type)
{
        return (unsigned)type < REDUCE_TYPES ? reduce_size[type] : 0;
}

static CUresult find_context(struct loaded **ret)
{
        CUcontext context = NULL;
        unsigned long long id = 0;
        CUdevice device;
        int sms = 1;
        CUresult e = real_cuda()->cuCtxGetCurrent(&context);
        struct loaded *l;

        if (e == CUDA_SUCCESS && real_cuda()->cuCtxGetId(context, &id) != CUDA_SUCCESS)
                id = 0;
        for (l = contexts; l && l->context != context; l = l->next)
                continue;
        *ret = l;
        /* A new context may get the handle of one that has ended, but not its id. */
        if (e != CUDA_SUCCESS || (l && l->id == id))
                return e;
        e = real_cuda()->cuCtxGetDevice(&device);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuDeviceGetAttribute(
                        &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
        if (e != CUDA_SUCCESS)
                return e;
        if (!l) {
                l = calloc(1, sizeof(*l));
                if (!l)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                l->next = contexts;
                contexts = l;
        }
        *l = (struct loaded){.next = l->next,
                             .context = context,
                             .id = id,
                             .blocks = (unsigned)sms * BLOCKS_PER_SM};
        *ret = l;
        return CUDA_SUCCESS;
}

/* Loading is not work of a stream, so it may happen while one is captured. */
static CUresult load(struct loaded *l, ncclDataType_t type)
{
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        CUmodule module;
        CUresult e = real_cuda()->cuThreadExchangeStreamCaptureMode(&mode);

        if (e != CUDA_SUCCESS)
                return e;
        e = real_cuda()->cuModuleLoadData(&module, reduce_ptx[type]);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuModuleGetFunction(&l->kernels[type], module, REDUCE_KERNEL);
        (void)real_cuda()->cuThreadExchangeStreamCaptureMode(&mode);
        if (e == CUDA_SUCCESS)
                l->modules[type] = module;
        return e;
}

/* Finds the kernel of a type in the current context, and loads it if need be. */
static CUresult find(ncclDataType_t type, struct loaded **ret)
{
        struct loaded *l = NULL;
        CUresult e;

        if (!reduce_bytes(type))
                return CUDA_ERROR_INVALID_VALUE;
        (void)pthread_mutex_lock(&lock);
        e = find_context(&l);
        if (e == CUDA_SUCCESS && !l->modules[type])
                e = load(l, type);
        (void)pthread_mutex_unlock(&lock);
        *ret = l;
        return e;
}

CUresult reduce_prepare(ncclDataType_t type)
{
        struct loaded *l;

        return find(type, &l);
}

static CUresult launch(ncclDataType_t type, struct reduce_arguments *a, CUstream stream)
{
        const uint64_t most = (a->count + REDUCE_THREADS_MAX - 1) / REDUCE_THREADS_MAX;
        void *arguments[] = {&a->sources, &a->n,      &a->operation, &a->out,    &a->out2,
                             &a->count,   &a->divide, &a->scales,    &a->scalar, &a->bits};
        struct loaded *l;
        CUresult e = find(type, &l);

        if (e != CUDA_SUCCESS || a->count == 0)
                return e;
        return real_cuda()->cuLaunchKernel(l->kernels[type],
                                           (unsigned)MIN(most, (uint64_t)l->blocks), 1, 1,
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
