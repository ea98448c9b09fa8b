/* hooks_share.c: memory of the program's own handles that is exported, or bound to other objects.
 * Must never hand out memory that we would move later.
 * Why: docs/decisions.md, "Exporting makes memory unevictable". */
#include "preload/hooks/hooks_virtual.h"

#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/state/virtual.h"
#include "preload/state/request.h"

#define MAPPINGS_MANY       32u
#define MAPPINGS_MANY_BYTES (UINT64_C(8) << 20)
#define STILL_MOST_NS       (10 * NSEC_PER_SEC)
#define STILL_NAP_NS        (200 * NSEC_PER_USEC)

static bool has_contents(const struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++)
                if (b->extents[i].state != EXTENT_UNBACKED)
                        return true;
        return false;
}

static bool all_resident(const struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++)
                if (b->extents[i].state != EXTENT_RESIDENT)
                        return false;
        return true;
}

bool handle_is_everywhere(const struct handle *h)
{
        /* Some programs map one page of zeros wherever they have no other memory. Each mapping
         * costs a map and a change of access at every hand-off. To keep the check cheap, it is made
         * only when the number of mappings is a power of two. */
        return h->block && h->mapping_count >= MAPPINGS_MANY && h->bytes <= MAPPINGS_MANY_BYTES &&
               (h->mapping_count & (h->mapping_count - 1)) == 0 &&
               (!has_contents(h->block) || all_resident(h->block));
}

static CUresult map_for(const struct gpu *g, CUdeviceptr at, uint64_t bytes,
                        CUmemGenericAllocationHandle handle)
{
        const CUmemAccessDesc access = {
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)g->index},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUresult r = real.cuMemMap(at, bytes, 0, handle, 0);

        return r == CUDA_SUCCESS ? real.cuMemSetAccess(at, bytes, &access, 1) : r;
}

/* Copy the contents of the extents into new memory of the whole handle, through windows of ours:
 * the program may have mapped the handle nowhere. A context of the GPU is current. */
static CUresult copy_over(struct gpu *g, const struct handle *h, CUmemGenericAllocationHandle to)
{
        CUdeviceptr at = 0;
        CUstream stream = NULL;
        CUresult r;

        r = real.cuMemAddressReserve(&at, 2 * h->bytes, HEAP_GRANULARITY, 0, 0);
        if (r != CUDA_SUCCESS)
                return r;
        r = map_for(g, at + h->bytes, h->bytes, to);
        for (unsigned i = 0; i < h->block->extent_count && r == CUDA_SUCCESS; i++) {
                const struct extent *e = &h->block->extents[i];

                r = map_for(g, at + e->offset, e->bytes, e->handle);
        }
        if (r == CUDA_SUCCESS)
                r = HOOKS_RETRY_ON(g, real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        if (r == CUDA_SUCCESS)
                r = real.cuMemcpyDtoDAsync_v2(at + h->bytes, at, h->bytes, stream);
        if (r == CUDA_SUCCESS)
                r = real.cuStreamSynchronize(stream);
        if (stream)
                (void)real.cuStreamDestroy_v2(stream);
        (void)real.cuMemUnmap(at, 2 * h->bytes);
        (void)real.cuMemAddressFree(at, 2 * h->bytes);
        return r;
}

/* Switch all mappings of a handle to other memory. After a failure, switch them back. */
static CUresult remap(const struct gpu *g, const struct handle *h, CUmemGenericAllocationHandle to)
{
        CUresult r = CUDA_SUCCESS;

        for (const struct mapping *m = h->mappings; m && r == CUDA_SUCCESS; m = m->next) {
                CUmemAccessDesc access[GPUS_MAX];
                unsigned n = mapping_access(m, access);

                (void)real.cuMemUnmap(m->at.address, m->at.bytes);
                r = real.cuMemMap(m->at.address, m->at.bytes, 0, to, 0);
                if (r == CUDA_SUCCESS && n)
                        r = real.cuMemSetAccess(m->at.address, m->at.bytes, access, n);
        }
        if (r == CUDA_SUCCESS)
                return r;
        for (const struct mapping *m = h->mappings; m; m = m->next)
                (void)real.cuMemUnmap(m->at.address, m->at.bytes);
        for (unsigned i = 0; i < h->block->extent_count; i++)
                if (h->block->extents[i].state == EXTENT_RESIDENT)
                        extent_place_back(g, &h->block->extents[i]);
        return r;
}

/* ---- becoming unevictable ---- */

/* Stops all work of this process until thaw(). CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: a capture is
 * in progress, which cannot be waited for. CUDA_ERROR_NOT_READY: the work does not end in time. It
 * may depend on work that this thread or a waiting thread has yet to submit. */
static CUresult freeze(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "its own work"};
        uint64_t until = clock_now_ns() + STILL_MOST_NS;
        struct quiesce_wait drained;
        bool begun = false;

        g->heap.resident -=
                bytes; /* threads that submit now wait for the extents as for evicted memory */
        gate_shut(GATE_UNBACKED);
        while (!quiesce_capturing()) {
                if (!gate_anybody_inside()) {
                        if (!begun)
                                quiesce_begin(&drained, false);
                        begun = true;
                        if (quiesce_poll(&drained) == QUIESCE_DONE)
                                return CUDA_SUCCESS;
                }
                if (core_passive() || clock_now_ns() >= until)
                        return CUDA_ERROR_NOT_READY;
                core_wait(&w, STILL_NAP_NS);
        }
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void thaw(struct gpu *g, uint64_t bytes)
{
        g->heap.resident += bytes;
        bell_ring(&core.changed);
}

/* Replace the memory of a handle by new memory with the same contents. Lock not held. */
static CUresult replace(struct gpu *g, struct handle *h, CUmemGenericAllocationHandle *ret)
{
        const bool contents = has_contents(h->block);
        CUstreamCaptureMode mode = core_relax();
        CUcontext popped;
        CUresult r;

        /* The daemon has counted the bytes, but the card may be full for a moment. */
        r = HOOKS_RETRY_ON(g, real.cuMemCreate(ret, h->bytes, &h->prop, 0));
        if (r == CUDA_SUCCESS && contents) {
                r = g->context ? real.cuCtxPushCurrent_v2(g->context->handle)
                               : CUDA_ERROR_INVALID_CONTEXT;
                if (r == CUDA_SUCCESS) {
                        r = copy_over(g, h, *ret);
                        (void)real.cuCtxPopCurrent_v2(&popped);
                }
        }
        if (r == CUDA_SUCCESS)
                r = remap(g, h, *ret);
        if (r != CUDA_SUCCESS && *ret)
                (void)real.cuMemRelease(*ret);
        for (unsigned i = 0; contents && r == CUDA_SUCCESS && i < h->block->extent_count; i++)
                (void)extent_release(&h->block->extents[i]);
        core_unrelax(mode);
        return r;
}

/* Take the handle's memory out of the heap; the caller has made sure that the memory stays alive.
 * Lock held. */
static void leave_heap(struct gpu *g, struct handle *h, CUmemGenericAllocationHandle unevictable)
        REQUIRES(core_lock)
{
        struct block *b = h->block;

        for (struct block **lost = &g->lost; *lost; lost = &(*lost)->next_late)
                if (*lost == b) { /* the GPU has failed (poison.c) */
                        *lost = b->next_late;
                        break;
                }
        h->block = NULL;
        h->unevictable = unevictable;
        g->unevictable_handles += h->bytes;
        swap_hand_over(g, b);
}

/* Make the memory of a taken handle unevictable. All of the memory is on the card, or none. */
static CUresult fix(struct gpu *g, struct handle *h) UNLOCKS(core_lock)
{
        const struct extent *only = &h->block->extents[0];
        const bool contents = has_contents(h->block);
        CUmemGenericAllocationHandle unevictable = 0;
        CUresult r;

        if (contents && h->block->extent_count == 1 && !only->adopted) {
                leave_heap(g, h,
                           only->handle); /* unchanged: we have created it as the program asked */
                return CUDA_SUCCESS;
        }
        r = contents ? freeze(g, h->bytes) : CUDA_SUCCESS;
        if (r != CUDA_SUCCESS) {
                thaw(g, h->bytes);
                return r;
        }
        lock_release(&core_lock);
        r = replace(g, h, &unevictable);
        lock_acquire(&core_lock);
        if (contents)
                thaw(g, h->bytes);
        if (r == CUDA_SUCCESS)
                leave_heap(g, h, unevictable);
        return r;
}

CUresult handle_make_unevictable(struct handle *h)
{
        struct gpu *g = h->gpu;
        CUresult r = CUDA_SUCCESS;
        bool ours = true;

        if (!h->block)
                return CUDA_SUCCESS;
        handle_use(h);
        if (request_unevictable(g, h->bytes) < 0) {
                handle_unuse(h);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        core.unbooked++; /* the memory is counted twice until it has left the heap */
        for (;;) {
                struct gate_thread *t;

                handle_take(h);
                if (!h->block || !has_contents(h->block) || all_resident(h->block))
                        break;
                handle_put(h);
                if (core_passive()) { /* evicted memory does not come back any more */
                        request_return_unevictable(g, h->bytes);
                        core.unbooked--;
                        handle_unuse(h);
                        return CUDA_ERROR_OUT_OF_MEMORY;
                }
                /* The contents are evicted: wait for this process's turn. */
                lock_release(&core_lock);
                t = gate_enter(NULL, 0);
                gate_leave(t);
                lock_acquire(&core_lock);
        }
        if (h->block)
                r = fix(g, h);
        else
                ours = false; /* another thread was first */
        if (r != CUDA_SUCCESS || !ours)
                request_return_unevictable(g, h->bytes);
        core.unbooked--;
        handle_put(h);
        handle_unuse(h);
        request_kick();
        return r;
}

/* ---- calls that make memory unevictable ---- */

/* Returns in *ret the driver's handle that replaces the program's handle from now on. The handle
 * stays in use until driver_handle_done(). */
static CUresult driver_handle(struct handle *h, CUmemGenericAllocationHandle *ret)
        UNLOCKS(core_lock)
{
        CUresult r;

        handle_use(h);
        r = handle_make_unevictable(h);
        *ret = h->unevictable;
        return r;
}

static void driver_handle_done(struct handle *h)
{
        lock_acquire(&core_lock);
        handle_unuse(h);
        lock_release(&core_lock);
}

CUresult hook_cuMemExportToShareableHandle(void *shareableHandle,
                                           CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType handleType,
                                           unsigned long long flags)
{
        CUmemGenericAllocationHandle unevictable;
        struct handle *h;
        CUresult r;

        (void)core_setup();
        lock_acquire(&core_lock);
        h = core_passive() ? NULL : virtual_find(handle);
        if (!h) {
                lock_release(&core_lock);
                return real.cuMemExportToShareableHandle(shareableHandle, virtual_drivers(handle),
                                                         handleType, flags);
        }
        if (!shareableHandle || flags || !(handleType & h->prop.requestedHandleTypes)) {
                lock_release(&core_lock);
                return CUDA_ERROR_INVALID_VALUE;
        }
        r = driver_handle(h, &unevictable);
        lock_release(&core_lock);
        if (r == CUDA_SUCCESS)
                r = real.cuMemExportToShareableHandle(shareableHandle, unevictable, handleType,
                                                      flags);
        driver_handle_done(h);
        return r;
}

/* Returns in *ret the driver's handle of memory that is bound to an object, through which others
 * will reach it. *ret_handle is for bind_done(), also after a failure; NULL: the handle is not
 * ours. */
static CUresult bind_begin(CUmemGenericAllocationHandle name, struct handle **ret_handle,
                           CUmemGenericAllocationHandle *ret)
{
        struct handle *h;
        CUresult r = CUDA_SUCCESS;

        (void)core_setup();
        lock_acquire(&core_lock);
        h = core_passive() ? NULL : virtual_find(name);
        if (h)
                r = driver_handle(h, ret);
        lock_release(&core_lock);
        if (!h)
                *ret = virtual_drivers(name);
        *ret_handle = h;
        return r;
}

static CUresult bind_done(struct handle *h, CUresult r)
{
        if (h)
                driver_handle_done(h);
        return r;
}

CUresult hook_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                 CUmemGenericAllocationHandle memHandle, size_t memOffset,
                                 size_t size, unsigned long long flags)
{
        CUmemGenericAllocationHandle unevictable;
        struct handle *h;
        CUresult r = bind_begin(memHandle, &h, &unevictable);

        if (r == CUDA_SUCCESS)
                r = real.cuMulticastBindMem(mcHandle, mcOffset, unevictable, memOffset, size,
                                            flags);
        return bind_done(h, r);
}

CUresult hook_cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                    size_t mcOffset, CUmemGenericAllocationHandle memHandle,
                                    size_t memOffset, size_t size, unsigned long long flags)
{
        CUmemGenericAllocationHandle unevictable;
        struct handle *h;
        CUresult r = bind_begin(memHandle, &h, &unevictable);

        if (r == CUDA_SUCCESS)
                r = real.cuMulticastBindMem_v2(mcHandle, dev, mcOffset, unevictable, memOffset,
                                               size, flags);
        return bind_done(h, r);
}

CUresult hook_cuLogicalEndpointBindMem(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                       CUmemGenericAllocationHandle memHandle, cuuint64_t memOffset,
                                       cuuint64_t size, unsigned long long flags)
{
        CUmemGenericAllocationHandle unevictable;
        struct handle *h;
        CUresult r = bind_begin(memHandle, &h, &unevictable);

        if (r == CUDA_SUCCESS)
                r = real.cuLogicalEndpointBindMem(leId, dev, offset, unevictable, memOffset, size,
                                                  flags);
        return bind_done(h, r);
}
