/* hooks_context.c: contexts, streams and captures, which a drain has to know, and all objects that
 * end with a context.
 * Why: docs/decisions.md, "A green context is a context without memory" and "A reset does not touch
 * the count of retains". */
#include <stdbool.h>

#include "base/log.h"
#include "preload/agent/agent.h"
#include "preload/stream/throttle.h"
#include "preload/pool/room.h"
#include "preload/state/core.h"
#include "preload/move/unevictable.h"
#include "preload/extra/measure.h"
#include "preload/freeze/freeze_test.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/share/ipc.h"
#include "preload/share/peer_access.h"
#include "preload/pool/late_frees.h"
#include "preload/pool/pool.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/process/way.h"
#include "preload/state/request.h"

CUresult hook_cuInit(unsigned int Flags)
{
        CUresult r;

        if (core_setup() == 0 && !core_passive() && !agent_may_start())
                return HOOKS_MUST_SHARE;
        r = real.cuInit(Flags);
        if (r >= CUDA_ERROR_MPS_CONNECTION_FAILED && r <= CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED &&
            way_leave(r))
                r = real.cuInit(Flags);
        core_expect_exit();
        return r;
}

/* The result of a call that makes a context on a GPU that is not managed by us. */
#define ALONE(device, call) (core_may_go_alone(device) ? (call) : HOOKS_MUST_SHARE)

/* Requests room for a context before it is created: the card may be full of other programs'
 * memory. */
static bool context_reserve(struct gpu *g)
{
        bool ok;

        lock_acquire(&core_lock);
        ok = request_unevictable(g, g->context_bytes) == 0;
        if (!ok)
                room_tell_unevictable(g, g->context_bytes);
        lock_release(&core_lock);
        return ok;
}

static void context_born(struct gpu *g, CUcontext handle, bool primary) REQUIRES(core_lock)
{
        struct context *c = quiesce_context_add(handle, g, primary);

        if (c && !g->context)
                g->context = c;
        request_kick();
}

/* Run our copies in another living context of the GPU. Lock held. */
static void context_adopt(struct gpu *g)
{
        if (!g->context)
                g->context = quiesce_context_of(g);
}

/* The room that becomes free when a context ends. gpu NULL: no known context ends. */
struct ending {
        struct gpu *gpu;
        uint64_t bytes;
};

/* The context is about to be destroyed, with all memory allocated in it: drop that memory without
 * restoring it. Call context_died() after the destruction. */
static struct ending context_dies(struct context *c) UNLOCKS(core_lock)
{
        struct gpu *g = c->gpu;
        struct ending ret = {.gpu = g, .bytes = g->context_bytes};
        struct block *b;

        c->dying = true; /* so that our copies do not change over to this context */
        if (!g->error && !quiesce_capturing())
                quiesce_wait_all();
        if (g->context == c)
                swap_retire(g);
        freeze_test_forget(c->handle);
        ipc_context_dies(c->handle);
        while ((b = heap_orphan(&g->heap, c->handle)))
                swap_discard(g, b);
        throttle_forget(c->handle);
        ret.bytes += unevictable_forget_context(c->handle);
        core.unbooked++;
        pool_context_dies(c->handle);
        measure_context_dies(c->handle);
        if (c->primary)
                g->ended = c->handle;
        quiesce_context_remove(c);
        context_adopt(g);
        return ret;
}

/* Prepares for a call that destroys this context. Only a context that the program has created is
 * prepared: for others the driver refuses the call. c NULL: the context is unknown. */
static struct ending made_dies(struct context *c) UNLOCKS(core_lock)
{
        if (!c || c->primary || c->green || c->dying)
                return (struct ending){0};
        return context_dies(c);
}

/* The driver has destroyed the context, so its room is free. Lock not held. */
static void context_died(struct ending e)
{
        if (!e.gpu)
                return;
        lock_acquire(&core_lock);
        core.unbooked--;
        request_return_unevictable(e.gpu, e.bytes);
        lock_release(&core_lock);
}

static CUresult create(struct gpu *g, CUcontext *pctx, CUresult r)
{
        if (r == CUDA_SUCCESS) {
                lock_acquire(&core_lock);
                context_born(g, *pctx, false);
                lock_release(&core_lock);
                peer_update();
        }
        return r;
}

#define HOOK_CREATE(symbol, params, args)                                 \
        CUresult hook_##symbol params                                     \
        {                                                                 \
                struct gpu *g;                                            \
                CUresult r;                                               \
                                                                          \
                (void)core_setup();                                       \
                g = core_attach(dev);                                     \
                if (!g)                                                   \
                        return ALONE(dev, real.symbol args);              \
                if (!context_reserve(g))                                  \
                        return CUDA_ERROR_OUT_OF_MEMORY;                  \
                r = create(g, pctx, HOOKS_RETRY_ON(g, real.symbol args)); \
                if (r != CUDA_SUCCESS) {                                  \
                        lock_acquire(&core_lock);                         \
                        request_return_unevictable(g, g->context_bytes);  \
                        lock_release(&core_lock);                         \
                }                                                         \
                return r;                                                 \
        }

/* This call is from before CUDA 3.2: memory in such a context has 32-bit addresses, and is used by
 * calls of its own. */
HOOK_CREATE(cuCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
HOOK_CREATE(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev),
            (pctx, flags, dev))
HOOK_CREATE(cuCtxCreate_v3,
            (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
             CUdevice dev),
            (pctx, paramsArray, numParams, flags, dev))
HOOK_CREATE(cuCtxCreate_v4,
            (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
             CUdevice dev),
            (pctx, ctxCreateParams, flags, dev))
/* These calls are from before CUDA 5, when a graphics or video API needed a special context. */
HOOK_CREATE(cuGLCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
HOOK_CREATE(cuGLCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev),
            (pctx, flags, dev))
HOOK_CREATE(cuVDPAUCtxCreate,
            (CUcontext * pctx, unsigned int flags, CUdevice dev, uint32_t vdpDevice,
             void *vdpGetProcAddress),
            (pctx, flags, dev, vdpDevice, vdpGetProcAddress))
HOOK_CREATE(cuVDPAUCtxCreate_v2,
            (CUcontext * pctx, unsigned int flags, CUdevice dev, uint32_t vdpDevice,
             void *vdpGetProcAddress),
            (pctx, flags, dev, vdpDevice, vdpGetProcAddress))

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
        struct ending ending = {0};
        CUresult r;

        (void)core_setup();
        if (!core_passive()) {
                lock_acquire(&core_lock);
                ending = made_dies(quiesce_context(ctx));
                lock_release(&core_lock);
        }
        r = real.cuCtxDestroy_v2(ctx);
        context_died(ending);
        return r;
}

/* These calls are from before CUDA 4. The last detach destroys the context. */
CUresult hook_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
        struct context *c;
        CUresult r;

        (void)core_setup();
        r = real.cuCtxAttach(pctx, flags);
        if (r != CUDA_SUCCESS || core_passive())
                return r;
        lock_acquire(&core_lock);
        c = quiesce_context(*pctx);
        if (c)
                c->attached++;
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuCtxDetach(CUcontext ctx)
{
        struct ending ending = {0};
        struct context *c;
        CUresult r;

        (void)core_setup();
        if (!core_passive()) {
                lock_acquire(&core_lock);
                c = quiesce_context(ctx);
                if (c && c->attached > 0)
                        c->attached--;
                else
                        ending = made_dies(c);
                lock_release(&core_lock);
        }
        r = real.cuCtxDetach(ctx);
        context_died(ending);
        return r;
}

/* Under core_lock. primary_taken: a thread makes or ends the primary context, and excludes all
 * others even during the driver's call. primary_wanted: a thread requests room for the context.
 * Other threads wait, because room for each of them could be more than the card has. */
static bool primary_taken[GPUS_MAX], primary_wanted[GPUS_MAX];

static void primary_take(bool *taken) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "another thread's call for the same context"};

        while (*taken && !core_passive())
                core_wait(&w, UINT64_MAX);
        *taken = true;
}

static void primary_give(bool *taken)
{
        *taken = false;
        bell_ring(&core.changed);
}

/* The number of holds on each primary context: unreleased retains by the program, and one for each
 * of its green contexts. A reset ends the context and leaves the count: the next retain gets the
 * same handle, alive again. Under core_lock. */
static unsigned retained[GPUS_MAX];

/* Takes the primary context, and requests room for it if it is not alive. *ret_reserved: room was
 * granted. False: there is no room, and the context is not taken. */
static bool primary_begin(struct gpu *g, bool *ret_reserved)
{
        int r = 0;

        *ret_reserved = false;
        lock_acquire(&core_lock);
        primary_take(&primary_wanted[g->index]);
        primary_take(&primary_taken[g->index]);
        if (!quiesce_context_primary(g)) {
                /* The request may wait long, and a release must not wait for it. */
                primary_give(&primary_taken[g->index]);
                r = request_unevictable(g, g->context_bytes);
                *ret_reserved = r == 0;
                if (r == 0)
                        primary_take(&primary_taken[g->index]);
                else
                        room_tell_unevictable(g, g->context_bytes);
        }
        primary_give(&primary_wanted[g->index]);
        lock_release(&core_lock);
        return r == 0;
}

/* Ends primary_begin(): the primary context is alive. handle NULL: it could not be made. Lock
 * held. */
static void primary_there(struct gpu *g, bool reserved, CUcontext handle) REQUIRES(core_lock)
{
        struct context *c = quiesce_context_primary(g);

        if (reserved && !handle)
                request_return_unevictable(g, g->context_bytes);
        if (handle && !c) {
                g->ended = NULL;
                context_born(g, handle, true);
        }
        primary_give(&primary_taken[g->index]);
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
        struct gpu *g;
        CUresult r;
        bool reserved;

        (void)core_setup();
        g = core_attach(dev);
        if (!g)
                return ALONE(dev, real.cuDevicePrimaryCtxRetain(pctx, dev));
        if (!primary_begin(g, &reserved))
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = HOOKS_RETRY_ON(g, real.cuDevicePrimaryCtxRetain(pctx, dev));
        lock_acquire(&core_lock);
        if (r == CUDA_SUCCESS)
                retained[g->index]++;
        primary_there(g, reserved, r == CUDA_SUCCESS ? *pctx : NULL);
        lock_release(&core_lock);
        peer_update();
        return r;
}

/* The program releases or resets the primary context. If that ends the context, give up its memory
 * first. */
static struct ending primary_dies(struct gpu *g, bool reset) UNLOCKS(core_lock)
{
        struct context *c = quiesce_context_primary(g);

        if (!c || (!reset && retained[g->index] != 1) || quiesce_context_green_of(g))
                return (struct ending){0};
        return context_dies(c);
}

/* Begins a release or reset of a primary context. False: the device is not shared. */
static bool primary_ends(CUdevice dev, bool reset, struct ending *ret)
{
        bool ours;

        *ret = (struct ending){0};
        (void)core_setup();
        if (core_passive() || dev < 0 || dev >= GPUS_MAX)
                return false;
        lock_acquire(&core_lock);
        ours = core.gpus[dev].known;
        if (ours) {
                primary_take(&primary_taken[dev]);
                *ret = primary_dies(&core.gpus[dev], reset);
        }
        lock_release(&core_lock);
        return ours;
}

/* Ends a release or reset of a primary context. r: the driver's answer. While there are green
 * contexts, the driver refuses the last release but counts it. */
static void primary_ended(CUdevice dev, bool reset, CUresult r)
{
        bool counts;

        lock_acquire(&core_lock);
        counts = r == CUDA_SUCCESS ||
                 (r == CUDA_ERROR_NOT_PERMITTED && quiesce_context_green_of(&core.gpus[dev]));
        if (!reset && counts && retained[dev] > 0)
                retained[dev]--;
        primary_give(&primary_taken[dev]);
        lock_release(&core_lock);
}

static CUresult primary_end(CUdevice dev, bool reset)
{
        struct ending ending;
        bool ours = primary_ends(dev, reset, &ending);
        CUresult r = reset ? real.cuDevicePrimaryCtxReset_v2(dev)
                           : real.cuDevicePrimaryCtxRelease_v2(dev);

        context_died(ending);
        if (ours)
                primary_ended(dev, reset, r);
        return r;
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
        return primary_end(dev, false);
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
        return primary_end(dev, true);
}

/* ---- green contexts: parts of the processors of a primary context ----
 *
 * Each green context holds the primary context, which ends with its last hold. While a green
 * context exists, the driver refuses to reset the primary context or to release it for the last
 * time. The refused release counts all the same, and the context then stays active until it is
 * retained and released once more (measured, CUDA 13.0). */

CUresult hook_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                               unsigned int flags)
{
        CUcontext handle = NULL, primary = NULL;
        struct context *c;
        struct gpu *g;
        CUresult r;
        bool reserved;

        (void)core_setup();
        g = core_attach(dev);
        if (!g)
                return ALONE(dev, real.cuGreenCtxCreate(phCtx, desc, dev, flags));
        if (!primary_begin(g, &reserved))
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = HOOKS_RETRY_ON(g, real.cuGreenCtxCreate(phCtx, desc, dev, flags));
        /* The green context holds the primary context. To learn the handle of the primary context,
         * retain that once more. */
        if (r == CUDA_SUCCESS && real.cuDevicePrimaryCtxRetain(&primary, dev) == CUDA_SUCCESS)
                (void)real.cuDevicePrimaryCtxRelease_v2(dev);
        lock_acquire(&core_lock);
        if (r == CUDA_SUCCESS)
                retained[g->index]++;
        primary_there(g, reserved, primary);
        if (r == CUDA_SUCCESS && real.cuCtxFromGreenCtx(&handle, *phCtx) == CUDA_SUCCESS) {
                c = quiesce_context_add(handle, g, false);
                if (c)
                        c->green = *phCtx;
        }
        lock_release(&core_lock);
        peer_update();
        return r;
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
        struct ending ending = {0};
        struct gpu *g = NULL;
        struct context *c;
        CUresult r;

        (void)core_setup();
        if (core_passive())
                return real.cuGreenCtxDestroy(hCtx);
        lock_acquire(&core_lock);
        c = quiesce_context_green(hCtx);
        if (c) {
                g = c->gpu;
                /* The green context gives up its hold on the primary context. */
                primary_take(&primary_taken[g->index]);
                if (!quiesce_capturing())
                        quiesce_wait_all();
                throttle_forget(c->handle);
                pool_context_dies(c->handle);
                measure_context_dies(c->handle);
                quiesce_context_remove(c);
                ending = primary_dies(g, false);
        }
        lock_release(&core_lock);
        r = real.cuGreenCtxDestroy(hCtx);
        context_died(ending);
        if (g)
                primary_ended((CUdevice)g->index, false, r);
        return r;
}

CUresult hook_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
                                     int priority)
{
        struct context *c;
        CUresult r;

        (void)core_setup();
        r = HOOKS_RETRY(real.cuGreenCtxStreamCreate(phStream, greenCtx, flags, priority));
        if (r != CUDA_SUCCESS || core_passive())
                return r;
        lock_acquire(&core_lock);
        c = quiesce_context_green(greenCtx);
        if (c)
                (void)quiesce_stream_add(*phStream, c->handle);
        lock_release(&core_lock);
        return r;
}

/* ---- streams ---- */

static CUresult stream_born(CUstream *stream, CUresult r)
{
        CUcontext owner;

        if (r != CUDA_SUCCESS || core_passive() || real.cuCtxGetCurrent(&owner) != CUDA_SUCCESS)
                return r;
        lock_acquire(&core_lock);
        (void)quiesce_stream_add(*stream, owner);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
        (void)core_setup();
        return stream_born(phStream, HOOKS_RETRY(real.cuStreamCreate(phStream, Flags)));
}

CUresult hook_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
        (void)core_setup();
        return stream_born(phStream,
                           HOOKS_RETRY(real.cuStreamCreateWithPriority(phStream, flags, priority)));
}

CUresult hook_cuStreamDestroy_v2(CUstream hStream)
{
        (void)core_setup();
        if (!core_passive()) {
                throttle_forget_stream(hStream);
                lock_acquire(&core_lock);
                pool_stream_dies(hStream);
                late_stream_dies(hStream);
                quiesce_stream_remove(hStream);
                lock_release(&core_lock);
        }
        return real.cuStreamDestroy_v2(hStream);
}

static void capture_is_over(CUstream stream)
{
        CUstreamCaptureMode mode;
        CUevent probe;

        lock_acquire(&core_lock);
        probe = quiesce_capture_end(stream);
        lock_release(&core_lock);
        if (!probe)
                return;
        mode = core_relax();
        (void)real.cuEventDestroy_v2(probe);
        core_unrelax(mode);
}

/* No stream is queried from just before a capture begins until it ends, because a query would break
 * it. So a capture is counted before the call, and dropped if the call fails. */
static CUresult capture_begun(CUstream stream, CUresult r)
{
        if (r != CUDA_SUCCESS && !core_passive())
                capture_is_over(stream);
        return r;
}

/* Returns an event recorded on a stream that is about to capture; NULL: none could be recorded. */
static CUevent capture_probe(CUstream stream)
{
        CUevent e = NULL;

        /* The legacy stream cannot capture, and a record on it would break other captures. */
        if (stream == CU_STREAM_LEGACY || quiesce_is_capturing(stream) ||
            real.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
                return NULL;
        if (real.cuEventRecord(e, stream) == CUDA_SUCCESS)
                return e;
        (void)real.cuEventDestroy_v2(e);
        return NULL;
}

static void capture_begins(CUstream stream)
{
        /* Pass the gate, so that a drain that has begun sees either the capture or a thread
         * inside. */
        struct gate_thread *t = gate_enter(stream, 0);
        CUcontext context = NULL;

        if (!core_passive()) {
                CUevent probe = capture_probe(stream);

                (void)real.cuCtxGetCurrent(&context);
                lock_acquire(&core_lock);
                (void)quiesce_capture_begin(stream, context, probe);
                lock_release(&core_lock);
        }
        gate_leave(t);
        if (!core_passive()) {
                lock_acquire(&core_lock);
                pool_await_records();
                quiesce_await_records();
                lock_release(&core_lock);
        }
}

static CUresult capture_ended(CUstream stream, CUresult r)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        /* Neither success nor failure of the call tells whether the capture has ended: only the
         * stream does. */
        if (core_passive() || (real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
                               status != CU_STREAM_CAPTURE_STATUS_NONE))
                return r;
        capture_is_over(stream);
        return r;
}

/* The function's suffix decides which stream NULL means: the legacy one or the thread's own. */
#define HOOK_CAPTURE(suffix, null_stream)                                                          \
        CUresult hook_cuStreamBeginCapture_v2##suffix(CUstream hStream, CUstreamCaptureMode mode)  \
        {                                                                                          \
                CUstream stream = hStream ? hStream : (null_stream);                               \
                                                                                                   \
                capture_begins(stream);                                                            \
                return capture_begun(stream, real.cuStreamBeginCapture_v2##suffix(hStream, mode)); \
        }                                                                                          \
        CUresult hook_cuStreamBeginCaptureToGraph##suffix(                                         \
                CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,                 \
                const CUgraphEdgeData *dependencyData, size_t numDependencies,                     \
                CUstreamCaptureMode mode)                                                          \
        {                                                                                          \
                CUstream stream = hStream ? hStream : (null_stream);                               \
                                                                                                   \
                capture_begins(stream);                                                            \
                return capture_begun(stream, real.cuStreamBeginCaptureToGraph##suffix(             \
                                                     hStream, hGraph, dependencies,                \
                                                     dependencyData, numDependencies, mode));      \
        }                                                                                          \
        CUresult hook_cuStreamBeginRecaptureToGraph##suffix(                                       \
                CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,                        \
                CUgraphRecaptureCallback callback, void *userData)                                 \
        {                                                                                          \
                CUstream stream = hStream ? hStream : (null_stream);                               \
                                                                                                   \
                capture_begins(stream);                                                            \
                return capture_begun(stream, real.cuStreamBeginRecaptureToGraph##suffix(           \
                                                     hStream, mode, hGraph, callback, userData));  \
        }                                                                                          \
        CUresult hook_cuStreamEndCapture##suffix(CUstream hStream, CUgraph *phGraph)               \
        {                                                                                          \
                (void)core_setup();                                                                \
                return capture_ended(hStream ? hStream : (null_stream),                            \
                                     real.cuStreamEndCapture##suffix(hStream, phGraph));           \
        }

HOOK_CAPTURE(, CU_STREAM_LEGACY)
HOOK_CAPTURE(_ptsz, CU_STREAM_PER_THREAD)
