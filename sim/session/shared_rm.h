/* shared_rm.h: what the resource managers (RM) of all processes of a session share: which clients,
 * devices and channels exist, whose they are, how often each channel is disabled, and whether work
 * runs on it.
 *
 * Everything is atomic and needs no lock, because a process may be stopped or killed at any moment,
 * and the others must go on. The functions that a control of channels needs make no system call
 * but futex and nanosleep, so that a process can make controls in a sandbox. Thread-safe. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RM_OWNERS  512
#define RM_ENTRIES 16384

/* A process with objects. */
struct rm_owner {
        /* A robust mutex, which a thread of the process holds until the process ends. */
        pthread_mutex_t alive;
        /* A futex on which the guard thread of the process sleeps for ever. A thread that is
         * stopped does not wait at a futex, so the sleeper is missing while the process is stopped.
         */
        _Atomic uint32_t asleep;
        _Atomic uint32_t
                changes; /* a futex: a channel of the process was enabled, or see rm_wake() */
};

/* An object. The entry of a channel stays with its process, which uses it again: a late thread may
 * still run on a channel that was freed. */
struct rm_entry {
        _Atomic uint32_t owner; /* number of the owner, plus one; 0: the entry is free */
        _Atomic uint32_t class;
        _Atomic uint64_t name;    /* client and handle; 0: there is no object */
        _Atomic uint64_t off;     /* see RM_STOPPED */
        _Atomic uint32_t running; /* number of threads that run work on the channel */
};

/* The parts of rm_entry.off. The upper 32 bits count the objects that the entry has had. The lower
 * 31 bits count the disablings. A disabling that fails is counted, but stops nothing. */
#define RM_STOPPED  UINT64_C(0x80000000)
#define RM_COUNT    UINT64_C(0x7fffffff)
#define RM_ORDER(x) ((uint32_t)((x) >> 32))

struct rm_table {
        _Atomic uint32_t clients; /* number of clients that were ever made */
        _Atomic uint32_t high;    /* number of entries that were ever used */
        struct rm_owner owner[RM_OWNERS];
        struct rm_entry entry[RM_ENTRIES];
};

/* An object that was found. It may vanish at any moment. */
struct rm_found {
        struct rm_entry *entry;
        uint32_t order;
};

/* Prepares a table that is all zero. Returns 0, -errno. */
int rm_table_init(struct rm_table *t);

/* Makes the calling thread's process an owner. It ends with this thread, and its objects with it.
 * -EUSERS: there are too many. */
int rm_owner_new(struct rm_table *t, struct rm_owner **ret_owner);
/* Sleeps until the process ends. For a guard thread. */
void rm_owner_sleep(struct rm_owner *o) __attribute__((noreturn));
/* Removes all objects of the owner. Its entries stay its own until it ends. */
void rm_owner_clear(struct rm_table *t, struct rm_owner *o);

/* Wakes the threads of a process that wait for a change. */
void rm_wake(struct rm_owner *o);
/* Waits until `changes` differs from the value, or for a while. */
void rm_await(struct rm_owner *o, uint32_t changes);

/* Returns an entry without object; NULL: the table is full. */
struct rm_entry *rm_entry_new(struct rm_table *t, struct rm_owner *o);
void rm_entry_name(struct rm_entry *e, uint32_t client, uint32_t handle, uint32_t class);
/* Removes the object. Frozen work of a channel goes on. */
void rm_entry_clear(struct rm_table *t, struct rm_entry *e);
/* Gives an entry without object back. Not for channels. */
void rm_entry_free(struct rm_entry *e);

/* Finds an object of a process that lives. */
bool rm_find(struct rm_table *t, uint32_t client, uint32_t handle, struct rm_found *ret);
/* Counts a disabling. stops: work must not run from now on. False: the object has vanished. */
bool rm_disable(const struct rm_found *f, bool stops);
/* Takes a disabling away, if there is one, and wakes frozen work. False: the object has vanished.
 */
bool rm_enable(struct rm_table *t, const struct rm_found *f);
/* Waits until no work runs on a disabled channel, or the work's process is stopped or has ended, or
 * *ends is true. */
void rm_await_stop(struct rm_table *t, const struct rm_found *f, const _Atomic bool *ends);

static inline bool rm_stopped(const struct rm_entry *e)
{
        return atomic_load(&e->off) & RM_STOPPED;
}
