/* init.c: the life of the driver in a process: cuInit, fork, exit.
 * Must never take a lock in a child after fork, nor wait for user code at exit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/queue/capture.h"
#include "sim/api/checkpoint.h"
#include "sim/api/context.h"
#include "sim/mps/client.h"
#include "sim/session/fault.h"
#include "sim/call/objects.h"
#include "sim/rm/guard.h"
#include "sim/rm/rm.h"
#include "sim/space/space.h"
#include "sim/queue/stream.h"
#include "sim/space/trace.h"

static CUresult init_result;
static pthread_once_t init_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
        int ready = SIM_READY;

        /* As with the driver, the child cannot use the driver that its parent has initialized. */
        (void)atomic_compare_exchange_strong(&sim.state, &ready, SIM_FORKED);
        rm_abandon();
}

static void leave(void)
{
        int ready = SIM_READY;

        /* Running kernels and waiting threads see the flag and end. The exit does not wait for
         * them, because a host function may stay in user code for ever. */
        atomic_store(&sim.exiting, true);
        if (!atomic_compare_exchange_strong(&sim.state, &ready, SIM_LEFT))
                return;
        stream_abandon();
        channels_wake();
        guard_leave();
        session_leave(sim.session);
}

/* Makes the card of the calling thread vanish. */
static void lose_card(void)
{
        CUcontext c = context_current();
        unsigned device = c ? c->device : 0;

        trace_lost(device); /* the trace must show the loss before its consequences */
        atomic_store(&session_device(sim.session, device)->lost, true);
}

static const struct fault_acts acts = {.lose_card = lose_card,
                                       .await_thaw = channels_await_enabled};

static void init(void)
{
        int r = fault_setup(&acts);

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
        if (r == -ENOTUNIQ) { /* CUDA_VISIBLE_DEVICES names a card twice */
                init_result = CUDA_ERROR_INVALID_DEVICE;
                return;
        }
        if (r < 0) {
                if (r != -EINVAL) /* -EINVAL has been reported already */
                        sim_say("cannot set up the session: %s", strerror(-r));
                init_result = r == -EINVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NO_DEVICE;
                return;
        }
        sim.devices = session_device_count(sim.session);
        if (!sim.devices) { /* CUDA_VISIBLE_DEVICES shows none */
                session_leave(sim.session);
                init_result = CUDA_ERROR_NO_DEVICE;
                return;
        }
        if (mps_takes_part())
                session_note_mps(sim.session);
        /* The trace gets a line with 0 bytes, because this process may have been another program
         * before exec(). */
        for (unsigned d = 0; d < sim.devices; d++)
                trace_card(d);
        (void)pthread_atfork(NULL, NULL, forked);
        /* As with the driver, exit handlers that the program registers later may still call CUDA.
         */
        (void)atexit(leave);
        checkpoint_setup();
        atomic_store_explicit(&sim.state, SIM_READY, memory_order_release);
}

EXPORT CUresult cuInit(unsigned int flags)
{
        int state = atomic_load_explicit(&sim.state, memory_order_acquire);
        CUresult r;

        if (flags != 0)
                return CUDA_ERROR_INVALID_VALUE;
        if (state == SIM_FORKED)
                return CUDA_ERROR_NOT_INITIALIZED;
        if (state == SIM_LEFT)
                return CUDA_ERROR_DEINITIALIZED;
        /* A program may try again without MPS; it is not known whether the driver lets it. */
        r = mps_join(contexts_fail);
        if (r != CUDA_SUCCESS)
                return r;
        (void)pthread_once(&init_once, init);
        if (init_result == CUDA_SUCCESS)
                return (CUresult)fault_check(__func__);
        return init_result;
}
