/* lock.h: a mutex and a bell on futexes.
 *
 * The library may not use libpthread's own: the versions of its symbols differ between old and new
 * C libraries, and it must load into both. A bell is rung when something changed; waiters re-check
 * their condition under the lock. */
#pragma once

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

/* What a function needs of a lock, and which lock a variable needs: checked by clang's analysis
 * (./dev lint; clang.llvm.org/docs/ThreadSafetyAnalysis.html), nothing to other compilers. UNLOCKS:
 * REQUIRES, and gives the lock up meanwhile, so what was read under it may have changed; so may a
 * function behind a pointer that says MAY_UNLOCK (tools/lock_drops.py). */
#ifdef __clang__
#define LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define LOCK_ATTRIBUTE(x)
#endif
#define REQUIRES(l)    LOCK_ATTRIBUTE(requires_capability(l))
#define UNLOCKS(l)     REQUIRES(l) MAY_UNLOCK(l)
#define MAY_UNLOCK(l)  LOCK_ATTRIBUTE(annotate("unlocks"))
#define EXCLUDES(l)    LOCK_ATTRIBUTE(locks_excluded(l))
#define ACQUIRES(l)    LOCK_ATTRIBUTE(acquire_capability(l))
#define RELEASES(l)    LOCK_ATTRIBUTE(release_capability(l))
#define GUARDED_BY(l)  LOCK_ATTRIBUTE(guarded_by(l))
#define LOCK_UNCHECKED LOCK_ATTRIBUTE(no_thread_safety_analysis)

struct LOCK_ATTRIBUTE(capability("lock")) lock {
        _Atomic uint32_t word; /* 0 free, 1 held, 2 held and waited for */
};

/* The library's one lock for its state (core.h). Where another one is taken as well, this one is
 * taken first. */
extern struct lock core_lock;

/* The library that tests watch knows which thread has core_lock (tests/watched/held.c). */
#ifdef SUBLET_WATCHED
void lock_watch(const struct lock *l, bool held);
#else
static inline void lock_watch(const struct lock *l, bool held)
{
}
#endif

struct bell {
        _Atomic uint32_t rings;
};

static inline long lock_futex(_Atomic uint32_t *word, int op, uint32_t value,
                              const struct timespec *timeout)
{
        return syscall(SYS_futex, (uint32_t *)word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL,
                       0);
}

/* The mutex is the third one of U. Drepper, "Futexes Are Tricky" (2011). */
static inline void lock_acquire(struct lock *l) ACQUIRES(*l) LOCK_UNCHECKED
{
        uint32_t seen = 0;

        lock_watch(l, true);
        if (likely(atomic_compare_exchange_strong_explicit(&l->word, &seen, 1, memory_order_acquire,
                                                           memory_order_relaxed)))
                return;
        if (seen != 2)
                seen = atomic_exchange_explicit(&l->word, 2, memory_order_acquire);
        while (seen != 0) {
                (void)lock_futex(&l->word, FUTEX_WAIT, 2, NULL);
                seen = atomic_exchange_explicit(&l->word, 2, memory_order_acquire);
        }
}

static inline void lock_release(struct lock *l) RELEASES(*l) LOCK_UNCHECKED
{
        lock_watch(l, false);
        if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
                (void)lock_futex(&l->word, FUTEX_WAKE, 1, NULL);
}

static inline uint32_t bell_listen(struct bell *b)
{
        return atomic_load_explicit(&b->rings, memory_order_acquire);
}

/* Wait until the bell has rung since bell_listen() returned heard, at most timeout_ns (UINT64_MAX:
 * for ever). May return early. */
static inline void bell_wait(struct bell *b, uint32_t heard, uint64_t timeout_ns)
{
        struct timespec ts = {.tv_sec = (time_t)(timeout_ns / NSEC_PER_SEC),
                              .tv_nsec = (long)(timeout_ns % NSEC_PER_SEC)};
        int saved = errno;

        (void)lock_futex(&b->rings, FUTEX_WAIT, heard, timeout_ns == UINT64_MAX ? NULL : &ts);
        errno = saved;
}

static inline void bell_ring(struct bell *b)
{
        atomic_fetch_add_explicit(&b->rings, 1, memory_order_release);
        (void)lock_futex(&b->rings, FUTEX_WAKE, INT_MAX, NULL);
}
