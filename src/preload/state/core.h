/* core.h: the state of the library in this process, in one place under one lock.
 *
 * What a program does thousands of times a second (submit work) never takes the lock; what takes it
 * is rare (allocate, free, create contexts, wait). No driver call that may block is made while it
 * is held. core.changed rings whenever a figure that somebody may wait for has changed. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"
#include "preload/driver/real.h"
#include "preload/heap/heap.h"
#include "preload/state/giveway.h"
#include "preload/state/home.h"
#include "preload/process/lock.h"
#include "preload/process/passed.h"

struct context;

#define LOCKED GUARDED_BY(core_lock)

#define MOVER_AGAIN_NS (10 * NSEC_PER_SEC) /* between two requests for a second context's room */

/* One GPU that this process uses. */
struct gpu {
        unsigned index;    /* CUDA ordinal */
        bool known;        /* uuid, total and granularity are known */
        bool managed;      /* allocations on it go to our heap */
        bool asked LOCKED; /* a thread has sent ATTACH to this daemon */
        bool attached;     /* the daemon has answered ATTACH */
        bool may_pass;     /* the daemon has not refused our descriptors since */
        bool passes;       /* its memory can go to another process as a descriptor */
        bool rdma;         /* other devices may access its memory */
        bool unpacks;      /* it has an engine that decompresses into memory made for that */
        uint32_t peers;    /* other GPUs that it is mapped for, 1 << ordinal (peer.h) */
        /* The primary context was reset or released for the last time, and may be current all the
         * same: the driver answers what is called in it. NULL once it is retained again. */
        _Atomic(CUcontext) ended;
        CUresult error; /* sticky: the GPU and all memory on it are lost to this process (poison.h)
                         */
        uint8_t uuid[16];
        uint64_t total;

        /* Figures, in bytes (docs/protocol.md, "Figures of a client"). */
        struct heap heap; /* allocated, backed, resident */
        struct home home; /* whether managed memory that is sent to the host leaves the card */
        uint64_t unevictable LOCKED; /* contexts and what else is known to be unevictable */
        uint64_t unevictable_room LOCKED,
                unevictable_room_ns LOCKED; /* part of unevictable: reserved for a call of the
                                               driver's (unevictable.h), since when */
        uint64_t unevictable_handles
                LOCKED; /* part of unevictable: the program's handles that have left the heap */
        uint64_t moved_out LOCKED, moved_in LOCKED;
        uint64_t spared_out LOCKED,
                spared_in LOCKED; /* bytes that left the card or came back without a copy */
        bool stays LOCKED; /* more is backed than the limit, and none of it could be moved when last
                            * tried
                            */

        /* What the daemon allows. UINT64_MAX in commit, limit, unevictable_allowed: there is no
         * daemon. */
        uint64_t visible, context_bytes, block_bytes;
        uint64_t commit LOCKED, limit LOCKED, unevictable_allowed LOCKED, arena_limit LOCKED;
        bool arena_trims LOCKED; /* the arena holds more than its last limit, and has not given it
                                    back yet */
        uint32_t limit_sequence LOCKED;
        uint64_t own_limit
                LOCKED; /* a limit of our own; only torture sets it below the card's size */

        /* What we asked for. */
        uint64_t commit_requested LOCKED, unevictable_requested LOCKED;
        uint64_t commit_kept
                LOCKED; /* part of commit: given back to make room for this request (caches.c) */
        uint64_t commit_used_ns LOCKED;   /* when commit was last requested or used */
        unsigned commit_askers LOCKED;    /* threads that wait for it */
        uint32_t request_sequence LOCKED; /* number of the last REQUEST sent, */
        uint64_t commit_said LOCKED, unevictable_said LOCKED; /* and what it asked for */
        struct refusals {
                uint64_t bytes; /* what the last refused request asked for; 0: not known */
                uint32_t count;
        } refused_commit LOCKED, refused_unevictable LOCKED;
        bool request_dirty LOCKED, usage_dirty LOCKED;
        uint64_t allocated_said LOCKED; /* when USAGE was last sent */

        /* Exported extents (export.h), in bytes. */
        uint64_t export_requested LOCKED,
                export_granted
                        LOCKED; /* exported by the program; of it, what the daemon has allowed */
        uint64_t export_said LOCKED, export_allowed LOCKED; /* asked for, answered */
        uint64_t export_ghosts LOCKED; /* freed by the program, but still open elsewhere and part of
                                          the heap's figures */

        bool overflow;     /* it may use more than the card (overflow.h) */
        uint64_t keep;     /* how much of the card it may use then */
        CUdeviceptr aside; /* addresses for an extent that is being filled */

        struct context *context;     /* the context that our copies run in; NULL: none yet */
        bool context_kept LOCKED;    /* one of our threads uses the context: it must not end */
        bool context_retires LOCKED; /* the context is to end: no thread of ours begins to use it */
        struct swap *swap;
        struct mover *mover; /* the second context, in which copies run instead; NULL: none */
        uint64_t mover_room LOCKED; /* part of unevictable: reserved for the mover */
        uint64_t mover_ns LOCKED;   /* no new try before that, after a refusal or a failure */
        uint64_t mover_more
                LOCKED; /* most that the mover's context took beyond the expected size */
        bool mover_unwanted LOCKED;    /* the daemon asks for the mover's room */
        uint64_t mover_request LOCKED; /* what is requested for the mover, ... */
        bool mover_asks LOCKED;        /* ... if it is, ... */
        bool mover_said LOCKED;        /* ... by the last REQUEST */
        CUdeviceptr windows;       /* extent.c: addresses of ours for extents that have none; 0: not
                                      reserved yet */
        struct block *lost LOCKED; /* lost by a sticky error, not given back yet */
        struct passed leaving LOCKED; /* evicted descriptors that go with the next USAGE */
        struct passed passed LOCKED;  /* descriptors that came with a LIMIT; they count towards it,
                                         beside heap.backed */
        struct block *late
                LOCKED; /* freed by the program during a capture, to be released after it */
        uint64_t short_bytes LOCKED; /* a cuMemCreate within the limit failed for lack of so many
                                        bytes; 0: none did, or the daemon knows */
};

struct core {
        struct bell changed;
        struct gpu gpus[GPUS_MAX];
        unsigned gpu_count;
        unsigned waiters LOCKED;  /* threads that wait at the gate for a lease or for memory */
        unsigned unbooked LOCKED; /* calls in progress whose memory is in no extent yet, or is
                                     counted twice */
        struct {
                uint64_t allowed, wanted; /* bytes */
                uint64_t most;            /* what there was when the process began */
                uint64_t taking;          /* asked for and not mapped yet */
                struct refusals refused;
                bool known;
        } host LOCKED; /* memory that is mapped to kernels */
        struct {
                bool asked, known; /* a thread waits for the answer, which is here: */
                char text[160];    /* a sentence about the process in the way */
        } holder LOCKED;
        bool submits LOCKED; /* a thread submits, while the daemon thinks us idle */
        struct giveway giveway LOCKED;
        bool running LOCKED;    /* the program may submit: it has a lease and its memory is there */
        uint64_t lease LOCKED;  /* 0: none, or granted by a daemon that is gone */
        _Atomic bool bystander; /* after fork, or where the driver cannot be shared: everything
                                   passes through */
        _Atomic uintptr_t exiter; /* the thread that ends the process; 0: it does not end */
};

extern struct core core;

/* How many bytes it may back now. Lock held. */
static inline uint64_t core_limit(const struct gpu *g) REQUIRES(core_lock)
{
        return g->limit < g->own_limit ? g->limit : g->own_limit;
}

/* The part of the program's unevictable bytes that it would have without sublet. Any thread. */
static inline uint64_t core_own_unevictable(const struct gpu *g) REQUIRES(core_lock)
{
        return g->unevictable - (g->mover_room < g->unevictable ? g->mover_room : g->unevictable);
}

/* What the program may still allocate of the card that it sees. Lock held. */
static inline uint64_t core_visible_free(const struct gpu *g) REQUIRES(core_lock)
{
        return sub_sat(g->visible, g->heap.allocated + core_own_unevictable(g));
}

/* Load the driver and set the process up, once. Every hook but plain submission calls it. 0, or
 * -errno: there is no driver, or this process was forked during the set-up and uses the driver
 * directly. */
int core_setup(void);

/* The GPU whose heap holds this address, and the place in it; NULL: none. Lock held. */
struct gpu *core_find(CUdeviceptr address, struct heap_place *ret);
/* Whether a heap has reserved these addresses. The driver would let the program change our mappings
 * there, though it refuses that for its own memory. Lock held. */
bool core_holds(CUdeviceptr address, uint64_t bytes);
/* The room on this GPU has changed: the daemon has allowed more or less, or memory was freed. Lock
 * held. */
void core_room_changed(struct gpu *g);
/* Host memory that is mapped, or about to be, on all GPUs. Lock held. */
uint64_t core_host_mapped(void) REQUIRES(core_lock);

/* The GPU of the calling thread's current context; NULL: none, or not managed by us. */
struct gpu *core_current_gpu(void);
/* The GPU of a device, attached to the daemon (waits for it); NULL: not managed by us. */
struct gpu *core_attach(CUdevice device);

static inline bool core_passive(void)
{
        uintptr_t exiter = atomic_load_explicit(&core.exiter, memory_order_relaxed);

        return atomic_load_explicit(&core.bystander, memory_order_relaxed) ||
               (unlikely(exiter) && exiter == (uintptr_t)pthread_self());
}

/* The GPU answers no call any more, not even those without a context: nothing can be saved or
 * shared. The process becomes a bystander: its threads get the driver's own error instead of
 * waiting for memory that cannot come back. Lock held. */
void core_give_up(const struct gpu *g, CUresult why);

/* The driver has been set up and has registered its own exit handler: register ours after it, so
 * that it runs before. */
void core_expect_exit(void);

/* For the agent while it releases core_lock: keeps the GPU's context from ending. False: it is
 * ending, or there is none. core_lock held. */
bool core_keep_context(struct gpu *g) REQUIRES(core_lock);
void core_let_context(struct gpu *g) REQUIRES(core_lock);

/* Wait for the bell with the lock held; it is released meanwhile. After 10 s, once a wait, a
 * message tells what the program waits for and which process is in the way. */
struct core_wait {
        const char *what;
        uint64_t since_ns, asked_ns;
        bool told;
};
void core_wait(struct core_wait *w, uint64_t timeout_ns) UNLOCKS(core_lock);
/* The same, for any ring since bell_listen() returned heard. */
void core_wait_since(struct core_wait *w, uint32_t heard, uint64_t timeout_ns) UNLOCKS(core_lock);

/* Calls of our own that a capture in this thread must not reject (CUDA: unsafe calls fail in global
 * capture mode). */
static inline CUstreamCaptureMode core_relax(void)
{
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

        (void)real.cuThreadExchangeStreamCaptureMode(&mode);
        return mode;
}

static inline void core_unrelax(CUstreamCaptureMode mode)
{
        (void)real.cuThreadExchangeStreamCaptureMode(&mode);
}
