/* gate.h: every call that submits work passes the gate.
 *
 * The gate is open most of the time, so passing costs only a nestable "inside" mark of the thread
 * and one load. The thread that shuts the gate puts the two in order by membarrier(2); where that
 * is refused, passing threads use a fence. A thread inside never waits at the gate again, so hooks
 * may nest. The process has one gate, because a lease covers all its GPUs. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"

/* Reasons why a thread at the gate may have to wait, or to do more than mark itself as inside. */
enum gate_bits {
        GATE_UNREADY = 1 << 0,  /* the library, or this thread, has not been set up */
        GATE_NO_LEASE = 1 << 1, /* no lease: wait for a grant */
        GATE_UNBACKED = 1 << 2, /* some allocated memory has no physical memory yet */
        GATE_TELL = 1 << 3,     /* the daemon believes that the program is idle: correct that */
        GATE_THROTTLE = 1 << 4, /* other programs wait: keep the work in flight short */
        GATE_FENCE = 1 << 5,    /* membarrier(2) is not available: passing threads use a fence */
        GATE_TORTURE = 1 << 6,  /* torture may choose to evict before this call */
        GATE_HELD = 1 << 7,     /* memory is being replaced: wait a moment */
        GATE_PROFILE = 1 << 8,  /* submissions are profiled (profile.h) */
        GATE_FROZEN = 1 << 9,   /* with GATE_NO_LEASE: captured calls wait, too */
        GATE_MEASURE = 1 << 10, /* submissions are counted and timed (measure.h): nobody waits */
        GATE_FAILED = 1 << 11, /* a GPU was given up (trouble.h): calls for it end with its error */
        GATE_BITS = 12,
};

/* The record of one thread, reused only after that thread has ended. Its thread writes it, the
 * agent reads it. */
struct gate_thread {
        _Atomic uint32_t inside; /* nesting depth */
        _Atomic uint32_t looks;  /* nested calls that look up which memory an address belongs to */
        _Atomic uint32_t defaults;    /* default streams that the thread ever used: 1 << handle */
        _Atomic uint64_t submissions; /* submissions of all threads that have used this record */
        bool waiting;                 /* the thread is counted in core.waiters; under core_lock */
        struct gate_thread *next;
        _Atomic bool in_use;
} __attribute__((aligned(64)));

extern _Atomic uint32_t gate_bits;
extern __thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

/* gate_enter_or_end() returns the address of this record for a call that must fail, with the error
 * that gate_refusal() returns. */
extern struct gate_thread gate_interrupted;
CUresult gate_refusal(void);

struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                    bool may_end);

/* Default streams have no handle of their own: a drain learns from this mark that they are used. */
static ALWAYS_INLINE void gate_note_default(struct gate_thread *t, CUstream stream)
{
        if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD) {
                uint32_t bit = 1u << (uintptr_t)stream;
                uint32_t seen = atomic_load_explicit(&t->defaults, memory_order_relaxed);

                if (unlikely(!(seen & bit)))
                        atomic_store_explicit(&t->defaults, seen | bit, memory_order_relaxed);
        }
}

/* Returns a name for work that takes about the same time: the operation, and the size rounded down
 * to a power of two. */
static inline uint64_t gate_work(uint64_t what, uint64_t size)
{
        return what << 6 | (size ? 63u - (unsigned)__builtin_clzll(size) : 0);
}

/* The fast path, for a thread that need not wait and is not inside yet. Returns the thread's
 * record, marked inside. NULL: call gate_enter(). */
static ALWAYS_INLINE struct gate_thread *gate_try(CUstream stream)
{
        struct gate_thread *t = gate_self;

        if (unlikely(!t) || atomic_load_explicit(&t->inside, memory_order_relaxed))
                return NULL;
        gate_note_default(t, stream);
        atomic_store_explicit(&t->inside, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        if (likely(atomic_load_explicit(&gate_bits, memory_order_acquire) == 0))
                return t;
        atomic_store_explicit(&t->inside, 0, memory_order_release);
        return NULL;
}

static inline struct gate_thread *gate_pass(CUstream stream, uint64_t work, bool may_end)
{
        struct gate_thread *t = gate_self;

        if (likely(t)) {
                uint32_t depth = atomic_load_explicit(&t->inside, memory_order_relaxed);

                gate_note_default(t, stream);
                atomic_store_explicit(&t->inside, depth + 1, memory_order_relaxed);
                atomic_signal_fence(memory_order_seq_cst);
                if (likely(atomic_load_explicit(&gate_bits, memory_order_acquire) == 0) ||
                    depth > 0)
                        return t;
        }
        return gate_enter_slow(t, stream, work, may_end);
}

/* Returns the record for gate_leave(), or NULL where the gate does not apply. work: a name from
 * gate_work(). */
static inline struct gate_thread *gate_enter(CUstream stream, uint64_t work)
{
        return gate_pass(stream, work, false);
}

/* Like gate_enter(), for calls whose callers expect that they may fail. Returns &gate_interrupted,
 * with nothing marked, if the thread was interrupted while it waited for its turn (interrupt.h), or
 * the GPU was given up. */
static inline struct gate_thread *gate_enter_or_end(CUstream stream, uint64_t work)
{
        return gate_pass(stream, work, true);
}

static ALWAYS_INLINE void gate_leave(struct gate_thread *t)
{
        if (unlikely(!t))
                return; /* gate_enter() has marked nothing */
        atomic_store_explicit(&t->submissions,
                              atomic_load_explicit(&t->submissions, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        atomic_store_explicit(&t->inside,
                              atomic_load_explicit(&t->inside, memory_order_relaxed) - 1,
                              memory_order_release);
}

void gate_call_owner(enum gate_bits bit);

/* Call it before a call that does not submit: torture may evict before such calls, too. */
static inline void gate_before_call(void)
{
        if (unlikely(atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_TORTURE))
                gate_call_owner(GATE_TORTURE);
}

/* gate_look_begin() and gate_look_end() enclose a UNIFIED call (hooks.h). NULL: no memory for the
 * mark. */
struct gate_thread *gate_look_begin(void);

static inline void gate_look_end(struct gate_thread *t)
{
        if (likely(t))
                atomic_store_explicit(&t->looks,
                                      atomic_load_explicit(&t->looks, memory_order_relaxed) - 1,
                                      memory_order_release);
}

/* ---- the closing side; called by the agent unless said otherwise ---- */

/* Call it once, before the first thread passes. */
void gate_setup(void);
/* Sets the function that a thread outside the gate calls, with the name of its work, when it finds
 * this bit set (GATE_UNBACKED, GATE_TORTURE, GATE_PROFILE). Call it before the bit is first set. */
void gate_own(enum gate_bits bit, void (*f)(uint64_t work));
/* Sets bits, and makes sure that every thread has seen them or is visibly inside. Any thread. */
void gate_shut(enum gate_bits why);
/* Clears bits; the caller rings core.changed to wake waiting threads. Any thread. */
void gate_open(enum gate_bits why);
bool gate_anybody_inside(void);
/* True if a thread is in a UNIFIED call, in which the driver might take unmapped device memory for
 * host memory. */
bool gate_anybody_looks(void);
/* Returns the default streams that any thread ever used, as bits 1 << handle; bit 0 is the legacy
 * one. */
unsigned gate_default_streams(void);
/* Returns the submissions of all threads, ended ones included. */
uint64_t gate_submissions(void);
/* In the child after fork the other threads do not exist: clear their marks. */
void gate_forget_threads(void);
