/* green.c: green contexts, which have streams of their own and a share of the card's processors.
 * The share is only stored and reported: the interpreter cannot divide processors, so each green
 * context runs on all of them. As in the driver, a CUgreenCtx is a pointer to a context's
 * object. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/stream/event.h"
#include "sim/api/context.h"
#include "sim/call/objects.h"

#define PARTITION 8u /* processors come in multiples of this number, as on an H200 */

/* There is one description for each number of processors. None is ever freed, so the program may
 * keep them. */
struct CUdevResourceDesc_st {
        unsigned processors;
};

static struct CUdevResourceDesc_st descs[DEVICE_PROCESSORS + 1];

static CUdevResource resource_of(unsigned processors)
{
        CUdevResource r = {.type = CU_DEV_RESOURCE_TYPE_SM};

        r.sm.smCount = processors;
        r.sm.minSmPartitionSize = r.sm.smCoscheduledAlignment = PARTITION;
        return r;
}

/* A resource that has been split off cannot be split again. */
static CUdevResource resource_part(unsigned processors)
{
        CUdevResource r = {.type = CU_DEV_RESOURCE_TYPE_SM};

        r.sm.smCount = processors;
        return r;
}

static CUresult resource_tell(unsigned processors, CUdevResource *ret_resource,
                              CUdevResourceType type)
{
        if (!ret_resource)
                return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_DEV_RESOURCE_TYPE_SM)
                return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        *ret_resource = resource_of(processors);
        return CUDA_SUCCESS;
}

static CUresult resource_check(const CUdevResource *r)
{
        if (!r)
                return CUDA_ERROR_INVALID_VALUE;
        if (r->type != CU_DEV_RESOURCE_TYPE_SM)
                return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        return r->sm.smCount > 0 && r->sm.smCount <= DEVICE_PROCESSORS
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

/* Begins a call with a green context. Sets *ret_context even if the context is dead. */
static CUresult green_enter(const char *function, CUgreenCtx ctx, CUcontext *ret_context)
{
        CUcontext c = (CUcontext)(void *)ctx;
        CUresult r = api_enter(function, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!c || c->magic != MAGIC_CONTEXT || !c->green_of)
                return CUDA_ERROR_INVALID_CONTEXT;
        *ret_context = c;
        return c->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* ---- processors ---- */

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *ret_resource,
                                       CUdevResourceType type)
{
        CUresult r = device_enter(__func__, device);

        return r != CUDA_SUCCESS ? r : resource_tell(DEVICE_PROCESSORS, ret_resource, type);
}

EXPORT CUresult cuCtxGetDevResource(CUcontext ctx, CUdevResource *ret_resource,
                                    CUdevResourceType type)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r == CUDA_SUCCESS)
                r = ctx ? context_check(ctx, &ctx) : CUDA_ERROR_INVALID_CONTEXT;
        if (r != CUDA_SUCCESS)
                return r;
        return resource_tell(ctx->green_of ? ctx->processors : DEVICE_PROCESSORS, ret_resource,
                             type);
}

EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx ctx, CUdevResource *ret_resource,
                                         CUdevResourceType type)
{
        CUcontext c;
        CUresult r = green_enter(__func__, ctx, &c);

        return r != CUDA_SUCCESS ? r : resource_tell(c->processors, ret_resource, type);
}

EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups,
                                            const CUdevResource *input, CUdevResource *remaining,
                                            unsigned int flags, unsigned int least)
{
        unsigned size = (unsigned)align_up(MAX(least, PARTITION), PARTITION), n, left;
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r == CUDA_SUCCESS)
                r = groups ? resource_check(input) : CUDA_ERROR_INVALID_VALUE;
        if (r != CUDA_SUCCESS)
                return r;
        if (result && !*groups)
                return CUDA_ERROR_INVALID_VALUE;
        if (least > input->sm.smCount || !input->sm.smCoscheduledAlignment)
                return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        size = MIN(size, input->sm.smCount);
        n = input->sm.smCount / size;
        if (result)
                n = MIN(n, *groups);
        left = input->sm.smCount - n * size;
        for (unsigned i = 0; result && i < n; i++)
                result[i] = resource_part(size);
        if (remaining)
                *remaining = left ? resource_of(left) : (CUdevResource){0};
        *groups = n;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *ret_desc, CUdevResource *resources,
                                          unsigned int count)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        unsigned all = 0;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_desc || !resources || !count)
                return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < count; i++) {
                r = resource_check(&resources[i]);
                if (r != CUDA_SUCCESS)
                        return r;
                all += resources[i].sm.smCount;
        }
        if (all > DEVICE_PROCESSORS)
                return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        pthread_mutex_lock(&sim.lock);
        descs[all].processors = all;
        pthread_mutex_unlock(&sim.lock);
        *ret_desc = &descs[all];
        return CUDA_SUCCESS;
}

/* ---- contexts ---- */

/* As with the driver, a NULL description stands for all processors. */
EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *ret_ctx, CUdevResourceDesc desc, CUdevice device,
                                 unsigned int flags)
{
        CUcontext c;
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ctx || flags != CU_GREEN_CTX_DEFAULT_STREAM ||
            (desc && (desc < descs || desc > &descs[DEVICE_PROCESSORS])))
                return CUDA_ERROR_INVALID_VALUE;
        r = context_green(device, desc ? desc->processors : DEVICE_PROCESSORS, &c);
        if (r == CUDA_SUCCESS)
                *ret_ctx = context_as_green(c);
        return r;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx ctx)
{
        CUcontext c;
        CUresult r = green_enter(__func__, ctx, &c);

        return r != CUDA_SUCCESS ? r : context_ungreen(c);
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *ret_context, CUgreenCtx ctx)
{
        CUcontext c;
        CUresult r = green_enter(__func__, ctx, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_context)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_context = c;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxGetId(CUgreenCtx ctx, unsigned long long *ret_id)
{
        CUcontext c;
        CUresult r = green_enter(__func__, ctx, &c);

        return r != CUDA_SUCCESS ? r : cuCtxGetId(c, ret_id);
}

/* ---- work ---- */

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *ret_stream, CUgreenCtx ctx, unsigned int flags,
                                       int priority)
{
        CUcontext c, popped;
        CUresult r = green_enter(__func__, ctx, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (flags != CU_STREAM_NON_BLOCKING)
                return CUDA_ERROR_INVALID_VALUE;
        r = cuCtxPushCurrent_v2(c);
        if (r != CUDA_SUCCESS)
                return r;
        r = cuStreamCreateWithPriority(ret_stream, flags, priority);
        (void)cuCtxPopCurrent_v2(&popped);
        return r;
}

EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx ctx, CUevent event)
{
        CUcontext c;
        CUresult r = green_enter(__func__, ctx, &c);

        return r != CUDA_SUCCESS ? r : context_record(c, event);
}

EXPORT CUresult cuGreenCtxWaitEvent(CUgreenCtx ctx, CUevent event)
{
        CUcontext c;
        CUresult r = green_enter(__func__, ctx, &c);

        return r != CUDA_SUCCESS ? r : context_await(c, event);
}
