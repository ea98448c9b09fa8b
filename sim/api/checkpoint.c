/* checkpoint.c: checkpoints of a process: its calls are locked, and its memory, contexts and
 * channels leave the cards and come back.
 *
 * Bytes stay where the simulator keeps them; what leaves a card is their charge. As with NVIDIA's
 * driver, a thread of the process itself takes the steps, so its requests to the resource manager
 * come from no thread of the program. */
#include "sim/api/checkpoint.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>

#include "base/macros.h"
#include "sim/api/context.h"
#include "sim/call/locked.h"
#include "sim/mps/client.h"
#include "sim/session/checkpoint.h"
#include "sim/session/session_time.h"
#include "sim/space/managed.h"
#include "sim/space/space.h"
#include "sim/space/trace.h"

/* Bytes and contexts that are off each card. */
static struct {
        uint64_t bytes;
        uint32_t contexts;
} away[SESSION_DEVICES];
static CUprocessState state = CU_PROCESS_STATE_RUNNING;

static CUresult lock(uint32_t timeout_ms)
{
        const uint64_t until_ns = session_now_ns() + timeout_ms * NSEC_PER_MSEC;

        if (state != CU_PROCESS_STATE_RUNNING)
                return CUDA_ERROR_ILLEGAL_STATE;
        calls_lock(true);
        while (!contexts_idle()) {
                if ((timeout_ms && session_now_ns() >= until_ns) ||
                    !checkpoint_is_awaited(sim.session)) {
                        calls_lock(false);
                        return CUDA_ERROR_NOT_READY;
                }
                session_sleep_until(session_now_ns() + NSEC_PER_MSEC);
        }
        state = CU_PROCESS_STATE_LOCKED;
        return CUDA_SUCCESS;
}

static bool has_range(bool (*matches)(const struct range *r))
{
        const struct range *r;
        bool found = false;

        space_lock_shared();
        for (size_t i = 0; (r = space_range_at(i)) && !found; i++)
                found = matches(r);
        space_unlock();
        return found;
}

static bool is_managed(const struct range *r)
{
        return r->kind == RANGE_MANAGED;
}

static bool is_imported(const struct range *r)
{
        return r->physical && r->physical->origin == PHYSICAL_IMPORTED;
}

static void cross_the_bus(unsigned device, enum session_direction direction, uint64_t bytes)
{
        session_sleep_until(
                session_bus_claim(sim.session, device, direction, session_now_ns(), bytes));
}

static CUresult save(void)
{
        if (state != CU_PROCESS_STATE_LOCKED)
                return CUDA_ERROR_ILLEGAL_STATE;
        if (has_range(is_managed))
                return CUDA_ERROR_NOT_SUPPORTED;
        if (!contexts_idle()) /* by a call that had begun before the lock */
                return CUDA_ERROR_NOT_READY;
        if (has_range(is_imported)) {
                state = CU_PROCESS_STATE_FAILED;
                return CUDA_ERROR_UNKNOWN;
        }
        contexts_leave_card();
        for (unsigned d = 0; d < sim.devices; d++) {
                struct session_use *own = session_own(sim.session, d);

                away[d].bytes = session_charged(sim.session, d);
                away[d].contexts = atomic_exchange(&own->contexts, 0);
                cross_the_bus(d, SESSION_TO_HOST, away[d].bytes);
                session_count(&own->counters.d2h_bytes, away[d].bytes);
                session_uncharge(sim.session, d, away[d].bytes);
                trace_card(d);
        }
        state = CU_PROCESS_STATE_CHECKPOINTED;
        return CUDA_SUCCESS;
}

/* A process that finds no room is lost (NVIDIA/cuda-checkpoint, issue 44). */
static CUresult fail(unsigned devices, CUresult why)
{
        for (unsigned d = 0; d < devices; d++)
                session_uncharge(sim.session, d, away[d].bytes);
        state = CU_PROCESS_STATE_FAILED;
        return why;
}

static CUresult restore(void)
{
        if (state != CU_PROCESS_STATE_CHECKPOINTED)
                return CUDA_ERROR_ILLEGAL_STATE;
        for (unsigned d = 0; d < sim.devices; d++)
                if (managed_charge(d, away[d].bytes) < 0)
                        return fail(d, CUDA_ERROR_OUT_OF_MEMORY);
        for (unsigned d = 0; d < sim.devices; d++) {
                struct session_use *own = session_own(sim.session, d);

                cross_the_bus(d, SESSION_TO_DEVICE, away[d].bytes);
                session_count(&own->counters.h2d_bytes, away[d].bytes);
        }
        if (contexts_return() != CUDA_SUCCESS)
                return fail(sim.devices, CUDA_ERROR_OPERATING_SYSTEM);
        for (unsigned d = 0; d < sim.devices; d++) {
                atomic_fetch_add(&session_own(sim.session, d)->contexts, away[d].contexts);
                trace_card(d);
        }
        state = CU_PROCESS_STATE_LOCKED;
        return CUDA_SUCCESS;
}

static CUresult unlock(void)
{
        if (state != CU_PROCESS_STATE_LOCKED)
                return CUDA_ERROR_ILLEGAL_STATE;
        state = CU_PROCESS_STATE_RUNNING;
        calls_lock(false);
        return CUDA_SUCCESS;
}

static CUresult take(enum checkpoint_step step, uint32_t timeout_ms)
{
        if (mps_takes_part())
                return CUDA_ERROR_NOT_SUPPORTED;
        switch (step) {
        case CHECKPOINT_LOCK:
                return lock(timeout_ms);
        case CHECKPOINT_SAVE:
                return save();
        case CHECKPOINT_RESTORE:
                return restore();
        case CHECKPOINT_UNLOCK:
                return unlock();
        case CHECKPOINT_NONE:
                break;
        }
        return CUDA_ERROR_INVALID_VALUE;
}

static void *serve(void *started)
{
        uint32_t timeout_ms;

        checkpoint_serve(sim.session);
        (void)sem_post(started);
        for (;;) {
                const enum checkpoint_step step = checkpoint_next(sim.session, &timeout_ms);
                CUresult r;

                if (atomic_load(&sim.exiting)) /* the slot may be another process's by now */
                        return NULL;
                r = take(step, timeout_ms);
                if (atomic_load(&sim.exiting))
                        return NULL;
                checkpoint_answer(sim.session, (int)r, (uint32_t)state);
        }
}

void checkpoint_setup(void)
{
        static sem_t started;
        sigset_t every, before;
        pthread_t thread;

        (void)sem_init(&started, 0, 0);
        (void)sigfillset(&every);
        (void)pthread_sigmask(SIG_SETMASK, &every, &before);
        if (pthread_create(&thread, NULL, serve, &started) == 0) {
                (void)pthread_detach(thread);
                while (sem_wait(&started) < 0 && errno == EINTR)
                        ;
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- entry points ---- */

static CUresult result_of(int r)
{
        return r == -ESRCH ? CUDA_ERROR_INVALID_VALUE
               : r < 0     ? CUDA_ERROR_OPERATING_SYSTEM
                           : (CUresult)r;
}

static CUresult ask(const char *function, int pid, enum checkpoint_step step, uint32_t timeout_ms)
{
        CUresult r = api_enter(function, API_WHILE_LOCKED, NULL);

        return r == CUDA_SUCCESS ? result_of(checkpoint_ask(sim.session, pid, step, timeout_ms))
                                 : r;
}

static CUresult find(const char *function, int pid, const struct session_checkpoint **ret)
{
        CUresult r = api_enter(function, API_WHILE_LOCKED, NULL);

        return r == CUDA_SUCCESS ? result_of(checkpoint_find(sim.session, pid, ret)) : r;
}

EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
        const struct session_checkpoint *c;
        CUresult r = tid ? find(__func__, pid, &c) : CUDA_ERROR_INVALID_VALUE;

        if (r == CUDA_SUCCESS)
                *tid = atomic_load(&c->thread);
        return r;
}

EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *ret_state)
{
        const struct session_checkpoint *c;
        CUresult r = ret_state ? find(__func__, pid, &c) : CUDA_ERROR_INVALID_VALUE;

        if (r == CUDA_SUCCESS)
                *ret_state = (CUprocessState)atomic_load(&c->state);
        return r;
}

EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
        return ask(__func__, pid, CHECKPOINT_LOCK, args ? args->timeoutMs : 0);
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
        (void)args;
        return ask(__func__, pid, CHECKPOINT_SAVE, 0);
}

EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
        if (args && args->gpuPairsCount) /* no process moves to another card here */
                return CUDA_ERROR_NOT_SUPPORTED;
        return ask(__func__, pid, CHECKPOINT_RESTORE, 0);
}

EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
        (void)args;
        return ask(__func__, pid, CHECKPOINT_UNLOCK, 0);
}
