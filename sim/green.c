/* green.c: green contexts: streams of their own on all processors of the card, for the interpreter
 * has no parts of it to give. Their memory is the primary context's, which each of them holds. */
#include <stdlib.h>

#include "objects.h"

#define PROCESSORS 8u /* one partition, never split */

struct CUgreenCtx_st {
        CUcontext context;
        CUdevice device;
};

/* All descriptions are of the same resource. */
struct CUdevResourceDesc_st {
        CUdevResource resource;
};

static struct CUdevResourceDesc_st all;

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *ret_resource,
                                       CUdevResourceType type)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_resource || type != CU_DEV_RESOURCE_TYPE_SM)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_resource = (CUdevResource){.type = type};
        ret_resource->sm.smCount = ret_resource->sm.minSmPartitionSize = PROCESSORS;
        ret_resource->sm.smCoscheduledAlignment = PROCESSORS;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *ret_desc, CUdevResource *resources,
                                          unsigned int count)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_desc || !resources || count != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_desc = &all;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *ret_ctx, CUdevResourceDesc desc, CUdevice device,
                                 unsigned int flags)
{
        CUcontext primary;
        CUgreenCtx green;
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ctx || desc != &all || flags != CU_GREEN_CTX_DEFAULT_STREAM)
                return CUDA_ERROR_INVALID_VALUE;
        green = calloc(1, sizeof(*green));
        if (!green)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = cuDevicePrimaryCtxRetain(&primary, device);
        if (r == CUDA_SUCCESS) {
                r = context_green(primary, &green->context);
                if (r != CUDA_SUCCESS)
                        (void)cuDevicePrimaryCtxRelease_v2(device);
        }
        if (r != CUDA_SUCCESS) {
                free(green);
                return r;
        }
        green->device = device;
        *ret_ctx = green;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ctx)
                return CUDA_ERROR_INVALID_CONTEXT;
        context_ungreen(ctx->context);
        r = cuDevicePrimaryCtxRelease_v2(ctx->device);
        free(ctx);
        return r;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *ret_context, CUgreenCtx ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_context || !ctx)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_context = ctx->context;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *ret_stream, CUgreenCtx green, unsigned int flags,
                                       int priority)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        CUcontext popped;

        if (r != CUDA_SUCCESS)
                return r;
        if (!green || flags != CU_STREAM_NON_BLOCKING)
                return CUDA_ERROR_INVALID_VALUE;
        r = cuCtxPushCurrent_v2(green->context);
        if (r != CUDA_SUCCESS)
                return r;
        r = cuStreamCreateWithPriority(ret_stream, flags, priority);
        (void)cuCtxPopCurrent_v2(&popped);
        return r;
}
