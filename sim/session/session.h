/* session.h: what all processes of one simulated machine share.
 *
 * A POSIX shared memory segment named after the user and SIMCUDA_SESSION (after a name that begins
 * with '+' alone: open to every user of the machine) holds the cards (capacity, bus, identity) and
 * one slot a process (what it uses, what it moved). Everything that is a sum is computed from the
 * slots, so that a process killed at any instant leaves nothing to repair: whoever looks next ends
 * the slots whose process is gone, or another program since exec(). Used by the simulated driver,
 * by the simulated NVML and by simcuda-stat. Thread-safe. Errors are -errno. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SESSION_DEVICES  8
#define SESSION_SLOTS    256
#define SESSION_NAME_MAX 64

enum session_direction { SESSION_TO_DEVICE, SESSION_TO_HOST };

/* Every counter, once: the struct, sums and output follow. h2d and d2h are all that went over the
 * bus, the managed_ ones the part of it that managed memory caused: moved by faults, prefetches and
 * evictions; the mapped_ ones the part that kernels and fills used of host memory in place.
 * gpu_faults and cpu_faults are groups of faults that were served together; evictions are blocks
 * (frames.h) that lost the card to somebody else's need; freezes and thaws are controls that took
 * channels off the card and let them on. */
#define SESSION_COUNTERS(X)  \
        X(h2d_bytes)         \
        X(d2h_bytes)         \
        X(d2d_bytes)         \
        X(h2d_copies)        \
        X(d2h_copies)        \
        X(d2d_copies)        \
        X(launches)          \
        X(memsets)           \
        X(creates)           \
        X(maps)              \
        X(unmaps)            \
        X(managed_h2d_bytes) \
        X(managed_d2h_bytes) \
        X(managed_h2d_moves) \
        X(managed_d2h_moves) \
        X(mapped_h2d_bytes)  \
        X(mapped_d2h_bytes)  \
        X(gpu_faults)        \
        X(cpu_faults)        \
        X(evictions)         \
        X(freezes)           \
        X(thaws)

/* Written by the owning process (evictions and their bytes by the process that evicts), read by
 * all. */
struct session_counters {
#define X(name) _Atomic uint64_t name;
        SESSION_COUNTERS(X)
#undef X
};

/* Plain numbers: a sum, or a snapshot. */
struct session_totals {
#define X(name) uint64_t name;
        SESSION_COUNTERS(X)
#undef X
};

enum session_slot_state { SLOT_FREE, SLOT_LIVE, SLOT_ENDED };

struct session_use {
        _Atomic uint64_t used, peak;
        _Atomic uint64_t managed; /* of used */
        _Atomic uint32_t contexts;
        struct session_counters counters;
};

/* A file of a process: others open it by its number, and check by the other fields that it is the
 * right one. */
struct session_store {
        int fd; /* in that process */
        uint64_t device, inode;
};

struct session_slot {
        _Atomic uint32_t state;
        _Atomic bool cuda; /* has called cuInit; false: an observer (NVML) */
        pid_t pid;
        uint64_t start; /* of the process, in clock ticks since boot */
        uint64_t stack; /* where its program's begins; 0: unknown */
        uint64_t ended; /* order of ending, for reuse of the oldest */
        char name[16];
        struct session_use device[SESSION_DEVICES];
        struct session_store host, card; /* of its managed memory; where it has any */
        uid_t uid;                       /* who may open them */
};

/* A fault on demand: the bus is slower than it should be, for a while, for all or for one process.
 */
struct session_slow {
        _Atomic uint64_t bytes_per_s, until_ns; /* until_ns: CLOCK_MONOTONIC */
        _Atomic pid_t pid;                      /* 0: all */
};

struct session_device {
        uint64_t total, context_bytes;
        uint64_t bus_bytes_per_s;
        _Atomic uint64_t busy_until_ns[2]; /* by session_direction; CLOCK_MONOTONIC */
        struct session_slow slow[2];       /* likewise */
        _Atomic uint64_t peak;
        _Atomic bool lost; /* has vanished: nothing but errors from now on */
        uint8_t uuid[16];
        struct session_totals forgotten; /* of slots that were taken over */
};

struct session;

/* The name from SIMCUDA_SESSION, "default" where unset; -EINVAL if it is not usable. */
int session_name(char ret_name[static SESSION_NAME_MAX]);

/* Join as a process of the session: creates it if need be, with the cards the environment describes
 * (SIMCUDA_GPUS, SIMCUDA_MEMORY, SIMCUDA_BUS, SIMCUDA_CONTEXT). A session nobody uses takes the
 * newcomer's settings; one in use keeps its own. -EINVAL malformed environment, -EPERM a segment
 * that is not ours, -EUSERS every slot taken. */
int session_join(bool cuda, struct session **ret_session);
/* Only look; -ENOENT where there is none. Ended by session_detach(). */
int session_attach(const char *name, struct session **ret_session);
void session_detach(struct session *s);
/* This process uses nothing any more. The mapping stays: other threads may still be counting. */
void session_leave(struct session *s);
/* -EBUSY while processes live in it and force is false. */
int session_remove(const char *name, bool force);

unsigned session_device_count(const struct session *s);
struct session_device *session_device(struct session *s, unsigned device);
struct session_use *session_own(struct session *s, unsigned device);

/* Take bytes of a card. -ENOMEM. */
int session_charge(struct session *s, unsigned device, uint64_t bytes);
void session_uncharge(struct session *s, unsigned device, uint64_t bytes);
/* What this process has been charged by those two, and not for managed memory. */
uint64_t session_charged(struct session *s, unsigned device);
/* What all live processes use; ends dead ones first. */
uint64_t session_used(struct session *s, unsigned device);

/* Reserve the bus for bytes, not before ready_ns. Returns when the transfer ends. */
uint64_t session_bus_claim(struct session *s, unsigned device, enum session_direction direction,
                           uint64_t ready_ns, uint64_t bytes);
/* From now on, for so long. pid 0: for all processes. */
void session_bus_slow(struct session *s, enum session_direction direction, uint64_t bytes_per_s,
                      uint64_t ns, pid_t pid);

/* Slots for reading, index < SESSION_SLOTS; state says what they are. */
void session_reap(struct session *s);
const struct session_slot *session_slot(const struct session *s, unsigned index);
void session_slot_totals(const struct session_slot *slot, unsigned device,
                         struct session_totals *ret_totals);
void session_totals(struct session *s, unsigned device, struct session_totals *ret_totals);

static inline void session_count(_Atomic uint64_t *counter, uint64_t n)
{
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}
