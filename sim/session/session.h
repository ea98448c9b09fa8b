/* session.h: the state that all processes of one simulated machine share, in a POSIX shared memory
 * segment named after the user and SIMCUDA_SESSION. A session whose name begins with '+' is open to
 * all users. The segment holds the cards (capacity, bus, identity) and one slot per process (memory
 * in use, bytes moved). Every sum is computed from the slots, so that a process killed at any
 * instant leaves nothing to repair: the next process that looks ends the slots of processes that
 * are gone or have called exec(). The simulated driver, the simulated NVML and simcuda-stat use it.
 * Thread-safe. Errors are -errno. */
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

/* The list of all counters. h2d and d2h count everything that crossed the bus. Two prefixes count
 * parts of that:
 *   managed_  what faults, prefetches and evictions of managed memory moved
 *   mapped_   what kernels and fills read and wrote in place in host memory
 * gpu_faults and cpu_faults count groups of faults that were served together. evictions counts
 * blocks (frames.h) that made room for other memory. freezes and thaws count the controls that
 * took channels off the card and put them back. */
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

/* The owning process writes its counters, except evictions and their bytes, which the evicting
 * process writes. All processes read them. */
struct session_counters {
#define X(name) _Atomic uint64_t name;
        SESSION_COUNTERS(X)
#undef X
};

/* The counters as plain numbers, for a sum or a snapshot. */
struct session_totals {
#define X(name) uint64_t name;
        SESSION_COUNTERS(X)
#undef X
};

enum session_slot_state { SLOT_FREE, SLOT_LIVE, SLOT_ENDED };

struct session_use {
        _Atomic uint64_t used, peak;
        _Atomic uint64_t managed; /* the part of `used` that is managed memory */
        _Atomic uint32_t contexts;
        _Atomic uint64_t kernel_ns; /* time in which kernels ran; several at once count each */
        struct session_counters counters;
};

/* A file of a process. Other processes open it by its descriptor number, and check with the other
 * fields that it is the right file. */
struct session_store {
        int fd; /* descriptor number in that process */
        uint64_t device, inode;
};

/* A step of a checkpoint that somebody asks a process for (checkpoint.c). */
struct session_checkpoint {
        _Atomic uint32_t state; /* a CUprocessState */
        _Atomic pid_t thread;   /* takes the steps; 0: none */
        _Atomic pid_t asker;    /* the thread that asks now; 0: none */
        _Atomic uint32_t step;  /* a futex; 0: none is asked for, or it is done */
        uint32_t timeout_ms;
        int32_t result;
};

struct session_slot {
        _Atomic uint32_t state;
        _Atomic bool cuda; /* the process has called cuInit; false: it only observes (NVML) */
        _Atomic bool mps;  /* the process is a client of MPS */
        pid_t pid;
        uint64_t start; /* start of the process, in clock ticks since boot */
        uint64_t stack; /* address of the program's stack, which exec() changes; 0: unknown */
        uint64_t ended; /* position in the order of ended slots; the oldest is reused first */
        char name[16];
        struct session_use device[SESSION_DEVICES];
        struct session_store host, card; /* stores of the managed memory, if there is any */
        uid_t uid; /* the user who may open the stores, and checkpoint the process */
        struct session_checkpoint checkpoint;
};

/* An injected fault: for a time the bus is slower, for one process or for all. */
struct session_slow {
        _Atomic uint64_t bytes_per_s;
        _Atomic uint64_t until_ns; /* end of the fault (session_time.h) */
        _Atomic pid_t pid;         /* 0: all processes */
};

struct session_device {
        uint64_t total, context_bytes;
        uint64_t bus_bytes_per_s;
        _Atomic uint64_t busy_until_ns[2]; /* by enum session_direction (session_time.h) */
        struct session_slow slow[2];       /* by enum session_direction */
        _Atomic uint64_t peak;
        _Atomic bool lost; /* the card has vanished: every call fails */
        uint8_t uuid[16];
        struct session_totals forgotten; /* counts of ended slots that were reused */
};

struct session;

/* Returns the name in SIMCUDA_SESSION, or "default" if that is unset. -EINVAL: an invalid name. */
int session_name(char ret_name[static SESSION_NAME_MAX]);

/* Joins the session, and creates it if there is none. The environment describes the cards of a new
 * or unused session (SIMCUDA_GPUS, SIMCUDA_MEMORY, SIMCUDA_BUS, SIMCUDA_CONTEXT, SIMCUDA_MIG). A
 * session in use keeps its cards. cuda: false for a process that only observes (NVML). Returns 0,
 * -EINVAL (malformed environment), -EPERM (a segment of another user), -EUSERS (no free slot). */
int session_join(bool cuda, struct session **ret_session);
/* Notes that this process is a client of MPS, for NVML. */
void session_note_mps(struct session *s);
/* Returns the table of the objects of all processes' resource managers (shared_rm.h). */
struct rm_table *session_rm(struct session *s);
/* Opens a session only to look at it, until session_detach(). -ENOENT: there is no session. */
int session_attach(const char *name, struct session **ret_session);
void session_detach(struct session *s);
/* Ends the slot of this process. Keeps the mapping, because other threads may still be counting. */
void session_leave(struct session *s);
/* Removes a session. Returns 0, or -EBUSY if a process is in it and force is false. */
int session_remove(const char *name, bool force);

/* Devices have this process's numbers: those of CUDA_VISIBLE_DEVICES for a CUDA process, NVML's for
 * an observer. With MIG, each instance is a device, and a CUDA process sees one of them. */
unsigned session_device_count(const struct session *s);
/* Returns the number of the session's devices, whatever this process sees. */
unsigned session_card_count(const struct session *s);
/* Converts between this process's numbers and the session's, which are NVML's. A card that this
 * process does not see is its device 0. */
unsigned session_card(const struct session *s, unsigned device);
unsigned session_device_of(const struct session *s, unsigned card);
/* Returns the number of MIG instances of each GPU; 0: MIG is off. */
unsigned session_mig(const struct session *s);
/* Returns the UUID of a GPU; with MIG it is not the UUID of any device. */
const uint8_t *session_gpu_uuid(const struct session *s, unsigned gpu);
/* Converts a UUID to text after "GPU-" or "MIG-". */
void session_uuid_text(const char *kind, const uint8_t uuid[static 16], char ret[static 48]);
struct session_device *session_device(struct session *s, unsigned device);
struct session_use *session_own(struct session *s, unsigned device);

/* Charges this process for bytes of a card. Returns 0, or -ENOMEM if the card is full. */
int session_charge(struct session *s, unsigned device, uint64_t bytes);
void session_uncharge(struct session *s, unsigned device, uint64_t bytes);
/* Returns the bytes that session_charge() has charged this process, without managed memory. */
uint64_t session_charged(struct session *s, unsigned device);
/* Returns the bytes that all live processes use. Ends the slots of dead processes first. */
uint64_t session_used(struct session *s, unsigned device);

/* Reserves the bus for a transfer that starts at ready_ns or later. Returns the time of its end. */
uint64_t session_bus_claim(struct session *s, unsigned device, enum session_direction direction,
                           uint64_t ready_ns, uint64_t bytes);
/* Limits the speed of the bus for the next ns nanoseconds. pid 0: for all processes. */
void session_bus_slow(struct session *s, enum session_direction direction, uint64_t bytes_per_s,
                      uint64_t ns, pid_t pid);

/* Ends the slots of dead processes. */
void session_reap(struct session *s);
/* Returns a slot for reading; index < SESSION_SLOTS. */
const struct session_slot *session_slot(const struct session *s, unsigned index);
void session_slot_totals(const struct session_slot *slot, unsigned device,
                         struct session_totals *ret_totals);
void session_totals(struct session *s, unsigned device, struct session_totals *ret_totals);

static inline void session_count(_Atomic uint64_t *counter, uint64_t n)
{
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}
