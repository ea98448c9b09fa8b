/* gate.c: owns the gate's state and the threads' marks. Must never hold core_lock across a driver
 * call that submits.
 * Why: docs/decisions.md, "The gate works without membarrier" and "aarch64 is built from the same
 * source". */
#include "preload/stream/gate.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "preload/stream/throttle.h"
#include "preload/state/core.h"
#include "preload/state/request.h"
#include "preload/stream/interrupt.h"
#include "preload/process/libc_compat.h"
#include "preload/process/nap.h"
#include "preload/state/poison.h"
#include "preload/stream/quiesce.h"

#define GATE_STORES_NS (10 * NSEC_PER_MSEC) /* time until every thread's stores are visible */

_Atomic uint32_t gate_bits = GATE_UNREADY;
__thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

struct gate_thread gate_interrupted;

static struct gate_thread
        *_Atomic gate_threads; /* the list only grows: records of ended threads are reused */
static pthread_key_t gate_key;
static bool gate_key_made;
static _Atomic bool gate_membarrier;

static int membarrier(int command)
{
        return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* A thread is counted once, however often it begins to wait: a signal handler may jump out of a
 * wait, and the count is corrected when the thread passes again or ends. core_lock held. */
static void gate_set_waiting(struct gate_thread *t, bool waiting) REQUIRES(core_lock)
{
        if (t->waiting == waiting)
                return;
        t->waiting = waiting;
        if (!waiting)
                core.waiters--;
        else if (++core.waiters == 1)
                request_kick();
}

static void gate_stop_waiting(struct gate_thread *t)
{
        lock_acquire(&core_lock);
        gate_set_waiting(t, false);
        lock_release(&core_lock);
}

static void gate_thread_ended(void *record)
{
        struct gate_thread *t = record;

        /* Destructors of other keys may run later and submit. The thread then takes a new record,
         * and this destructor runs again in the next round. After the last round such a record is
         * left over, not marked inside. */
        gate_self = NULL;
        if (t->waiting && !core_passive())
                gate_stop_waiting(t);
        if (!core_passive())
                throttle_forget_thread(t);
        if (quiesce_capturing() && !core_passive()) {
                lock_acquire(&core_lock);
                quiesce_thread_ended(t);
                lock_release(&core_lock);
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

/* Returns a record for the calling thread: that of an ended thread, or a new one. NULL: no
 * memory. */
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

/* Called when membarrier(2), which has worked before, fails: the program has entered a sandbox.
 * Threads that see GATE_FENCE use a fence. Other threads have loaded the bits before, so wait until
 * their marks are visible (docs/decisions.md, "The gate works without membarrier"). */
static void gate_go_over_to_fences(void)
{
        const uint64_t until = clock_now_ns() + GATE_STORES_NS;

        atomic_fetch_or(&gate_bits, GATE_FENCE);
        for (uint64_t now; (now = clock_now_ns()) < until;)
                (void)nap(until - now);
        /* Cleared last: until then other threads that shut the gate see the failure and wait. */
        atomic_store(&gate_membarrier, false);
}

void gate_shut(enum gate_bits why)
{
        atomic_fetch_or(&gate_bits, why);
        /* After the barrier every thread has either seen the bit or is visibly marked inside. */
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
        /* After fork only the calling thread exists, and no other thread is inside. */
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

        /* Captured work does not run now, so it may pass. It must pass: a drain cannot end before
         * the capture ends. */
        return quiesce_capturing() && real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
               status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Waits for the lease. The caller is not marked inside and does not hold core_lock. Returns NULL:
 * check the gate again. Returns t, marked inside: the context has failed, and the driver will
 * return the error. Returns &gate_interrupted: the call must end. */
static struct gate_thread *gate_wait_for_lease(struct gate_thread *t, bool may_end)
{
        struct core_wait w = {.told = true}; /* the agent tells the user (agent_notice.c) */
        struct interrupt_wait interrupted = {0};
        const bool frozen = atomic_load(&gate_bits) & GATE_FROZEN;

        if (poison_current()) {
                gate_mark(t, true);
                return t;
        }
        if (may_end)
                interrupt_begin(&interrupted);
        lock_acquire(&core_lock);
        gate_set_waiting(t, true);
        while (!core.running && !core_passive()) {
                /* Listen before interrupt_ends(), which gives up the lock: a ring in between must
                 * wake us. */
                uint32_t heard = bell_listen(&core.changed);
                uint64_t timeout_ns = UINT64_MAX;

                if (frozen && !(atomic_load(&gate_bits) & GATE_FROZEN))
                        break; /* a drain waits for the capture to end: check the gate again */

                if (may_end && interrupt_ends(&interrupted, &timeout_ns)) {
                        gate_set_waiting(t, false);
                        request_kick(); /* the wait that the agent may tell of is over */
                        lock_release(&core_lock);
                        return &gate_interrupted;
                }
                core_wait_since(&w, heard, timeout_ns);
        }
        gate_set_waiting(t, false);
        lock_release(&core_lock);
        return NULL;
}

static void gate_wait_until_released(void)
{
        struct core_wait w = {.what = "its own memory"};

        lock_acquire(&core_lock);
        while (atomic_load(&gate_bits) & GATE_HELD && !core_passive())
                core_wait(&w, UINT64_MAX);
        lock_release(&core_lock);
}

/* Tells the daemon that the program is no longer idle. */
static void gate_tell(void)
{
        lock_acquire(&core_lock);
        gate_open(GATE_TELL);
        core.submits = true;
        request_kick();
        lock_release(&core_lock);
}

/* ---- passing ---- */

static void (*owners[GATE_BITS])(uint64_t work);

void gate_own(enum gate_bits bit, void (*f)(uint64_t work))
{
        owners[__builtin_ctz(bit)] = f;
}

void gate_call_owner(enum gate_bits bit)
{
        owners[__builtin_ctz(bit)](0);
}

CUresult gate_refusal(void)
{
        CUresult r = poison_current();

        return r ? r : CUDA_ERROR_OPERATING_SYSTEM;
}

/* Returns the first bit that a thread has to handle outside the gate before it tries again. */
static uint32_t first_reason(uint32_t bits, CUstream stream)
{
        static const uint32_t in_order[] = {GATE_UNREADY, GATE_NO_LEASE, GATE_UNBACKED, GATE_HELD};

        if (bits & GATE_FAILED && poison_current())
                return GATE_FAILED;
        for (unsigned i = 0; i < sizeof(in_order) / sizeof(*in_order); i++)
                if (bits & in_order[i])
                        return in_order[i];
        if (bits & GATE_TELL)
                gate_tell();
        return bits & GATE_THROTTLE && !throttle_pass(stream) ? GATE_THROTTLE : 0;
}

/* Steps out of the gate and handles one reason. True: the thread is inside again and must check the
 * bits again. False: *ret_answer is the result of gate_enter(). */
static bool gate_step_out(struct gate_thread *t, uint32_t reason, CUstream stream, uint64_t work,
                          bool may_end, struct gate_thread **ret_answer)
{
        *ret_answer = NULL;
        gate_mark(t, false);
        switch (reason) {
        case GATE_UNREADY:
                (void)core_setup();
                gate_open(GATE_UNREADY);
                break;
        case GATE_NO_LEASE:
                *ret_answer = gate_wait_for_lease(t, may_end);
                break;
        case GATE_HELD:
                gate_wait_until_released();
                break;
        case GATE_FAILED:
                *ret_answer = may_end ? &gate_interrupted : t;
                if (!may_end)
                        gate_mark(t, true);
                break;
        case GATE_THROTTLE:
                throttle_wait(stream);
                break;
        default:
                owners[__builtin_ctz(reason)](work);
                break;
        }
        if (*ret_answer || core_passive())
                return false;
        gate_mark(t, true);
        return true;
}

struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                    bool may_end)
{
        static const uint32_t shown[] = {GATE_TORTURE,
                                         GATE_PROFILE}; /* no thread waits for these bits */
        struct gate_thread *answer;
        uint32_t reason;

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
        for (unsigned i = 0; i < sizeof(shown) / sizeof(*shown); i++)
                if (atomic_load_explicit(&gate_bits, memory_order_relaxed) & shown[i] &&
                    !gate_step_out(t, shown[i], stream, work, may_end, &answer))
                        return answer;
        do {
                uint32_t bits = atomic_load_explicit(&gate_bits, memory_order_acquire);

                if ((bits & (GATE_NO_LEASE | GATE_UNBACKED | GATE_FROZEN)) == GATE_NO_LEASE &&
                    gate_is_capturing(stream))
                        return t;
                reason = first_reason(bits, stream);
                if (!reason)
                        return t;
        } while (gate_step_out(t, reason, stream, work, may_end, &answer));
        return answer;
}
