/* hooks_rdma.c: memory of the heap that is used from outside the process's own work: by a device
 * through a dma-buf or a plain address (nvidia-peermem), by other GPUs through a multicast object
 * or a logical endpoint. Must never move such memory before the program frees it: nobody reports
 * the end of that use.
 * Why: docs/decisions.md, "Memory that a device has open stays until it is freed". */
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/hooks_virtual.h"
#include "preload/move/export.h"
#include "preload/hooks/rdma.h"
#include "preload/state/virtual.h"

CUresult rdma_keep(CUdeviceptr from, uint64_t bytes)
{
        uint64_t end = from + bytes;

        while (from < end) {
                struct core_wait w = {.what = "GPU memory to be kept"};
                struct heap_place p;
                struct gpu *g = core_find(from, &p);
                struct export *export;
                enum export_state state;
                struct mapping *m = g ? NULL : virtual_at(from);
                uint64_t part;

                if (m && m->handle) { /* memory that the program has mapped itself */
                        CUresult r = handle_make_unevictable(m->handle);

                        m = virtual_at(from); /* the lock was given up: look again */
                        if (r != CUDA_SUCCESS || !m)
                                return r;
                        from = m->at.address + m->at.bytes;
                        continue;
                }
                if (!g || p.block->managed)
                        return CUDA_SUCCESS; /* not our memory, or the driver refuses the range */
                /* A pool's block may contain gaps between its allocations. */
                part = MIN(end, p.block->kind == BLOCK_POOL ? p.start + p.bytes
                                                            : p.block->address + p.block->bytes) -
                       from;
                export = export_take(g, p.block, from, part);
                if (!export)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                while ((state = export_state(export)) == EXPORT_WAITING && !core_passive())
                        core_wait(&w, UINT64_MAX);
                if (state != EXPORT_READY) {
                        export_release(export);
                        return CUDA_ERROR_OUT_OF_MEMORY;
                }
                export_for_good(export);
                from += part;
        }
        return CUDA_SUCCESS;
}

/* Keeps memory on the card. Ranges that the driver itself refuses are left alone. */
static CUresult keep(CUdeviceptr from, size_t bytes)
{
        CUresult r = CUDA_SUCCESS;

        (void)core_setup();
        if (!core_passive() && bytes > 0 && bytes <= UINT64_MAX - from) {
                lock_acquire(&core_lock);
                r = rdma_keep(from, bytes);
                lock_release(&core_lock);
        }
        return r;
}

CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                            CUmemRangeHandleType handleType,
                                            unsigned long long flags)
{
        CUresult r = handle ? keep(dptr, size) : CUDA_SUCCESS;

        if (r != CUDA_SUCCESS)
                return r;
        return HOOKS_GATED(
                CU_STREAM_LEGACY, 0,
                real.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags));
}

CUresult hook_cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                  CUdeviceptr memptr, size_t size, unsigned long long flags)
{
        CUresult r = keep(memptr, size);

        if (r != CUDA_SUCCESS)
                return r;
        return HOOKS_GATED(CU_STREAM_LEGACY, 0,
                           real.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags));
}

CUresult hook_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                     size_t mcOffset, CUdeviceptr memptr, size_t size,
                                     unsigned long long flags)
{
        CUresult r = keep(memptr, size);

        if (r != CUDA_SUCCESS)
                return r;
        return HOOKS_GATED(
                CU_STREAM_LEGACY, 0,
                real.cuMulticastBindAddr_v2(mcHandle, dev, mcOffset, memptr, size, flags));
}

CUresult hook_cuLogicalEndpointBindAddr(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                        void *ptr, cuuint64_t size, unsigned long long flags)
{
        CUresult r = keep((uintptr_t)ptr, size);

        if (r != CUDA_SUCCESS)
                return r;
        return HOOKS_GATED(CU_STREAM_LEGACY, 0,
                           real.cuLogicalEndpointBindAddr(leId, dev, offset, ptr, size, flags));
}
