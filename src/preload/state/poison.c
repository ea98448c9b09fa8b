/* poison.c: owns the list of errors that end a GPU for this process, and the record of the first
 * one.
 * Why: docs/decisions.md, "A failed driver call of our own is made again, and a GPU is given up
 * only after a test" and "A failed context is noticed, not looked for". */
#include "preload/state/poison.h"

#include "base/log.h"
#include "preload/state/core.h"
#include "preload/state/part.h"
#include "preload/state/request.h"

bool poison_sticks(CUresult r)
{
        switch (r) {
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_CONTAINED:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_TENSOR_MEMORY_LEAK:
        case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        case CUDA_ERROR_EXTERNAL_DEVICE:
                return true;
        default:
                return false;
        }
}

void poison_give_up(struct gpu *g, CUresult why)
{
        log_debug("GPU %u: error %d; what was in its memory is given back", g->index, (int)why);
        __atomic_store_n(&g->error, why, __ATOMIC_RELAXED);
        request_report(g);
        request_kick(); /* even if an earlier report is pending */
}

bool poison_note(struct gpu *g, CUresult r)
{
        if (!poison_sticks(r))
                return false;
        if (!g->error) {
                poison_give_up(g, r);
                FOR_EACH_PART (p, failed) {
                        p->failed(g, r);
                }
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
        if (r == CUDA_SUCCESS && device >= 0 && device < GPUS_MAX)
                r = __atomic_load_n(&core.gpus[device].error, __ATOMIC_RELAXED);
        return r;
}
