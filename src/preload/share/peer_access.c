/* peer_access.c: owns the sets of GPUs for which the heap's memory is mapped. Must never touch an
 * extent that another thread has marked busy.
 * Why: docs/decisions.md, "The heap is mapped for all GPUs of a process". */
#include "preload/share/peer_access.h"

#include <stdlib.h>

#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/move/extent.h"
#include "preload/share/ipc.h"
#include "preload/stream/quiesce.h"
#include "preload/state/request.h"

/* Returns an extent that is not mapped for the present set of GPUs, or NULL. *ret_busy: another
 * thread is using some extent. */
static struct extent *find_other(struct gpu *g, bool *ret_busy)
{
        struct heap_cursor c = {0};
        struct extent *e;

        *ret_busy = false;
        while ((e = heap_walk(&g->heap, &c))) {
                if (e->block->kind == BLOCK_HANDLE || e->managed)
                        continue;
                if (e->busy)
                        *ret_busy = true;
                else if ((e->state == EXTENT_RESIDENT || e->state == EXTENT_MAPPED) &&
                         e->peers != g->peers)
                        return e;
        }
        return NULL;
}

/* Map all extents for the present set of GPUs. Extents that are mapped later get the set anyway. */
static void replay(struct gpu *g) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "a transfer of its own memory"};

        while (!core_passive()) {
                bool busy;
                struct extent *e = find_other(g, &busy);
                uint32_t peers = g->peers;
                CUstreamCaptureMode mode;

                if (!e && !busy)
                        return;
                if (!e) {
                        core_wait(&w, NSEC_PER_SEC);
                        continue;
                }
                e->busy = true;
                lock_release(&core_lock);
                mode = core_relax();
                extent_allow(e, peers);
                core_unrelax(mode);
                lock_acquire(&core_lock);
                e->busy = false;
                request_released();
        }
}

/* Returns the GPUs that can access this GPU's memory, as bits 1 << ordinal. */
static uint32_t reach(unsigned gpu)
{
        uint32_t devices = 0;

        for (unsigned i = 0; i < core.gpu_count; i++) {
                int can = 0;

                if (i != gpu && core.gpus[i].known &&
                    real.cuDeviceCanAccessPeer(&can, (CUdevice)i, (CUdevice)gpu) == CUDA_SUCCESS &&
                    can)
                        devices |= UINT32_C(1) << i;
        }
        return devices;
}

void peer_update(void)
{
        for (unsigned i = 0; i < core.gpu_count && core.gpu_count > 1; i++) {
                struct gpu *g = &core.gpus[i];
                uint32_t devices = g->managed ? reach(i) : 0;

                lock_acquire(&core_lock);
                for (unsigned k = 0; k < core.gpu_count; k++)
                        if (!quiesce_context_of(&core.gpus[k]))
                                devices &= ~(UINT32_C(1) << k);
                if (devices & ~g->peers) {
                        g->peers |= devices;
                        replay(g);
                        ipc_import_reach(g);
                }
                lock_release(&core_lock);
        }
}
