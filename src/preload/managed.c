/* managed.c: owns what is done with managed memory. Must never fail an allocation of the program's
 * own that the driver has granted: what cannot be counted passes through. */
#include "preload/managed.h"

#include <errno.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/agent.h"
#include "preload/core.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/mode.h"

#define HOME_TRIES   12u
#define HOME_MATCHES 3u

/* Only where processor and GPU may use it at the same time can it be sent home in between. */
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
                            "SUBLET_MEMORY=managed does not apply",
                            g->index);
}

static bool card_free(uint64_t *ret)
{
        size_t free_bytes, total;

        if (real.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
                return false;
        *ret = free_bytes;
        return true;
}

static bool is_about(uint64_t more, uint64_t less, uint64_t bytes)
{
        return more >= less + bytes - bytes / 16 && more <= less + bytes + bytes / 16;
}

/* Touch it on the card and send it home: did the card's free memory follow both times, by just as
 * much? Others come and go meanwhile, so one time says little. */
static bool home_frees_once(CUdeviceptr probe, uint64_t bytes, CUstream s)
{
        uint64_t before, there, after;

        return card_free(&before) && real.cuMemsetD8Async(probe, 1, bytes, s) == CUDA_SUCCESS &&
               real.cuStreamSynchronize(s) == CUDA_SUCCESS && card_free(&there) &&
               real.cuMemPrefetchAsync(probe, bytes, CU_DEVICE_CPU, s) == CUDA_SUCCESS &&
               real.cuStreamSynchronize(s) == CUDA_SUCCESS && card_free(&after) &&
               is_about(before, there, bytes) && is_about(after, there, bytes);
}

void managed_try_home(struct gpu *g)
{
        uint64_t bytes = MIN(g->total / 128 & ~(64 * KIB - 1), 34 * MIB); /* no extent's size */
        unsigned matches = 0;
        CUstreamCaptureMode mode;
        static struct lock once;
        CUdeviceptr probe;
        uint64_t room;
        CUstream s;

        if (__atomic_load_n(&g->home_tried, __ATOMIC_ACQUIRE))
                return;
        mode = core_relax();
        lock_acquire(&once);
        if (!g->home_tried && card_free(&room) && room >= bytes + bytes / 2 &&
            real.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
                if (real.cuMemAllocManaged(&probe, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS) {
                        for (unsigned i = 0; i < HOME_TRIES && matches < HOME_MATCHES; i++)
                                matches += home_frees_once(probe, bytes, s);
                        (void)real.cuMemFree_v2(probe);
                        g->home_frees = matches == HOME_MATCHES;
                        __atomic_store_n(&g->home_tried, true, __ATOMIC_RELEASE);
                        log_debug("GPU %u: managed memory that is sent home %s", g->index,
                                  g->home_frees ? "leaves the card"
                                                : "keeps its pages: it is not moved");
                }
                (void)real.cuStreamDestroy_v2(s);
        }
        lock_release(&once);
        core_unrelax(mode);
}

int managed_provide(struct gpu *g, uint64_t bytes)
{
        CUstreamCaptureMode mode;
        CUdeviceptr address = 0;
        CUresult r;

        lock_release(&core.lock);
        managed_try_home(g);
        mode = core_relax();
        r = real.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
        core_unrelax(mode);
        lock_acquire(&core.lock);
        if (r != CUDA_SUCCESS)
                return -ENOMEM;
        if (heap_provide(&g->heap, address, bytes) == 0)
                return 0;
        (void)real.cuMemFree_v2(address); /* was never used: nothing to wait for */
        return -ENOMEM;
}

/* Count it like memory of ours, if the daemon can promise the room; where not, it is as on the
 * plain driver, and what of it is on the GPU is seen there. */
static void adopt(struct gpu *g, CUdeviceptr address, uint64_t bytes, CUcontext owner)
{
        uint64_t cost;
        int r;

        managed_try_home(g);
        lock_acquire(&core.lock);
        for (;;) {
                uint64_t max = MIN(g->commit, sub_sat(g->visible, g->fixed));

                r = heap_adopt(&g->heap, address, bytes, owner, max, &cost);
                if (r != -ENOSPC || cost > sub_sat(g->visible, g->heap.allocated + g->fixed) ||
                    hooks_commit(g, cost) < 0)
                        break;
        }
        if (r == 0) {
                gate_shut(GATE_UNBACKED);
                g->usage_dirty = true;
                g->commit_used_ns = clock_now_ns();
        } else {
                log_debug("GPU %u: %llu MiB of managed memory are left to the driver", g->index,
                          (unsigned long long)(bytes >> 20));
        }
        lock_release(&core.lock);
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
        CUcontext owner = NULL;
        struct gpu *g;
        CUresult r;

        (void)core_setup();
        r = real.cuMemAllocManaged(dptr, bytesize, flags);
        if (r == CUDA_ERROR_OUT_OF_MEMORY && hooks_make_room()) {
                r = real.cuMemAllocManaged(dptr, bytesize, flags);
                if (r == CUDA_ERROR_OUT_OF_MEMORY)
                        hooks_return_room();
        }
        /* Small pieces are not worth their bookkeeping; they are seen on the GPU. */
        if (r != CUDA_SUCCESS || bytesize <= HEAP_SMALL_MAX)
                return r;
        g = core_current_gpu();
        if (g && g->attached && can_send_home((CUdevice)g->index) &&
            real.cuCtxGetCurrent(&owner) == CUDA_SUCCESS)
                adopt(g, *dptr, bytesize, owner);
        return r;
}
