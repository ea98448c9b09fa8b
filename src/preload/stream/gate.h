/* gate.h: every call that submits work passes here.
 *
 * Open is the common case: a per-thread, nestable "inside" mark and one load. The expensive half of
 * the ordering is on the closing side (membarrier(2), chosen at start; fences where it is refused).
 * A thread inside never waits at the gate again, so hooks may nest. The gate is one for the
 * process: a lease covers all its GPUs. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"

/* Why the gate is not simply open. */
enum gate_bits {
        GATE_UNREADY = 1 << 0,  /* the library, or this thread, has not been set up */
        GATE_NO_LEASE = 1 << 1, /* no lease: wait for a grant */
        GATE_UNBACKED = 1 << 2, /* something allocated has no memory behind it yet */
        GATE_TELL = 1 << 3, /* the daemon has been told that the program is idle: take that back and
                               go on */
        GATE_THROTTLE = 1 << 4, /* other programs wait: keep the work in flight short */
        GATE_FENCE = 1 << 5,    /* no membarrier here: passing threads use a fence */
        GATE_TORTURE = 1 << 6,  /* torture may choose to evict before this call */
        GATE_HELD = 1 << 7,     /* memory is being replaced: wait a moment */
        GATE_PROFILE = 1 << 8,  /* submissions are profiled (profile.h) */
        GATE_FROZEN = 1 << 9,   /* with GATE_NO_LEASE: captured calls wait, too */
        GATE_BITS = 10,
};

/* One for each thread, freed only after its thread has ended; written by its thread, read by the
 * agent. */
struct gate_thread {
        _Atomic uint32_t inside; /* nesting depth */
        _Atomic uint32_t looks;  /* nested calls that look up which memory an address belongs to */
        _Atomic uint32_t
                defaults; /* bit mask of the default streams it ever submitted to: 1 << handle */
        _Atomic uint64_t submissions; /* since the thread began */
        bool waiting;                 /* counted in core.waiters; core_lock */
        struct gate_thread *next;
        _Atomic bool in_use;
} __attribute__((aligned(64)));

extern _Atomic uint32_t gate_bits;
extern __thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

/* What gate_enter_or_end() returns for a call that is to fail. */
extern struct gate_thread gate_interrupted;

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

/* A name for work that takes about the same time: the same operation, and the size rounded to a
 * power of two. */
static inline uint64_t gate_work(uint64_t what, uint64_t size)
{
        return what << 6 | (size ? 63u - (unsigned)__builtin_clzll(size) : 0);
}

/* The fast path: for a thread that need not wait and is not inside yet. It is inside afterwards.
 * NULL: see gate_enter(). */
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

/* work: as gate_work() names it. */
static inline struct gate_thread *gate_enter(CUstream stream, uint64_t work)
{
        return gate_pass(stream, work, false);
}

/* The same; &gate_interrupted: the thread was interrupted while it waited for its turn
 * (interrupt.h), and nothing is marked. For calls whose callers expect that they may fail. */
static inline struct gate_thread *gate_enter_or_end(CUstream stream, uint64_t work)
{
        return gate_pass(stream, work, true);
}

static ALWAYS_INLINE void gate_leave(struct gate_thread *t)
{
        if (unlikely(!t))
                return; /* a bystander: nothing was marked */
        atomic_store_explicit(&t->submissions,
                              atomic_load_explicit(&t->submissions, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        atomic_store_explicit(&t->inside,
                              atomic_load_explicit(&t->inside, memory_order_relaxed) - 1,
                              memory_order_release);
}

void gate_call_owner(enum gate_bits bit);

/* Before a call that does not submit: it may be chosen to be preceded by an eviction, too. */
static inline void gate_before_call(void)
{
        if (unlikely(atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_TORTURE))
                gate_call_owner(GATE_TORTURE);
}

/* Around the whole of a UNIFIED call (hooks.h). NULL: no memory for the mark. */
struct gate_thread *gate_look_begin(void);

static inline void gate_look_end(struct gate_thread *t)
{
        if (likely(t))
                atomic_store_explicit(&t->looks,
                                      atomic_load_explicit(&t->looks, memory_order_relaxed) - 1,
                                      memory_order_release);
}

/* ---- the other side; called by the agent unless said otherwise ---- */

/* Once, before the first thread passes. */
void gate_setup(void);
/* Whom a thread outside the gate calls when it meets this bit (GATE_UNBACKED, GATE_TORTURE,
 * GATE_PROFILE), with the name of its work. Set before the bit is first used. */
void gate_own(enum gate_bits bit, void (*f)(uint64_t work));
/* Set bits, and make sure that every thread has seen them or is visibly inside. Any thread. */
void gate_shut(enum gate_bits why);
/* Clear bits; threads that wait are woken by ringing core.changed. Any thread. */
void gate_open(enum gate_bits why);
bool gate_anybody_inside(void);
/* A thread is in a UNIFIED call: the driver may take memory that is unmapped now for the host's. */
bool gate_anybody_looks(void);
/* The default streams that were ever used, by any thread: 1 << handle; bit 0 is the legacy one. */
unsigned gate_default_streams(void);
/* Sum over all threads, ended ones included; changes with every submission. */
uint64_t gate_submissions(void);
/* In the child after fork: the other threads do not exist. */
void gate_forget_threads(void);
