/* poison.c: owns what becomes of a process's memory on a GPU that one of its contexts has failed
 * on. Must never wait for a transfer: the agent makes them itself. */
#include "preload/state/poison.h"

#include "base/log.h"
#include "preload/agent/agent.h"
#include "preload/state/core.h"
#include "preload/freeze/freeze.h"
#include "preload/heap/heap.h"
#include "preload/move/swap.h"

static bool error_is_sticky(CUresult r)
{
        switch (r) {
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
                return true;
        default:
                return false;
        }
}

bool poison_note(struct gpu *g, CUresult r)
{
        if (!error_is_sticky(r))
                return false;
        if (!g->error) {
                log_debug("GPU %u: sticky error %d; what was in its memory is given back", g->index,
                          (int)r);
                __atomic_store_n(&g->error, r, __ATOMIC_RELAXED);
                freeze_blame(g, r);
                agent_figures(g);
                agent_kick(); /* whatever there was to tell before */
        }
        return true;
}

CUresult poison_current(void)
{
        bool any = false;
        CUdevice device;
        CUresult r;

        for (unsigned i = 0; i < core.gpu_count; i++)
                any = any || __atomic_load_n(&core.gpus[i].error, __ATOMIC_RELAXED);
        if (!any)
                return CUDA_SUCCESS;
        r = real.cuCtxGetDevice(&device);
        if (r == CUDA_SUCCESS && device >= 0 && device < CORE_GPUS_MAX)
                r = __atomic_load_n(&core.gpus[device].error, __ATOMIC_RELAXED);
        return r;
}

static bool block_is_busy(const struct block *b)
{
        if (b->held)
                return true;
        for (unsigned i = 0; i < b->extent_count; i++)
                if (b->extents[i].busy)
                        return true;
        return false;
}

static bool poison_gpu(struct gpu *g)
{
        struct block *b, **link = &g->lost;

        /* From here on the program's calls about them go to the driver, which answers the error. */
        while ((b = heap_orphan(&g->heap, NULL))) {
                b->next_late = g->lost;
                g->lost = b;
        }
        while (*link) {
                b = *link;
                if (block_is_busy(b)) {
                        link = &b->next_late; /* a copy that has not met the error yet */
                        continue;
                }
                *link = b->next_late;
                (void)swap_empty(g, b);
                link = &g->lost; /* the lock was given up meanwhile */
        }
        return g->lost != NULL;
}

bool poison_step(void)
{
        bool more = false;

        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];

                if (g->managed && g->error && g->heap.allocated > 0)
                        more = poison_gpu(g) || more;
        }
        return more;
}
