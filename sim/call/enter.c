/* enter.c: the checks that begin every call. Must never take a lock in a child after fork. */
#include "base/macros.h"
#include "sim/call/captures.h"
#include "sim/call/locked.h"
#include "sim/session/fault.h"

/* Returns an error if the card has vanished: submitted work has failed, and calls are refused. */
static CUresult api_lost(unsigned flags)
{
        CUcontext c = context_current();

        if (flags & API_BEFORE_INIT ||
            likely(!session_device(sim.session, c ? c->device : 0)->lost))
                return CUDA_SUCCESS;
        return flags & API_CONTEXT ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult api_enter(const char *function, unsigned flags, CUcontext *ret_context)
{
        int state = atomic_load_explicit(&sim.state, memory_order_acquire);
        CUresult r;

        if (state != SIM_READY) {
                if (flags & API_BEFORE_INIT)
                        return CUDA_SUCCESS;
                return state == SIM_LEFT ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
        }
        if (sim_in_callback && !(flags & API_BEFORE_INIT))
                return CUDA_ERROR_NOT_PERMITTED;
        if (unlikely(atomic_load_explicit(&sim.locked, memory_order_relaxed)) &&
            !(flags & (API_BEFORE_INIT | API_WHILE_LOCKED)))
                calls_await_unlock();
        r = (CUresult)fault_check(function);
        if (r == CUDA_SUCCESS)
                r = api_lost(flags);
        if (r != CUDA_SUCCESS)
                return r;
        if (flags & API_CONTEXT) {
                CUcontext c = context_current();

                if (!c)
                        return CUDA_ERROR_INVALID_CONTEXT;
                if (!c->alive)
                        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
                r = (CUresult)atomic_load_explicit(c->error, memory_order_relaxed);
                if (r != CUDA_SUCCESS)
                        return r;
                if (ret_context)
                        *ret_context = c;
        }
        if (flags & API_UNSAFE)
                return capture_unsafe();
        return CUDA_SUCCESS;
}
