/* shared_rm.c: owns the table of RM's objects in the session's segment. Must never wait for another
 * process that may be stopped, nor trust a process to have cleaned up. */
#include "sim/session/shared_rm.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define AWAIT_NS (50 * NSEC_PER_MSEC) /* a process that was killed may have failed to wake us */
#define NAP_NS   20000
/* A process whose guard thread is missing at this number of looks, one after another, is stopped.
 */
#define MISSES 10

static int futex(_Atomic uint32_t *word, int what, uint32_t value, const void *time, void *second)
{
        return (int)syscall(SYS_futex, word, what, value, time, second, 0);
}

int rm_table_init(struct rm_table *t)
{
        pthread_mutexattr_t attr;
        int r = pthread_mutexattr_init(&attr);

        if (r)
                return -r;
        (void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        (void)pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        for (unsigned i = 0; i < RM_OWNERS && r == 0; i++)
                r = pthread_mutex_init(&t->owner[i].alive, &attr);
        (void)pthread_mutexattr_destroy(&attr);
        return -r;
}

static uint32_t number_of(const struct rm_table *t, const struct rm_owner *o)
{
        return (uint32_t)(o - t->owner) + 1;
}

/* ---- owners ---- */

static uint32_t entries(const struct rm_table *t)
{
        const uint32_t high = atomic_load(&t->high);

        return high < RM_ENTRIES ? high : RM_ENTRIES;
}

static void forget(struct rm_entry *e)
{
        atomic_store(&e->name, 0);
        atomic_store(&e->off, (uint64_t)(RM_ORDER(atomic_load(&e->off)) + 1) << 32);
}

/* Frees the entries of a process that has ended. Needs its mutex. */
static void bury(struct rm_table *t, const struct rm_owner *o)
{
        for (uint32_t i = 0; i < entries(t); i++) {
                struct rm_entry *e = &t->entry[i];

                if (atomic_load(&e->owner) != number_of(t, o))
                        continue;
                forget(e);
                atomic_store(&e->running, 0);
                atomic_store(&e->owner, 0);
        }
}

/* True if this call has got the owner's mutex, because its process has ended or there is none. */
static bool take(struct rm_table *t, struct rm_owner *o)
{
        const int r = pthread_mutex_trylock(&o->alive);

        if (r == EOWNERDEAD) {
                bury(t, o);
                (void)pthread_mutex_consistent(&o->alive);
        }
        return r == 0 || r == EOWNERDEAD;
}

static bool lives(struct rm_table *t, struct rm_owner *o)
{
        if (!take(t, o))
                return true;
        (void)pthread_mutex_unlock(&o->alive);
        return false;
}

int rm_owner_new(struct rm_table *t, struct rm_owner **ret_owner)
{
        struct rm_owner *own = NULL;

        for (unsigned i = 0; i < RM_OWNERS; i++) {
                struct rm_owner *o = &t->owner[i];

                if (own)
                        (void)lives(t, o);
                else if (take(t, o))
                        own = o;
        }
        if (!own)
                return -EUSERS;
        bury(t, own); /* what a process made after rm_owner_clear() */
        *ret_owner = own;
        return 0;
}

void rm_owner_sleep(struct rm_owner *o)
{
        for (;;)
                (void)futex(&o->asleep, FUTEX_WAIT, 0, NULL, NULL);
}

/* Counts the sleepers by moving one to the futex where it is. This wakes none. */
static bool sleeps(struct rm_owner *o)
{
        const uintptr_t most = 1;

        return futex(&o->asleep, FUTEX_REQUEUE, 0, (const void *)most, &o->asleep) != 0;
}

void rm_owner_clear(struct rm_table *t, struct rm_owner *o)
{
        for (uint32_t i = 0; i < entries(t); i++)
                if (atomic_load(&t->entry[i].owner) == number_of(t, o))
                        forget(&t->entry[i]);
        rm_wake(o);
}

void rm_wake(struct rm_owner *o)
{
        atomic_fetch_add(&o->changes, 1);
        (void)futex(&o->changes, FUTEX_WAKE, INT_MAX, NULL, NULL);
}

void rm_await(struct rm_owner *o, uint32_t changes)
{
        const struct timespec ts = {.tv_nsec = AWAIT_NS};

        (void)futex(&o->changes, FUTEX_WAIT, changes, &ts, NULL);
}

static struct rm_owner *owner_of(struct rm_table *t, const struct rm_entry *e)
{
        const uint32_t number = atomic_load(&e->owner);

        return number ? &t->owner[number - 1] : NULL;
}

/* ---- objects ---- */

struct rm_entry *rm_entry_new(struct rm_table *t, struct rm_owner *o)
{
        for (uint32_t i = 0; i < RM_ENTRIES; i++) {
                uint32_t none = 0, high = i;

                if (!atomic_compare_exchange_strong(&t->entry[i].owner, &none, number_of(t, o)))
                        continue;
                high = atomic_load(&t->high);
                while (high <= i && !atomic_compare_exchange_weak(&t->high, &high, i + 1))
                        ;
                return &t->entry[i];
        }
        return NULL;
}

static uint64_t name_of(uint32_t client, uint32_t handle)
{
        return (uint64_t)client << 32 | handle;
}

void rm_entry_name(struct rm_entry *e, uint32_t client, uint32_t handle, uint32_t class)
{
        atomic_store(&e->class, class);
        atomic_store(&e->name, name_of(client, handle));
}

void rm_entry_clear(struct rm_table *t, struct rm_entry *e)
{
        struct rm_owner *o = owner_of(t, e);

        forget(e);
        if (o)
                rm_wake(o);
}

void rm_entry_free(struct rm_entry *e)
{
        atomic_store(&e->owner, 0);
}

bool rm_find(struct rm_table *t, uint32_t client, uint32_t handle, struct rm_found *ret)
{
        const uint64_t name = name_of(client, handle);

        for (uint32_t i = 0; i < entries(t); i++) {
                struct rm_entry *e = &t->entry[i];
                struct rm_owner *o;
                uint32_t order;

                if (atomic_load(&e->name) != name)
                        continue;
                order = RM_ORDER(atomic_load(&e->off));
                o = owner_of(t, e);
                if (!o || !lives(t, o) || atomic_load(&e->name) != name)
                        continue;
                *ret = (struct rm_found){e, order};
                return true;
        }
        return false;
}

bool rm_disable(const struct rm_found *f, bool stops)
{
        uint64_t was = atomic_load(&f->entry->off), is;

        do {
                if (RM_ORDER(was) != f->order)
                        return false;
                is = (was + ((was & RM_COUNT) < RM_COUNT)) | (stops ? RM_STOPPED : 0);
        } while (!atomic_compare_exchange_weak(&f->entry->off, &was, is));
        return true;
}

bool rm_enable(struct rm_table *t, const struct rm_found *f)
{
        uint64_t was = atomic_load(&f->entry->off), is;
        struct rm_owner *o;

        do {
                if (RM_ORDER(was) != f->order)
                        return false;
                is = was - ((was & RM_COUNT) > 0);
                if (!(is & RM_COUNT))
                        is &= ~RM_STOPPED;
        } while (!atomic_compare_exchange_weak(&f->entry->off, &was, is));
        o = owner_of(t, f->entry);
        if (o && (was & RM_STOPPED) && !(is & RM_STOPPED))
                rm_wake(o);
        return true;
}

static bool still_runs(const struct rm_found *f)
{
        const uint64_t off = atomic_load(&f->entry->off);

        return RM_ORDER(off) == f->order && (off & RM_STOPPED) &&
               atomic_load(&f->entry->running) > 0;
}

void rm_await_stop(struct rm_table *t, const struct rm_found *f, const _Atomic bool *ends)
{
        const struct timespec ts = {.tv_nsec = NAP_NS};

        for (unsigned misses = 0; misses < MISSES && still_runs(f) && !atomic_load(ends);) {
                struct rm_owner *o = owner_of(t, f->entry);

                misses = o && sleeps(o) ? 0 : misses + 1;
                (void)syscall(SYS_nanosleep, &ts, NULL);
        }
}
