/* bounds.c: owns what each thread knows about the addresses that it has copied from and to. Must
 * never refuse a call that stays within one allocation.
 * Why: docs/decisions.md, "Copies and fills stay within one allocation". */
#include "preload/hooks/bounds.h"

#include "base/log.h"
#include "preload/share/ipc.h"
#include "preload/state/core.h"
#include "preload/state/poison.h"

__thread struct bounds_thread bounds_thread __attribute__((tls_model("initial-exec")));

static bool narrow(CUdeviceptr at, struct stretch *s) REQUIRES(core_lock)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].managed && !heap_narrow(&core.gpus[i].heap, at, s))
                        return false;
        return ipc_narrow(at, s);
}

/* A signal handler that copies memory must not take a half-written entry for a whole one. */
static void remember(const struct stretch *s) REQUIRES(core_lock)
{
        struct bounds_known *k = &bounds_thread.known[bounds_thread.looked++ % BOUNDS_KNOWN];

        k->changes = 0;
        atomic_signal_fence(memory_order_seq_cst);
        k->stretch = *s;
        atomic_signal_fence(memory_order_seq_cst);
        k->changes = atomic_load_explicit(&heap_changes, memory_order_relaxed);
}

/* True if an end of the range is in memory of ours. The driver checks its own memory. */
static bool is_ours(CUdeviceptr at, uint64_t bytes) REQUIRES(core_lock)
{
        struct heap_place p;
        struct gpu *g;

        return core_holds(at, bytes) || ipc_find(at, &p, &g);
}

/* True if the driver refuses every call of this thread, for a reason of its own. */
static bool driver_refuses(void)
{
        CUcontext current = NULL;

        if (real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
                return true;
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].ended == current)
                        return true;
        return poison_current() != CUDA_SUCCESS;
}

bool bounds_look(CUdeviceptr at, uint64_t bytes)
{
        struct stretch s = {0, UINT64_MAX};
        bool known, refused = false;

        if (bytes == 0 || core_passive())
                return true;
        lock_acquire(&core_lock);
        known = narrow(at, &s);
        if (known && bytes <= s.to - at)
                remember(&s);
        else
                refused = !known || is_ours(at, bytes);
        lock_release(&core_lock);
        if (!refused || driver_refuses())
                return true;
        log_debug("a copy or fill of %llu bytes at %#llx leaves its allocation, and is refused",
                  (unsigned long long)bytes, (unsigned long long)at);
        return false;
}
