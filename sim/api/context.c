/* context.c: primary and other contexts. A context's object is never freed, so a stale handle leads
 * to a dead context, not to other memory. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/api/context.h"
#include "sim/memory/array.h"
#include "sim/queue/capture.h"
#include "sim/session/fault.h"
#include "sim/space/managed.h"
#include "sim/memory/memory.h"
#include "sim/kernel/module.h"
#include "sim/call/objects.h"
#include "sim/memory/pool.h"
#include "sim/queue/stream.h"
#include "sim/space/trace.h"

#define API_VERSION 3020

static struct CUctx_st primary[SESSION_DEVICES];
/* As with the driver, a failed context makes its device unusable for the process, with all of its
 * contexts. */
static _Atomic int device_error[SESSION_DEVICES];
static uint64_t last_id;
static CUcontext all; /* every context that ever was */

void contexts_fail(CUresult error)
{
        for (unsigned d = 0; d < SESSION_DEVICES; d++) {
                int none = CUDA_SUCCESS;

                (void)atomic_compare_exchange_strong(&device_error[d], &none, (int)error);
        }
        channels_wake();
}

/* Needs sim.lock. On success the queues belong to the context. */
static CUresult context_open(CUcontext c, unsigned device, unsigned flags, const struct queues *q)
{
        uint64_t bytes = c->green_of ? 0 : session_device(sim.session, device)->context_bytes;
        CUresult r = (CUresult)atomic_load(&device_error[device]);

        if (r != CUDA_SUCCESS)
                return r;
        if (managed_charge(device, bytes) < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        c->magic = MAGIC_CONTEXT;
        c->device = device;
        c->flags = flags;
        c->api_version = API_VERSION;
        c->charged = bytes;
        c->limit[CU_LIMIT_STACK_SIZE] = 1024;
        c->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 * MIB;
        c->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB;
        c->limit[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
        c->error = &device_error[device];
        c->alive = true;
        r = stream_new(c, 0, 0, &c->legacy);
        if (r != CUDA_SUCCESS) {
                c->alive = false;
                session_uncharge(sim.session, device, bytes);
                return r;
        }
        if (!c->id) {
                c->next_of_all = all;
                all = c;
        }
        c->id = ++last_id;
        c->legacy->legacy = true;
        c->queues = *q;
        atomic_fetch_add(&session_own(sim.session, device)->contexts, 1);
        trace_card(device);
        return CUDA_SUCCESS;
}

/* Needs sim.lock, and releases it while the context's work ends and its channels are freed. */
static void context_close(CUcontext c, bool although_retained)
{
        const struct channels_of channels = c->queues.channels;
        struct queues q;

        pthread_mutex_unlock(&sim.lock);
        (void)context_wait(c);
        channels_await(&channels, c->error);
        pthread_mutex_lock(&sim.lock);
        if (!c->alive || (c->retained && !although_retained))
                return; /* another thread has closed or retained the context */
        c->alive = false;
        stream_destroy_all(c);
        module_unload_all(c);
        texture_forget_context(c);
        array_forget_context(c);
        memory_release_context(c);
        atomic_fetch_sub(&session_own(sim.session, c->device)->contexts, 1);
        session_uncharge(sim.session, c->device, c->charged);
        trace_card(c->device);
        c->charged = 0;
        c->legacy = c->gather = c->hold = NULL;
        q = c->queues;
        c->queues = (struct queues){0};
        pthread_mutex_unlock(&sim.lock);
        queues_free(&q);
        pthread_mutex_lock(&sim.lock);
}

/* ---- checkpoints ---- */

bool contexts_idle(void)
{
        bool idle = true;

        pthread_mutex_lock(&sim.lock);
        for (CUcontext c = all; c; c = c->next_of_all)
                for (CUstream s = c->alive ? c->streams : NULL; s; s = s->next_of_context)
                        idle &= s->submitted == s->done;
        pthread_mutex_unlock(&sim.lock);
        return idle;
}

/* Returns a context that is alive, with channels or without; NULL: there is none. */
static CUcontext find(bool with_channels)
{
        for (CUcontext c = all; c; c = c->next_of_all)
                if (c->alive && (c->queues.groups > 0) == with_channels)
                        return c;
        return NULL;
}

void contexts_leave_card(void)
{
        CUcontext c;

        pthread_mutex_lock(&sim.lock);
        while ((c = find(true))) {
                struct queues q = c->queues;

                c->queues = (struct queues){0};
                pthread_mutex_unlock(&sim.lock);
                queues_free(&q);
                pthread_mutex_lock(&sim.lock);
        }
        pthread_mutex_unlock(&sim.lock);
}

CUresult contexts_return(void)
{
        CUresult r = CUDA_SUCCESS;
        CUcontext c;

        pthread_mutex_lock(&sim.lock);
        while (r == CUDA_SUCCESS && (c = find(false))) {
                struct queues q;

                pthread_mutex_unlock(&sim.lock);
                r = queues_new(c->device, c->green_of, &q);
                pthread_mutex_lock(&sim.lock);
                if (r == CUDA_SUCCESS)
                        c->queues = q;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* ---- green contexts ---- */

static CUresult green_open(CUcontext c)
{
        CUcontext of = c->green_of;
        struct queues q;
        CUresult r = queues_new(of->device, true, &q);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = context_open(c, of->device, of->flags | CU_CTX_MAP_HOST, &q);
        if (r == CUDA_SUCCESS) {
                c->next_green = of->greens;
                of->greens = c;
        }
        pthread_mutex_unlock(&sim.lock);
        if (r != CUDA_SUCCESS)
                queues_free(&q);
        return r;
}

CUresult context_green(CUdevice device, unsigned processors, CUcontext *ret_context)
{
        CUcontext of, c = calloc(1, sizeof(*c));
        CUresult r = c ? cuDevicePrimaryCtxRetain(&of, device) : CUDA_ERROR_OUT_OF_MEMORY;

        if (r != CUDA_SUCCESS) {
                free(c);
                return r;
        }
        c->green_of = of;
        c->processors = processors;
        r = green_open(c);
        if (r == CUDA_SUCCESS) {
                *ret_context = c;
        } else {
                (void)cuDevicePrimaryCtxRelease_v2(device);
                free(c);
        }
        return r;
}

CUresult context_ungreen(CUcontext c)
{
        CUcontext of = c->green_of, *link = &of->greens;
        CUresult r = CUDA_SUCCESS;

        pthread_mutex_lock(&sim.lock);
        if (c->alive)
                context_close(c, true);
        while (*link && *link != c)
                link = &(*link)->next_green;
        if (!*link) {
                r = CUDA_ERROR_CONTEXT_IS_DESTROYED; /* another thread may have destroyed c */
        } else {
                *link = c->next_green;
                /* While green contexts exist, the driver refuses the last release of the primary
                 * context, but counts it. Then the primary context stays until the program retains
                 * and releases it again. */
                if (of->retained && --of->retained == 0 && !of->greens)
                        context_close(of, false);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* ---- primary contexts ---- */

/* Makes the primary context alive, or returns an error. One thread makes the channels, without
 * sim.lock. */
static CUresult primary_open(CUdevice device)
{
        static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
        CUcontext c = &primary[device];
        struct queues q;
        CUresult r;

        pthread_mutex_lock(&opening);
        r = (CUresult)atomic_load(&device_error[device]);
        if (!c->alive && r == CUDA_SUCCESS)
                r = queues_new((unsigned)device, false, &q);
        if (!c->alive && r == CUDA_SUCCESS) {
                pthread_mutex_lock(&sim.lock);
                r = context_open(c, (unsigned)device, c->flags, &q);
                pthread_mutex_unlock(&sim.lock);
                if (r != CUDA_SUCCESS)
                        queues_free(&q);
        }
        pthread_mutex_unlock(&opening);
        return r;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_ctx, CUdevice device)
{
        FAULT_AFTER(__func__);
        CUresult r = device_enter(__func__, device);
        CUcontext c;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ctx)
                return CUDA_ERROR_INVALID_VALUE;
        c = &primary[device];
        pthread_mutex_lock(&sim.lock);
        c->primary = true;
        while (!c->alive && r == CUDA_SUCCESS) {
                pthread_mutex_unlock(&sim.lock);
                r = primary_open(device);
                pthread_mutex_lock(&sim.lock);
        }
        if (r == CUDA_SUCCESS)
                r = (CUresult)atomic_load(c->error);
        if (r == CUDA_SUCCESS) {
                c->retained++;
                *ret_ctx = c;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        if (primary[device].retained == 0)
                r = CUDA_ERROR_INVALID_CONTEXT;
        else if (--primary[device].retained == 0 && primary[device].greens)
                r = CUDA_ERROR_NOT_PERMITTED;
        else if (primary[device].retained == 0 && primary[device].alive)
                context_close(&primary[device], false);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
        return cuDevicePrimaryCtxRelease_v2(device);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        if (primary[device].greens)
                r = CUDA_ERROR_NOT_PERMITTED;
        else if (primary[device].alive)
                context_close(&primary[device], true);
        /* Threads that retained the context still have to release it. The next retain makes their
         * handles valid again. */
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
        return cuDevicePrimaryCtxReset_v2(device);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        primary[device].flags = flags;
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
        return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!flags || !active)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        *flags = primary[device].flags;
        *active = primary[device].alive;
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

/* ---- the program's own contexts ---- */

static CUresult context_create(CUcontext *ret_ctx, unsigned flags, CUdevice device)
{
        CUresult r = device_check(device);
        struct queues q;
        CUcontext c;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ctx || !context_push(NULL))
                return CUDA_ERROR_INVALID_VALUE;
        context_pop();
        r = (CUresult)atomic_load(&device_error[device]);
        if (r == CUDA_SUCCESS)
                r = queues_new((unsigned)device, false, &q);
        if (r != CUDA_SUCCESS)
                return r;
        c = calloc(1, sizeof(*c));
        pthread_mutex_lock(&sim.lock);
        r = c ? context_open(c, (unsigned)device, flags, &q) : CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&sim.lock);
        if (r != CUDA_SUCCESS) {
                queues_free(&q);
                free(c);
                return r;
        }
        (void)context_push(c);
        *ret_ctx = c;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *ret_ctx, CUctxCreateParams *ctx_create_params,
                               unsigned int flags, CUdevice device)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (ctx_create_params &&
            (ctx_create_params->numExecAffinityParams || ctx_create_params->cigParams))
                return CUDA_ERROR_NOT_SUPPORTED;
        return context_create(ret_ctx, flags, device);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *ret_ctx, CUexecAffinityParam *params, int param_count,
                               unsigned int flags, CUdevice device)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        return param_count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                           : context_create(ret_ctx, flags, device);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *ret_ctx, unsigned int flags, CUdevice device)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        return r != CUDA_SUCCESS ? r : context_create(ret_ctx, flags, device);
}

EXPORT CUresult cuCtxCreate(CUcontext *ret_ctx, unsigned int flags, CUdevice device)
{
        return cuCtxCreate_v2(ret_ctx, flags, device);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
        static CUcontext gone; /* list of dead contexts, which keeps their objects reachable */
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ctx || ctx->magic != MAGIC_CONTEXT || ctx->primary || ctx->green_of)
                return CUDA_ERROR_INVALID_CONTEXT;
        pthread_mutex_lock(&sim.lock);
        if (ctx->alive) {
                context_close(ctx, true);
                ctx->next_gone = gone;
                gone = ctx;
        } else {
                r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        pthread_mutex_unlock(&sim.lock);
        if (context_current() == ctx)
                context_pop();
        return r;
}

EXPORT CUresult cuCtxDestroy(CUcontext ctx)
{
        return cuCtxDestroy_v2(ctx);
}

/* A call from before CUDA 4, which counts the users of a context that the program created. */
EXPORT CUresult cuCtxAttach(CUcontext *ret_ctx, unsigned int flags)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ctx || flags)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        c->attached++;
        pthread_mutex_unlock(&sim.lock);
        *ret_ctx = c;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDetach(CUcontext ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        bool last = false;

        if (r == CUDA_SUCCESS)
                r = context_check(ctx, &ctx);
        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        if (ctx->attached)
                ctx->attached--;
        else
                last = !ctx->primary;
        pthread_mutex_unlock(&sim.lock);
        return last ? cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}

/* ---- what a context is ---- */

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r == CUDA_SUCCESS)
                r = context_check(ctx, &ctx);
        if (r != CUDA_SUCCESS)
                return r;
        if (!device)
                return CUDA_ERROR_INVALID_VALUE;
        *device = (CUdevice)ctx->device;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
        return cuCtxGetDevice_v2(device, NULL);
}

EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!flags)
                return CUDA_ERROR_INVALID_VALUE;
        *flags = c->flags;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r == CUDA_SUCCESS)
                c->flags = flags;
        return r;
}

EXPORT CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctx_id)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r == CUDA_SUCCESS)
                r = context_check(ctx, &ctx);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ctx_id)
                return CUDA_ERROR_INVALID_VALUE;
        *ctx_id = ctx->id;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r == CUDA_SUCCESS)
                r = context_check(ctx, &ctx);
        if (r != CUDA_SUCCESS)
                return r;
        if (!version)
                return CUDA_ERROR_INVALID_VALUE;
        *version = ctx->api_version;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if ((unsigned)limit >= CU_LIMIT_MAX)
                return CUDA_ERROR_UNSUPPORTED_LIMIT;
        c->limit[limit] = value;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!pvalue)
                return CUDA_ERROR_INVALID_VALUE;
        if ((unsigned)limit >= CU_LIMIT_MAX)
                return CUDA_ERROR_UNSUPPORTED_LIMIT;
        *pvalue = c->limit[limit];
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!pconfig)
                return CUDA_ERROR_INVALID_VALUE;
        *pconfig = CU_FUNC_CACHE_PREFER_NONE; /* this card's caches have no such setting */
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
        return api_enter(__func__, API_CONTEXT, NULL);
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least_priority, int *greatest_priority)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (least_priority)
                *least_priority = 0;
        if (greatest_priority)
                *greatest_priority = -5;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
        CUresult r = api_enter(__func__, ctx ? API_ANY : API_CONTEXT, NULL);

        if (r == CUDA_SUCCESS)
                r = context_check(ctx, &ctx);
        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_context(ctx);
        if (r == CUDA_SUCCESS)
                r = context_wait_locked(ctx);
        pthread_mutex_unlock(&sim.lock);
        frees_synced(ctx, NULL);
        return r;
}

EXPORT CUresult cuCtxSynchronize(void)
{
        return cuCtxSynchronize_v2(NULL);
}
