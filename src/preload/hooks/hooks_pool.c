/* hooks_pool.c: the entry points for stream-ordered memory and its pools, and the calls that wait
 * for it. Must never serve memory from the heap if it is captured into a graph or may go to another
 * process: the driver serves such memory. */
#include <stdbool.h>

#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/driver/rows.h"
#include "preload/stream/await.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/state/poison.h"
#include "preload/pool/pool.h"
#include "preload/stream/quiesce.h"
#include "preload/pool/late_frees.h"

/* All allocations by the driver take about the same time. */
#define WORK                  gate_work(DOOR_cuMemAllocAsync, 0)
#define PASS_ON(stream, call) HOOKS_SUBMIT(stream, WORK, call)
/* Ctrl-C must not end this wait at the gate with an error: destructors free memory, and cannot
 * handle an error. */
#define PASS_FREE(stream, call) HOOKS_RETRY(HOOKS_PASSED(gate_enter((stream), WORK), call))

/* Fills in the name by which pools know the stream. False: there is no such stream, or no
 * context. */
static bool name_stream(CUstream stream, struct pool_stream *ret)
{
        static _Atomic uint64_t threads;
        static __thread uint64_t self __attribute__((tls_model("initial-exec")));

        *ret = (struct pool_stream){.handle = stream};
        if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD)
                return true;
        if (stream == CU_STREAM_PER_THREAD) {
                if (!self)
                        self = atomic_fetch_add(&threads, 1) + 1;
                ret->thread = self;
        }
        return real.cuCtxGetCurrent(&ret->context) == CUDA_SUCCESS && ret->context;
}

/* Finds the device of a stream, which may differ from that of the current context. */
static CUresult device_of(CUstream stream, CUdevice *ret_device)
{
        CUcontext context, popped;
        CUresult r;

        if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD)
                return real.cuCtxGetDevice(ret_device);
        r = real.cuStreamGetCtx(stream, &context);
        if (r == CUDA_SUCCESS)
                r = real.cuCtxPushCurrent_v2(context);
        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuCtxGetDevice(ret_device);
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

/* Allocates from a pool of ours. CUDA_ERROR_NOT_SUPPORTED: leave the call to the driver. */
static CUresult allocate(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream stream)
{
        struct pool_stream s;
        struct pool *p;
        CUresult r = CUDA_ERROR_NOT_SUPPORTED;

        (void)core_setup();
        if (core_passive() || !dptr || bytes == 0 || !name_stream(stream, &s) || poison_current() ||
            quiesce_is_capturing(stream))
                return r;
        if (hooks_capture_forbids())
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (!handle) {
                CUdevice device;

                if (device_of(stream, &device) != CUDA_SUCCESS || !core_attach(device) ||
                    real.cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS)
                        return r;
        }
        lock_acquire(&core_lock);
        p = pool_find(handle);
        if (p) {
                *dptr = 0; /* the value that the driver stores when there is no memory */
                r = pool_allocate(p, &s, bytes, dptr);
        }
        lock_release(&core_lock);
        return r;
}

static CUresult release(CUdeviceptr dptr, CUstream stream)
{
        struct pool_stream s;
        struct heap_place place;
        CUresult r = CUDA_ERROR_NOT_SUPPORTED;
        struct gpu *g;

        (void)core_setup();
        if (core_passive() || dptr == 0 || !name_stream(stream, &s) || poison_current() ||
            quiesce_is_capturing(stream))
                return r;
        if (hooks_capture_forbids())
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        lock_acquire(&core_lock);
        g = core_find(dptr, &place);
        if (g && place.start != dptr) {
                r = CUDA_ERROR_INVALID_VALUE;
        } else if (g && place.block->kind == BLOCK_POOL) {
                r = pool_free(place.block, dptr, &s);
                if (r == CUDA_SUCCESS && stream == CU_STREAM_PER_THREAD)
                        pool_mark(place.block, &s);
        } else if (g && place.block->kind != BLOCK_ADOPTED) {
                if (!s.context)
                        (void)real.cuStreamGetCtx(stream, &s.context);
                r = late_free(g, &place, &s);
        }
        lock_release(&core_lock);
        return r;
}

/* ---- calls that wait ---- */

/* A call has waited for a stream, for all streams of a context, or for an event (s NULL). frees:
 * frees_open() before the call. */
static void waited(const struct pool_stream *s, uint64_t frees)
{
        bool all;

        if (core_passive())
                return;
        lock_acquire(&core_lock);
        all = pool_awaited(s, frees);
        all = late_awaited(s, frees) && all;
        if (all)
                frees_settled(frees);
        lock_release(&core_lock);
}

static CUresult waited_for_stream(CUstream stream, uint64_t frees, CUresult r)
{
        struct pool_stream s;

        if (unlikely(frees) && r == CUDA_SUCCESS && name_stream(stream, &s))
                waited(&s, frees);
        return r;
}

static CUresult waited_for_context(CUcontext context, uint64_t frees, CUresult r)
{
        const struct pool_stream all = {.context = context};

        if (unlikely(frees) && r == CUDA_SUCCESS)
                waited(&all, frees);
        return r;
}

CUresult hook_cuStreamSynchronize(CUstream stream)
{
        const uint64_t frees = frees_open();

        (void)core_setup();
        if (await_stream(stream))
                return CUDA_ERROR_OPERATING_SYSTEM;
        return waited_for_stream(stream ? stream : CU_STREAM_LEGACY, frees,
                                 real.cuStreamSynchronize(stream));
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream stream)
{
        const uint64_t frees = frees_open();

        (void)core_setup();
        if (await_stream(stream ? stream : CU_STREAM_PER_THREAD))
                return CUDA_ERROR_OPERATING_SYSTEM;
        return waited_for_stream(stream ? stream : CU_STREAM_PER_THREAD, frees,
                                 real.cuStreamSynchronize_ptsz(stream));
}

CUresult hook_cuCtxSynchronize(void)
{
        const uint64_t frees = frees_open();
        CUcontext context = NULL;

        (void)core_setup();
        if (await_context(NULL))
                return CUDA_ERROR_OPERATING_SYSTEM;
        if (unlikely(frees))
                (void)real.cuCtxGetCurrent(&context);
        return waited_for_context(context, frees, real.cuCtxSynchronize());
}

CUresult hook_cuCtxSynchronize_v2(CUcontext ctx)
{
        const uint64_t frees = frees_open();
        CUcontext context = ctx;

        (void)core_setup();
        if (await_context(ctx))
                return CUDA_ERROR_OPERATING_SYSTEM;
        if (unlikely(frees) && !ctx)
                (void)real.cuCtxGetCurrent(&context);
        return waited_for_context(context, frees, real.cuCtxSynchronize_v2(ctx));
}

CUresult hook_cuEventSynchronize(CUevent event)
{
        const uint64_t frees = frees_open();
        CUresult r;

        (void)core_setup();
        if (await_event(event))
                return CUDA_ERROR_OPERATING_SYSTEM;
        r = real.cuEventSynchronize(event);
        if (unlikely(frees) && r == CUDA_SUCCESS)
                waited(NULL, frees);
        return r;
}

/* The symbol decides which stream NULL means. */
#define HOOK_POOL(suffix, null_stream)                                                            \
        CUresult hook_cuMemAllocAsync##suffix(CUdeviceptr *dptr, size_t bytesize,                 \
                                              CUstream hStream)                                   \
        {                                                                                         \
                CUstream stream = hStream ? hStream : (null_stream);                              \
                CUresult r = allocate(dptr, bytesize, NULL, stream);                              \
                                                                                                  \
                return r != CUDA_ERROR_NOT_SUPPORTED                                              \
                               ? r                                                                \
                               : PASS_ON(stream,                                                  \
                                         real.cuMemAllocAsync##suffix(dptr, bytesize, hStream));  \
        }                                                                                         \
        CUresult hook_cuMemAllocFromPoolAsync##suffix(CUdeviceptr *dptr, size_t bytesize,         \
                                                      CUmemoryPool pool, CUstream hStream)        \
        {                                                                                         \
                CUstream stream = hStream ? hStream : (null_stream);                              \
                CUresult r =                                                                      \
                        pool ? allocate(dptr, bytesize, pool, stream) : CUDA_ERROR_NOT_SUPPORTED; \
                                                                                                  \
                return r != CUDA_ERROR_NOT_SUPPORTED                                              \
                               ? r                                                                \
                               : PASS_ON(stream, real.cuMemAllocFromPoolAsync##suffix(            \
                                                         dptr, bytesize, pool, hStream));         \
        }                                                                                         \
        CUresult hook_cuMemFreeAsync##suffix(CUdeviceptr dptr, CUstream hStream)                  \
        {                                                                                         \
                CUstream stream = hStream ? hStream : (null_stream);                              \
                CUresult r = release(dptr, stream);                                               \
                                                                                                  \
                return r != CUDA_ERROR_NOT_SUPPORTED                                              \
                               ? r                                                                \
                               : PASS_FREE(stream, real.cuMemFreeAsync##suffix(dptr, hStream));   \
        }

HOOK_POOL(, CU_STREAM_LEGACY)
HOOK_POOL(_ptsz, CU_STREAM_PER_THREAD)

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
        CUresult r;

        (void)core_setup();
        r = HOOKS_RETRY(real.cuMemPoolCreate(pool, poolProps));
        if (r != CUDA_SUCCESS || poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !core_attach(poolProps->location.id))
                return r;
        lock_acquire(&core_lock);
        pool_born(*pool, poolProps);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
        CUresult r;

        (void)core_setup();
        if (core_passive())
                return real.cuMemPoolDestroy(pool);
        /* Hold the lock: the driver must not give the handle out again before pool_dies() has
         * forgotten it. The driver has nothing to wait for, because our pools hold none of its
         * memory. */
        lock_acquire(&core_lock);
        if (pool_find(pool)) {
                r = real.cuMemPoolDestroy(pool);
                if (r == CUDA_SUCCESS)
                        pool_dies(pool, false);
                lock_release(&core_lock);
                return r;
        }
        lock_release(&core_lock);
        r = real.cuMemPoolDestroy(pool);
        lock_acquire(&core_lock);
        if (r == CUDA_SUCCESS)
                pool_dies(pool, true);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
        CUresult r;
        struct pool *p;

        (void)core_setup();
        r = real.cuMemPoolTrimTo(pool, minBytesToKeep);
        if (r != CUDA_SUCCESS || core_passive())
                return r;
        lock_acquire(&core_lock);
        p = pool_find(pool);
        if (p)
                pool_trim(p, minBytesToKeep);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
        CUresult r;
        struct pool *p;

        (void)core_setup();
        r = real.cuMemPoolSetAttribute(pool, attr, value);
        if (r != CUDA_SUCCESS || core_passive())
                return r;
        lock_acquire(&core_lock);
        p = pool_find(pool);
        if (p)
                pool_set(p, attr, value);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
        CUresult r;
        struct pool *p;

        (void)core_setup();
        r = real.cuMemPoolGetAttribute(pool, attr, value);
        if (r != CUDA_SUCCESS || core_passive())
                return r;
        lock_acquire(&core_lock);
        p = pool_find(pool);
        if (p)
                (void)pool_get(p, attr, value);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
        CUresult r;
        struct pool *p;

        (void)core_setup();
        r = real.cuMemPoolSetAccess(pool, map, count);
        if (r != CUDA_SUCCESS || core_passive())
                return r;
        lock_acquire(&core_lock);
        p = pool_find(pool);
        for (size_t i = 0; p && i < count; i++)
                if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
                    map[i].location.id != (int)pool_gpu(p)->index)
                        pool_hand_over(p);
        lock_release(&core_lock);
        return r;
}
