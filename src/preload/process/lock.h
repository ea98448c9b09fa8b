/* lock.h: a mutex and a bell, made of futexes.
 *
 * The library may not use the mutexes of libpthread: their symbol versions differ between old and
 * new C libraries, and it must load into both. A bell is rung when something has changed; waiting
 * threads then check their condition again under the lock.
 * Why: docs/decisions.md, "The library has its own locks, on futexes". */
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

/* Annotations for clang's thread-safety analysis (./dev lint); other compilers ignore them.
 * UNLOCKS(l): the function is called with l held, and releases it for a while, so the caller must
 * read guarded values again. MAY_UNLOCK(l): functions behind this pointer may do so. */
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
        _Atomic uint32_t word; /* 0: free, 1: held, 2: held, and threads wait for it */
};

/* The library's one lock for its state (core.h). The order of locks, from outermost to innermost:
 *   1. Python's interpreter lock
 *   2. core_lock
 *   3. throttle_lock (throttle.c)
 *   4. the lock under which an arena's makers pin memory (arena.c)
 *   5. the driver's own locks: some calls are made under 2, 3 and 4
 *   6. watch.lock (freeze_watch.c)
 *   7. ledger_lock (rm.c), which the ioctl() wrapper takes under 5
 *   8. the locks under which no other lock is taken and no driver call made: those of the arena
 *      (arena.c) and of lent memory (lent.c), that of kind_check() (hooks_virtual.c), those of
 *      measuring (measure.c, measure_sample.c), and publishing (real.c) */
extern struct lock core_lock;

/* The test build of the library notes which thread holds core_lock (tests/watched/held.c). */
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

/* The mutex is the third one in U. Drepper, "Futexes Are Tricky" (2011). */
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

/* Wait until the bell rings; return at once if it has rung since bell_listen() returned heard.
 * timeout_ns: the longest wait; UINT64_MAX: for ever. May return early. */
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
