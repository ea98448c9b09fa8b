/* gate.c: owns the gate's state and the threads' marks. Must never hold core.lock across a driver
 * call that submits. */
#include "preload/gate.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "preload/agent.h"
#include "preload/bound.h"
#include "preload/core.h"
#include "preload/interrupt.h"
#include "preload/libc_compat.h"
#include "preload/poison.h"
#include "preload/profile.h"
#include "preload/quiet.h"
#include "preload/swap.h"
#include "preload/torture.h"

#define GATE_STORES_NS (10 * NSEC_PER_MSEC) /* what a processor has stored is seen by then */

_Atomic uint32_t gate_bits = GATE_UNREADY;
__thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

struct gate_thread gate_interrupted;

static struct gate_thread
        *_Atomic gate_threads; /* never shortened: records of ended threads are used again */
static pthread_key_t gate_key;
static bool gate_key_made;
static _Atomic bool gate_membarrier;

static int membarrier(int command)
{
        return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* Counted once a thread, however often it begins to wait: a signal handler may jump out of a wait,
 * and what it left raised is taken back when the thread passes again or ends. core.lock held. */
static void gate_set_waiting(struct gate_thread *t, bool waiting)
{
        if (t->waiting == waiting)
                return;
        t->waiting = waiting;
        if (!waiting)
                core.waiters--;
        else if (++core.waiters == 1)
                agent_kick();
}

static void gate_stop_waiting(struct gate_thread *t)
{
        lock_acquire(&core.lock);
        gate_set_waiting(t, false);
        lock_release(&core.lock);
}

static void gate_thread_ended(void *record)
{
        struct gate_thread *t = record;

        /* Destructors that run later may submit. The thread then takes a record again, and its key
         * is due in the next round; after the last round a record is left over, not raised. */
        gate_self = NULL;
        if (t->waiting && !core_passive())
                gate_stop_waiting(t);
        if (!core_passive())
                bound_forget_thread(t);
        if (quiet_capturing() && !core_passive()) {
                lock_acquire(&core.lock);
                quiet_thread_ended(t);
                lock_release(&core.lock);
        }
        atomic_store_explicit(&t->inside, 0, memory_order_relaxed);
        atomic_store_explicit(&t->looks, 0, memory_order_relaxed);
        atomic_store_explicit(&t->in_use, false, memory_order_release);
}

void gate_setup(void)
{
        gate_key_made = compat_pthread_key_create(&gate_key, gate_thread_ended) == 0;
        gate_membarrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
        if (!gate_membarrier)
                atomic_fetch_or(&gate_bits, GATE_FENCE);
}

/* A record for the calling thread: one whose thread has ended, or a new one. NULL: no memory. */
static struct gate_thread *gate_register(void)
{
        struct gate_thread *t;

        for (t = atomic_load(&gate_threads); t; t = t->next) {
                bool expected = false;

                if (atomic_compare_exchange_strong(&t->in_use, &expected, true))
                        break;
        }
        if (!t) {
                void *memory = NULL;

                if (posix_memalign(&memory, 64, sizeof(*t)) != 0)
                        return NULL;
                t = memory;
                memset(t, 0, sizeof(*t));
                atomic_store(&t->in_use, true);
                t->next = atomic_load(&gate_threads);
                while (!atomic_compare_exchange_weak(&gate_threads, &t->next, t))
                        ;
        }
        gate_self = t;
        if (gate_key_made)
                (void)compat_pthread_setspecific(gate_key, t);
        return t;
}

struct gate_thread *gate_look_begin(void)
{
        struct gate_thread *t = gate_self ? gate_self : gate_register();

        if (t)
                atomic_store_explicit(&t->looks,
                                      atomic_load_explicit(&t->looks, memory_order_relaxed) + 1,
                                      memory_order_relaxed);
        return t;
}

/* membarrier(2) worked and does not any more: the program has closed a sandbox behind it. Passing
 * threads fence once they see the bit; the marks of those that loaded the bits before arrive soon,
 * though nothing orders them (docs/decisions.md, "The gate works without membarrier"). */
static void gate_go_over_to_fences(void)
{
        const uint64_t until = clock_now_ns() + GATE_STORES_NS;

        atomic_fetch_or(&gate_bits, GATE_FENCE);
        for (uint64_t now; (now = clock_now_ns()) < until;)
                (void)syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = (long)(until - now)},
                              NULL); /* not nanosleep(): a cancelled thread would end there */
        /* Last: others that shut meanwhile wait for themselves. */
        atomic_store(&gate_membarrier, false);
}

void gate_shut(enum gate_bits why)
{
        atomic_fetch_or(&gate_bits, why);
        /* Every thread has now either seen the bit or marked itself inside where we will see it. */
        if (!atomic_load(&gate_membarrier))
                atomic_thread_fence(memory_order_seq_cst);
        else if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
                gate_go_over_to_fences();
}

void gate_open(enum gate_bits why)
{
        atomic_fetch_and(&gate_bits, ~(uint32_t)why);
}

bool gate_anybody_inside(void)
{
        for (struct gate_thread *t = atomic_load(&gate_threads); t; t = t->next)
                if (atomic_load_explicit(&t->inside, memory_order_acquire) > 0)
                        return true;
        return false;
}

bool gate_anybody_looks(void)
{
        for (struct gate_thread *t = atomic_load(&gate_threads); t; t = t->next)
                if (atomic_load_explicit(&t->inside, memory_order_acquire) > 0 &&
                    atomic_load_explicit(&t->looks, memory_order_acquire) > 0)
                        return true;
        return false;
}

unsigned gate_default_streams(void)
{
        unsigned all = 0;

        for (struct gate_thread *t = atomic_load(&gate_threads); t; t = t->next)
                all |= atomic_load_explicit(&t->defaults, memory_order_relaxed);
        return all;
}

uint64_t gate_submissions(void)
{
        uint64_t sum = 0;

        for (struct gate_thread *t = atomic_load(&gate_threads); t; t = t->next)
                sum += atomic_load_explicit(&t->submissions, memory_order_relaxed);
        return sum;
}

void gate_forget_threads(void)
{
        /* After fork only the calling thread exists. */
        for (struct gate_thread *t = atomic_load(&gate_threads); t; t = t->next) {
                atomic_store_explicit(&t->inside, 0, memory_order_relaxed);
                atomic_store_explicit(&t->looks, 0, memory_order_relaxed);
        }
}

static void gate_mark(struct gate_thread *t, bool inside)
{
        uint32_t depth = atomic_load_explicit(&t->inside, memory_order_relaxed);

        atomic_store_explicit(&t->inside, inside ? depth + 1 : depth - 1, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
}

static bool gate_is_capturing(CUstream stream)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        /* Captured work does not run now, so it may pass; and it must: the capture has to end
         * before a drain can. */
        return quiet_capturing() && real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
               status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Wait for the lease; not marked inside, core.lock not held. NULL: look again. t: it passes without
 * one, marked inside, because the context has failed: the driver takes nothing and says so. */
static struct gate_thread *gate_wait_for_lease(struct gate_thread *t, bool may_end)
{
        struct core_wait w = {.what = "its turn on the GPU"};
        struct interrupt_wait interrupted = {0};
        const bool frozen = atomic_load(&gate_bits) & GATE_FROZEN;

        if (poison_current()) {
                gate_mark(t, true);
                return t;
        }
        if (may_end)
                interrupt_begin(&interrupted);
        lock_acquire(&core.lock);
        gate_set_waiting(t, true);
        while (!core.running && !core_passive()) {
                /* Before asking: that gives the lock up, and a signal comes at any moment. */
                uint32_t heard = bell_listen(&core.changed);
                uint64_t timeout_ns = UINT64_MAX;

                if (frozen && !(atomic_load(&gate_bits) & GATE_FROZEN))
                        break; /* it is drained: a capture has to end */

                if (may_end && interrupt_ends(&interrupted, &timeout_ns)) {
                        gate_set_waiting(t, false);
                        lock_release(&core.lock);
                        return &gate_interrupted;
                }
                core_wait_since(&w, heard, timeout_ns);
        }
        gate_set_waiting(t, false);
        lock_release(&core.lock);
        return NULL;
}

static void gate_wait_until_released(void)
{
        struct core_wait w = {.what = "its own memory"};

        lock_acquire(&core.lock);
        while (atomic_load(&gate_bits) & GATE_HELD && !core_passive())
                core_wait(&w, UINT64_MAX);
        lock_release(&core.lock);
}

struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                    bool may_end)
{
        struct gate_thread *answer;

        if (core_passive()) {
                if (t)
                        gate_mark(t, false);
                return NULL;
        }
        if (!t) {
                t = gate_register();
                if (!t)
                        return NULL;
                gate_note_default(t, stream);
                gate_mark(t, true);
        } else {
                atomic_thread_fence(memory_order_seq_cst);
        }
        if (atomic_load_explicit(&t->inside, memory_order_relaxed) > 1)
                return t;
        if (unlikely(t->waiting))
                gate_stop_waiting(t);
        if (atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_TORTURE) {
                gate_mark(t, false);
                torture_call();
                gate_mark(t, true);
        }
        if (atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_PROFILE) {
                gate_mark(t, false);
                profile_submission(work);
                gate_mark(t, true);
        }
        for (;;) {
                uint32_t bits = atomic_load_explicit(&gate_bits, memory_order_acquire) &
                                ~(uint32_t)(GATE_FENCE | GATE_TORTURE | GATE_PROFILE);

                if (bits == 0)
                        return t;
                if ((bits & (GATE_NO_LEASE | GATE_UNBACKED | GATE_FROZEN)) == GATE_NO_LEASE &&
                    gate_is_capturing(stream))
                        return t;
                if (bits & (GATE_UNREADY | GATE_NO_LEASE | GATE_UNBACKED)) {
                        gate_mark(t, false);
                        if (bits & GATE_UNREADY)
                                (void)core_setup();
                        else if (!(bits & GATE_NO_LEASE))
                                swap_back_new();
                        else if ((answer = gate_wait_for_lease(t, may_end)))
                                return answer;
                        if (core_passive())
                                return NULL;
                        gate_mark(t, true);
                        continue;
                }
                if (bits & GATE_HELD) {
                        gate_mark(t, false);
                        gate_wait_until_released();
                        if (core_passive())
                                return NULL;
                        gate_mark(t, true);
                        continue;
                }
                if (bits & GATE_TELL)
                        agent_active();
                if (bits & GATE_BOUND && !bound_pass(stream)) {
                        gate_mark(t, false);
                        bound_wait(stream);
                        gate_mark(t, true);
                        continue;
                }
                return t;
        }
}
