/* api.c: the way into every call, and the life of the driver in a process: cuInit, fork, exit.
 * Must never take a lock in a child after fork, nor wait for user code at exit. */
#include "sim/api/sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/stream/capture.h"
#include "sim/session/fault.h"
#include "sim/api/objects.h"
#include "sim/rm/rm.h"
#include "sim/memory/space.h"
#include "sim/stream/stream.h"
#include "sim/session/trace.h"

enum api_state { STATE_NEW, STATE_READY, STATE_FORKED, STATE_LEFT };

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};
__thread bool api_in_callback;
__thread unsigned api_per_thread;

static _Atomic int api_state;
static CUresult api_init_result;
static pthread_once_t api_once = PTHREAD_ONCE_INIT;

void sim_say(const char *format, ...)
{
        char line[512] = "simcuda: ";
        size_t n = strlen(line);
        va_list ap;
        int r;

        va_start(ap, format);
        r = vsnprintf(line + n, sizeof(line) - n - 1, format, ap);
        va_end(ap);
        if (r < 0)
                return;
        n = strlen(line);
        line[n++] = '\n';
        /* One write, so that lines of several processes do not mix. */
        if (write(STDERR_FILENO, line, n) < 0)
                return;
}

static void api_forked(void)
{
        int ready = STATE_READY;

        /* As with the driver: what the parent set up is not usable here. */
        (void)atomic_compare_exchange_strong(&api_state, &ready, STATE_FORKED);
        rm_abandon();
}

static void api_leave(void)
{
        int ready = STATE_READY;

        /* Running kernels see it and end; threads that wait do so too. Nobody is waited for: a host
         * function may be in user code for ever. */
        atomic_store(&sim.exiting, true);
        if (!atomic_compare_exchange_strong(&api_state, &ready, STATE_LEFT))
                return;
        stream_abandon();
        channels_wake();
        session_leave(sim.session);
}

static void api_init(void)
{
        int r = fault_setup();

        if (r == 0)
                r = trace_setup();
        if (r == 0)
                r = session_join(true, &sim.session);
        if (r == 0)
                r = space_setup();
        if (r == 0)
                r = rm_setup();
        if (r == 0)
                r = queues_setup();
        if (r < 0) {
                if (r != -EINVAL) /* that one has been told */
                        sim_say("cannot set up the session: %s", strerror(-r));
                api_init_result = r == -EINVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NO_DEVICE;
                return;
        }
        sim.devices = session_device_count(sim.session);
        for (unsigned d = 0; d < sim.devices; d++)
                trace_card(d); /* nothing: before exec() this process may have been another one */
        (void)pthread_atfork(NULL, NULL, api_forked);
        (void)atexit(api_leave); /* as the driver: handlers registered later still find it there */
        atomic_store_explicit(&api_state, STATE_READY, memory_order_release);
}

EXPORT CUresult cuInit(unsigned int flags)
{
        int state = atomic_load_explicit(&api_state, memory_order_acquire);

        if (flags != 0)
                return CUDA_ERROR_INVALID_VALUE;
        if (state == STATE_FORKED)
                return CUDA_ERROR_NOT_INITIALIZED;
        if (state == STATE_LEFT)
                return CUDA_ERROR_DEINITIALIZED;
        (void)pthread_once(&api_once, api_init);
        if (api_init_result == CUDA_SUCCESS)
                return (CUresult)fault_check(__func__);
        return api_init_result;
}

/* A card that has vanished: what was submitted to it has failed, nothing new is taken. */
static CUresult api_lost(unsigned flags)
{
        CUcontext c = context_current();

        if (flags & API_BEFORE_INIT ||
            likely(!session_device(sim.session, c ? c->device : 0)->lost))
                return CUDA_SUCCESS;
        return flags & API_CONTEXT ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

bool api_usable(void)
{
        return atomic_load_explicit(&api_state, memory_order_acquire) == STATE_READY;
}

void fault_lose_card(void)
{
        CUcontext c = context_current();
        unsigned device = c ? c->device : 0;

        trace_lost(device); /* first: the line comes before whatever comes of it */
        atomic_store(&session_device(sim.session, device)->lost, true);
}

void fault_await_thaw(void)
{
        channels_await_enabled();
}

CUresult api_enter(const char *function, unsigned flags, CUcontext *ret_context)
{
        int state = atomic_load_explicit(&api_state, memory_order_acquire);
        CUresult r;

        if (state != STATE_READY) {
                if (flags & API_BEFORE_INIT)
                        return CUDA_SUCCESS;
                return state == STATE_LEFT ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
        }
        if (api_in_callback && !(flags & API_BEFORE_INIT))
                return CUDA_ERROR_NOT_PERMITTED;
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
