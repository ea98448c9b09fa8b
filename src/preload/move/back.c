/* back.c: owns how the program's threads put memory behind new allocations, at the gate. Must never
 * take more than the limit allows, nor wait without being woken. */
#include <errno.h>

#include "base/clock.h"
#include "preload/move/extent.h"
#include "preload/move/swap.h"
#include "preload/move/swap_state.h"
#include "preload/move/trouble.h"
#include "preload/state/core.h"
#include "preload/state/request.h"
#include "preload/stream/gate.h"
#include "preload/stream/quiesce.h"

/* Create memory for a claimed extent. */
static CUresult back_extent(struct gpu *g, struct extent *e, struct passed *shed) UNLOCKS(core_lock)
{
        CUstreamCaptureMode mode;
        CUresult r;

        lock_release(&core_lock);
        passed_close(shed);
        mode = core_relax();
        r = extent_map(g, e, -EBADF);
        core_unrelax(mode);
        lock_acquire(&core_lock);
        if (r == CUDA_SUCCESS)
                swap_arrived(g, e);
        else
                swap_unclaim(g, e, r);
        return r;
}

/* Back all allocated extents of a GPU. False: the lease was lost during a wait. Lock held. */
static bool back_gpu(struct gpu *g) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "GPU memory"};

        while (heap_missing(&g->heap) > 0 && !core_passive()) {
                struct extent *e = choose_by_state(g, EXTENT_UNBACKED);
                struct passed shed;

                if (!core.running)
                        return false;
                if (!e) {
                        core_wait(&w, NSEC_PER_SEC); /* other threads are backing the rest */
                } else if (trouble_waits(g)) {
                        core_wait(&w, 10 * NSEC_PER_MSEC);
                } else if (!swap_claim(g, e, &shed)) {
                        request_kick();
                        core_wait(&w, NSEC_PER_SEC);
                } else if (back_extent(g, e, &shed) != CUDA_SUCCESS) {
                        core_wait(&w, 10 * NSEC_PER_MSEC);
                }
        }
        return true;
}

/* Wait while this process gives way (giveway.h) and so must take no memory. */
static void come_in(void) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "its turn to take memory"};

        core.waiters++;
        while (core.giveway.out && !core_passive()) {
                request_kick();
                core_wait(&w, NSEC_PER_SEC);
        }
        core.waiters--;
}

int swap_back_block(struct gpu *g, struct block *b)
{
        come_in();
        for (unsigned i = 0; i < b->extent_count; i++) {
                struct extent *e = &b->extents[i];
                struct passed shed;

                if (e->state == EXTENT_UNBACKED && e->live && swap_claim(g, e, &shed) &&
                    back_extent(g, e, &shed) != CUDA_SUCCESS)
                        return -ENOMEM;
        }
        return 0;
}

void swap_back_new(struct gpu *g)
{
        struct passed shed;
        struct extent *e;

        while (core.running && heap_missing(&g->heap) > 0 && !quiesce_capturing() &&
               !core_passive() && !trouble_waits(g) && (e = choose_by_state(g, EXTENT_UNBACKED)) &&
               swap_claim(g, e, &shed))
                if (back_extent(g, e, &shed) != CUDA_SUCCESS)
                        return;
}

/* Back allocated extents that have no memory yet, as far as the limit allows, and wait for the
 * daemon to raise the limit. The thread waits at the gate, outside the driver; lock not held. */
static void back_new(uint64_t work)
{
        bool all = true;

        lock_acquire(&core_lock);
        core.waiters++;
        for (unsigned i = 0; i < core.gpu_count && all; i++)
                if (core.gpus[i].managed)
                        all = back_gpu(&core.gpus[i]);
        core.waiters--;
        for (unsigned i = 0; i < core.gpu_count; i++)
                all = all && (!core.gpus[i].managed || heap_missing(&core.gpus[i].heap) == 0);
        if (all)
                gate_open(GATE_UNBACKED);
        request_kick();
        lock_release(&core_lock);
}

void swap_setup(void)
{
        gate_own(GATE_UNBACKED, back_new);
}
