/* stream_api.c: the calls that make, destroy, query and wait for streams, and host functions. */
#include "sim/memory/pool.h"
#include "sim/queue/capture.h"
#include "sim/queue/stream.h"

EXPORT CUresult cuStreamCreateWithPriority(CUstream *ret_stream, unsigned int flags, int priority)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = stream_new(c, flags, priority, ret_stream);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuStreamCreate(CUstream *ret_stream, unsigned int flags)
{
        return cuStreamCreateWithPriority(ret_stream, flags, 0);
}

/* Waits while the context's channels are off the card, as the driver did on an H200. */
EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
        struct channels_of channels = {0};
        CUcontext c = NULL;
        CUresult r = api_enter(__func__, context_current() ? API_CONTEXT : API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
                return CUDA_ERROR_INVALID_HANDLE;
        pthread_mutex_lock(&sim.lock);
        r = stream_check(stream);
        if (r == CUDA_SUCCESS) {
                c = stream->context;
                channels = c->queues.channels;
        }
        pthread_mutex_unlock(&sim.lock);
        if (r != CUDA_SUCCESS)
                return r;
        channels_await(&channels, c->error);
        pthread_mutex_lock(&sim.lock);
        r = stream_check(stream);
        if (r == CUDA_SUCCESS)
                stream_destroy(stream);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
        return cuStreamDestroy_v2(stream);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
        struct point all;
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_sync(stream);
        if (r == CUDA_SUCCESS)
                r = capture_unsafe_locked();
        all = (struct point){stream, stream->submitted};
        if (r == CUDA_SUCCESS)
                r = point_wait(stream->context, all);
        pthread_mutex_unlock(&sim.lock);
        frees_synced(c, &all);
        return r;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_sync(stream);
        if (r == CUDA_SUCCESS)
                r = capture_unsafe_locked();
        if (r == CUDA_SUCCESS)
                r = (CUresult)atomic_load(stream->context->error);
        if (r == CUDA_SUCCESS && stream->done < stream->submitted)
                r = CUDA_ERROR_NOT_READY;
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!priority)
                return CUDA_ERROR_INVALID_VALUE;
        *priority = stream->priority;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!flags)
                return CUDA_ERROR_INVALID_VALUE;
        *flags = stream->flags;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long *stream_id)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!stream_id)
                return CUDA_ERROR_INVALID_VALUE;
        *stream_id = stream->id;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *ret_ctx)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ctx)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_ctx = stream->context;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ret_ctx, CUgreenCtx *ret_green)
{
        CUresult r = cuStreamGetCtx(stream, ret_ctx);

        if (r == CUDA_SUCCESS && ret_green)
                *ret_green = context_as_green(*ret_ctx);
        if (r == CUDA_SUCCESS)
                *ret_ctx = context_owner(*ret_ctx);
        return r;
}

EXPORT CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *ret_green)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_green)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_green = context_as_green(stream->context);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!device)
                return CUDA_ERROR_INVALID_VALUE;
        *device = (CUdevice)stream->context->device;
        return CUDA_SUCCESS;
}

/* ---- host functions and values in memory ---- */

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user_data)
{
        struct work w = {.kind = WORK_HOST, .host = {fn, user_data}};
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        return fn ? stream_submit(stream, &w, NULL, 0) : CUDA_ERROR_INVALID_VALUE;
}

/* sync_mode tells the driver's thread how to wait, which makes no difference in the simulator. */
EXPORT CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn fn, void *user_data,
                                    unsigned int sync_mode)
{
        return sync_mode <= 1 ? cuLaunchHostFunc(stream, fn, user_data) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user_data,
                                    unsigned int flags)
{
        struct work w = {.kind = WORK_CALLBACK, .callback = {callback, stream, user_data}};
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!callback || flags)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        if (stream->capture) /* a callback cannot be a node of a graph */
                r = capture_refuses_sync(stream);
        pthread_mutex_unlock(&sim.lock);
        return r != CUDA_SUCCESS ? r : stream_submit(stream, &w, NULL, 0);
}
