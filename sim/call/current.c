/* current.c: the current context of each thread, and lookups of contexts. */
#include "sim/call/objects.h"
#include "sim/mps/client.h"

#define STACK_MAX 32

static __thread CUcontext stack[STACK_MAX];
static __thread unsigned stack_depth;

CUcontext context_current(void)
{
        return stack_depth ? stack[stack_depth - 1] : NULL;
}

CUresult context_check(CUcontext handle, CUcontext *ret_context)
{
        CUcontext c = handle ? handle : context_current();

        if (!c || c->magic != MAGIC_CONTEXT)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (!c->alive)
                return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        *ret_context = c;
        return CUDA_SUCCESS;
}

void context_fail(CUcontext c, CUresult error)
{
        int none = CUDA_SUCCESS;

        if (atomic_compare_exchange_strong(c->error, &none, (int)error) &&
            error == CUDA_ERROR_ILLEGAL_ADDRESS)
                mps_tell_fault();
        channels_wake();
}

CUcontext context_owner(CUcontext c)
{
        return c->green_of ? c->green_of : c;
}

bool context_stopped(CUcontext c)
{
        if (channel_stops())
                channel_stand();
        return context_cancelled(c);
}

bool context_push(CUcontext c)
{
        if (stack_depth == STACK_MAX)
                return false;
        stack[stack_depth++] = c;
        return true;
}

void context_pop(void)
{
        stack_depth--;
}

/* ---- entry points ---- */

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ctx)
                return CUDA_ERROR_INVALID_CONTEXT;
        r = context_check(ctx, &ctx);
        if (r != CUDA_SUCCESS)
                return r;
        if (stack_depth == STACK_MAX)
                return CUDA_ERROR_INVALID_VALUE;
        stack[stack_depth++] = ctx;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *ret_ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (stack_depth == 0)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (ret_ctx)
                *ret_ctx = context_current();
        stack_depth--;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext ctx)
{
        return cuCtxPushCurrent_v2(ctx);
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *ret_ctx)
{
        return cuCtxPopCurrent_v2(ret_ctx);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ctx) {
                if (stack_depth)
                        stack_depth--;
                return CUDA_SUCCESS;
        }
        r = context_check(ctx, &ctx);
        if (r != CUDA_SUCCESS)
                return r;
        if (!stack_depth)
                stack_depth = 1;
        stack[stack_depth - 1] = ctx;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *ret_ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ctx)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_ctx = context_current();
        return CUDA_SUCCESS;
}
