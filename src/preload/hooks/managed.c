/* managed.c: owns the treatment of managed memory. Must never fail an allocation that the driver
 * has granted, unless the program has a memory cap: memory that cannot be counted is left to the
 * driver.
 * Why: docs/decisions.md, "Managed memory is sent to the host when a turn ends". */
#include "preload/hooks/managed.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/process/mode.h"
#include "preload/move/swap.h"
#include "preload/state/request.h"
#include "preload/pool/room.h"

/* True if managed memory can be sent to the host between turns: processor and GPU must be able to
 * use it at the same time. */
static bool can_send_home(CUdevice device)
{
        int concurrent = 0;

        return real.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                         device) == CUDA_SUCCESS &&
               concurrent;
}

void managed_learn(struct gpu *g)
{
        if (mode_memory() != MEMORY_MANAGED)
                return;
        g->heap.managed = can_send_home((CUdevice)g->index);
        if (!g->heap.managed)
                log_warning("GPU %u cannot share managed memory with the processor: "
                            "SUBLET_MEMORY=swap applies instead of managed",
                            g->index);
}

int managed_provide(struct gpu *g, uint64_t bytes)
{
        CUstreamCaptureMode mode;
        CUdeviceptr address = 0;
        CUresult r;

        lock_release(&core_lock);
        home_find_out(g);
        mode = core_relax();
        r = real.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
        core_unrelax(mode);
        lock_acquire(&core_lock);
        if (r != CUDA_SUCCESS)
                return -ENOMEM;
        if (heap_provide(&g->heap, address, bytes) == 0)
                return 0;
        lock_release(&core_lock);
        (void)real.cuMemFree_v2(address);
        lock_acquire(&core_lock);
        return -ENOMEM;
}

/* Memory that could not be counted. The driver moves it out by itself when others need room, so the
 * daemon must not take it for memory of a foreign process. */
static struct left_memory {
        CUdeviceptr address;
        uint64_t bytes;
        struct gpu *gpu;
} * left LOCKED;
static unsigned left_count LOCKED;

static void leave(struct gpu *g, CUdeviceptr address, uint64_t bytes) REQUIRES(core_lock)
{
        struct left_memory *more = realloc(left, (left_count + 1) * sizeof(*left));

        log_debug("GPU %u: %llu MiB of managed memory are left to the driver", g->index,
                  (unsigned long long)(bytes >> 20));
        if (!more)
                return; /* without a record the daemon takes the memory for a foreign process's */
        left = more;
        left[left_count++] = (struct left_memory){address, bytes, g};
        g->heap.managed_left += bytes;
        request_kick();
}

void managed_freed(CUdeviceptr address)
{
        for (unsigned i = 0; i < left_count; i++) {
                if (left[i].address != address)
                        continue;
                left[i].gpu->heap.managed_left -= left[i].bytes;
                left[i] = left[--left_count];
                request_kick();
                return;
        }
}

/* Count managed memory like memory of ours, if the daemon can promise the room. Otherwise the
 * driver handles it as without sublet, and the daemon measures the part that is on the GPU. False:
 * the memory would exceed the program's cap. */
static bool adopt(struct gpu *g, CUdeviceptr address, uint64_t bytes, CUcontext owner)
{
        uint64_t cost;
        int r;

        home_find_out(g);
        lock_acquire(&core_lock);
        for (;;) {
                uint64_t max = MIN(g->commit, sub_sat(g->visible, core_own_unevictable(g)));

                r = heap_adopt(&g->heap, address, bytes, owner, max, &cost);
                if (r != -ENOSPC ||
                    cost > sub_sat(g->visible, g->heap.allocated + core_own_unevictable(g)) ||
                    room_commit(g, cost) < 0)
                        break;
        }
        if (r == 0) {
                gate_shut(GATE_UNBACKED);
                request_report(g);
                g->commit_used_ns = clock_now_ns();
        } else if (!g->cap) {
                leave(g, address, bytes);
        } else {
                room_tell(g, MAX(bytes, cost));
        }
        lock_release(&core_lock);
        return r == 0 || !g->cap;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
        CUcontext owner = NULL;
        struct gpu *g;
        CUresult r;

        (void)core_setup();
        r = HOOKS_RETRY(real.cuMemAllocManaged(dptr, bytesize, flags));
        g = r == CUDA_SUCCESS ? core_current_gpu() : NULL;
        /* Small allocations are not worth an account without a cap; the daemon measures them on the
         * GPU. */
        if (!g || !g->attached || (bytesize <= HEAP_SMALL_MAX && !g->cap))
                return r;
        if (!can_send_home((CUdevice)g->index) || real.cuCtxGetCurrent(&owner) != CUDA_SUCCESS ||
            adopt(g, *dptr, bytesize, owner))
                return r;
        (void)real.cuMemFree_v2(*dptr);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

/* True if a cap counts managed memory at these addresses. */
static bool is_capped(CUdeviceptr address, uint64_t bytes)
{
        bool found = false;

        lock_acquire(&core_lock);
        for (unsigned i = 0; i < core.gpu_count; i++)
                found |= core.gpus[i].cap && heap_adopted(&core.gpus[i].heap, address, bytes);
        lock_release(&core_lock);
        return found;
}

/* True if the advice, which is only a hint, must not reach the driver. Memory with this advice
 * would be left to the driver, where no cap counts it. */
static bool is_withheld(CUdeviceptr address, uint64_t bytes, CUmem_advise advice)
{
        return advice == CU_MEM_ADVISE_SET_READ_MOSTLY && !core_passive() &&
               is_capped(address, bytes);
}

/* Memory that is read mostly is left to the driver, because moving it frees nothing: a prefetch
 * "will create a read-only copy of the data on the destination processor" (cuMemAdvise). */
static CUresult advised(CUresult r, CUdeviceptr address, uint64_t bytes, CUmem_advise advice)
{
        struct block *b;

        if (r != CUDA_SUCCESS || advice != CU_MEM_ADVISE_SET_READ_MOSTLY || core_passive())
                return r;
        lock_acquire(&core_lock);
        for (unsigned i = 0; i < core.gpu_count; i++)
                while ((b = heap_adopted(&core.gpus[i].heap, address, bytes)))
                        swap_disown(&core.gpus[i], b);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemAdvise(CUdeviceptr ptr, size_t count, CUmem_advise advice, CUdevice device)
{
        (void)core_setup();
        if (is_withheld(ptr, count, advice))
                return CUDA_SUCCESS;
        return advised(real.cuMemAdvise(ptr, count, advice, device), ptr, count, advice);
}

CUresult hook_cuMemAdvise_v2(CUdeviceptr ptr, size_t count, CUmem_advise advice,
                             CUmemLocation location)
{
        (void)core_setup();
        if (is_withheld(ptr, count, advice))
                return CUDA_SUCCESS;
        return advised(real.cuMemAdvise_v2(ptr, count, advice, location), ptr, count, advice);
}
