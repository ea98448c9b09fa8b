/* core.h: the state of the library in this process, in one place under one lock.
 *
 * A program submits work thousands of times a second. A submission takes the lock only for a copy
 * between addresses that its thread does not know yet (bounds.h). Rarer calls take it: to allocate,
 * free, create contexts, wait. No driver call that may block is made while it is held. core.changed
 * rings whenever a value changes that a thread may wait for. */
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
#include "wire/wire.h"

struct context;

#define LOCKED GUARDED_BY(core_lock)

#define MOVER_AGAIN_NS (10 * NSEC_PER_SEC) /* pause between two requests for the mover's bytes */

/* One GPU that this process uses. Each group of fields names the files that write it. Figures are
 * in bytes (docs/protocol.md, "Figures of a client"). */
struct gpu {
        /* core.c */
        unsigned index; /* CUDA ordinal */
        bool known;     /* uuid, total and granularity are known */
        bool passes;    /* its memory can be handed over to another process as a descriptor */
        bool rdma;      /* other devices may access its memory */
        bool mps;       /* this process takes part in MPS: it has no channels of its own */
        bool unpacks;   /* the GPU can decompress into memory that is created for it */
        uint8_t uuid[16];
        uint64_t total;
        uint32_t peers; /* peer_access.c: other GPUs that its memory is mapped for, 1 << ordinal */
        /* hooks_context.c: the primary context after its reset or last release. It may still be
         * current: calls in it get the driver's own answer. NULL once the context is retained
         * again. */
        _Atomic(CUcontext) ended;
        CUresult error; /* poison.c, sticky: the GPU and all memory on it are lost to this process
                         */

        /* agent_talk.c: the daemon's grants. UINT64_MAX in commit, limit, unevictable_allowed:
         * there is no daemon. */
        bool managed;      /* allocations on it go to our heap */
        bool asked LOCKED; /* ATTACH was sent to this daemon */
        bool attached;     /* the daemon has answered ATTACH */
        bool may_pass; /* the daemon has refused none of our descriptors since it answered ATTACH */
        uint64_t visible, context_bytes, block_bytes;
        uint64_t cap; /* the owner or the user allows no more; 0: no cap */
        uint64_t commit LOCKED, limit LOCKED, unevictable_allowed LOCKED;
        uint64_t export_allowed LOCKED;
        uint32_t limit_sequence LOCKED;
        struct refusals {
                uint64_t bytes; /* bytes of the last refused request; 0: not known */
                uint32_t count;
                char why[160]; /* the daemon's reason, for a person */
        } refused_commit LOCKED, refused_unevictable LOCKED;
        uint64_t room LOCKED, room_host LOCKED; /* answer to ROOM, in bytes: card, host */
        uint32_t room_answered LOCKED;          /* the number of that question */

        /* agent_talk.c and agent_self.c: what the daemon was told. ATTACH resets it. */
        struct told {
                struct wire_USAGE usage;
                struct wire_REQUEST request;
                struct wire_MANAGED managed;
                struct wire_SPARED spared;
                struct wire_SELF self; /* self.mode 0: none sent yet */
                uint64_t usage_ns, request_ns, short_ns, host_short_ns; /* last sent; 0: never */
                uint64_t exported;                                      /* EXPORT.bytes */
                uint32_t room;                                          /* ROOM.ask */
                uint32_t request_sequence; /* number of the last REQUEST or ATTACH */
                bool run;   /* the REQUEST had RUN, and no turn or lower limit came since */
                bool mover; /* the REQUEST included mover_request */
        } told LOCKED;

        /* request.c: what the daemon is to be told. */
        bool request_dirty LOCKED, usage_dirty LOCKED;
        uint64_t commit_requested LOCKED, unevictable_requested LOCKED;
        uint64_t commit_used_ns LOCKED; /* when commit was last requested or used */
        unsigned commit_askers LOCKED;  /* threads that wait for more commit */
        uint32_t room_asked LOCKED;     /* the number of the last question, request_room() */
        /* swap.c: size of a cuMemCreate that failed though the limit allowed it; 0: none failed, or
         * the daemon has been told. */
        uint64_t short_bytes LOCKED;
        bool host_short LOCKED; /* swap.c: an eviction found no host memory */
        /* caches.c: part of commit that is not given back while the program's caches free memory.
         */
        uint64_t commit_kept LOCKED;
        uint64_t most_allocated LOCKED,
                grew_ns LOCKED; /* room.c: the most bytes ever allocated; when that figure rose */

        /* Memory: allocated, backed and resident bytes are in the heap. */
        struct heap heap;
        struct home home; /* home.c: does managed memory leave the card when it is sent to the host?
                           */
        uint64_t unevictable LOCKED; /* request.c: contexts and all other known unevictable bytes */
        /* unevictable.c: part of unevictable, reserved for a driver call in progress. */
        uint64_t unevictable_room LOCKED,
                unevictable_room_ns LOCKED; /* time of the last such reservation */
        /* hooks_virtual.c, hooks_share.c: part of unevictable, memory of the program's handles that
         * was taken out of the heap. */
        uint64_t unevictable_handles LOCKED;
        /* export.c: exported extents. */
        uint64_t export_requested LOCKED, /* bytes exported by the program */
                export_granted LOCKED;    /* part of export_requested that the daemon has allowed */
        /* Freed by the program, but still open in another process and counted in the heap. */
        uint64_t export_ghosts LOCKED;

        /* transfer.c, swap.c, extent.c: moves of memory. */
        struct swap *swap;
        uint64_t moved_out LOCKED, moved_in LOCKED;
        uint64_t spared_out LOCKED, /* bytes that left the card without a copy */
                spared_in LOCKED;   /* bytes that came back without a copy */
        /* More than the limit is backed, and the last attempt to evict could move none of it. */
        bool stays LOCKED;
        struct context *context;     /* the context that our copies run in; NULL: none yet */
        bool context_kept LOCKED;    /* one of our threads uses the context: it must not end */
        bool context_retires LOCKED; /* the context is to end: no thread of ours begins to use it */
        /* Addresses of ours at which extent.c maps extents without an address; 0: none reserved. */
        CUdeviceptr windows;
        struct passed leaving LOCKED; /* descriptors of evicted memory, sent with the next USAGE */
        /* Descriptors that came with a LIMIT. The limit counts them beside heap.backed. */
        struct passed passed LOCKED;
        struct block *lost LOCKED; /* lost.c: blocks lost by a sticky error, not given back yet */
        struct block *late LOCKED; /* late_frees.c: freed during a capture, released after it */
        struct trouble {
                uint64_t since_ns, /* first failure; 0: there is none */
                        next_ns,   /* the time of the next attempt */
                        wait_ns;
                CUresult why;
                bool look, /* find out whether a context has failed */
                        told;
        } trouble LOCKED; /* trouble.c: failed calls of our own */
        /* torture.c, agent.c: a limit that the library sets itself, below the card's size only for
         * torture, or while the program gives way without a daemon (giveway.h). */
        uint64_t own_limit LOCKED;

        /* overflow.c */
        bool overflow;     /* the program may use more memory than the card has */
        uint64_t keep;     /* bytes of the card that the program may use with overflow */
        CUdeviceptr aside; /* addresses of an extent while overflow.c fills it */

        /* agent_freeze.c: the second context; if there is one, copies run in it. */
        struct mover *mover;
        uint64_t mover_room LOCKED; /* part of unevictable: bytes reserved for the mover */
        uint64_t mover_ns LOCKED;   /* after a refusal or a failure: the time of the next attempt */
        /* Bytes to request for the mover's context beyond the expected size, after failures. */
        uint64_t mover_more LOCKED;
        bool mover_unwanted LOCKED;    /* the daemon asks for the bytes of the mover back */
        uint64_t mover_request LOCKED; /* bytes requested for the mover, if mover_asks */
        bool mover_asks LOCKED;        /* bytes for the mover are requested */
};

struct core {
        struct bell changed;
        struct gpu gpus[GPUS_MAX];
        unsigned gpu_count;
        unsigned waiters LOCKED; /* threads that wait at the gate for a lease or for memory */
        /* Calls in progress whose memory is in no extent yet, or is counted twice. */
        unsigned unbooked LOCKED;
        struct {
                uint64_t allowed, wanted; /* bytes granted and bytes requested */
                uint64_t most;            /* host bytes available when the process began */
                uint64_t taking;          /* bytes that calls in progress are about to map */
                struct refusals refused;
                bool known;
        } host LOCKED; /* host memory that is mapped for kernels */
        struct {
                bool asked,     /* a thread waits to learn which process is in the way */
                        known;  /* the daemon's answer is in `text` */
                char text[256]; /* a sentence about that process */
        } holder LOCKED;
        bool submits LOCKED; /* a thread submits, while the daemon thinks us idle */
        struct giveway giveway LOCKED;
        bool running LOCKED;   /* the program may submit: it has a lease, and all memory is back */
        uint64_t lease LOCKED; /* 0: no lease, or one of a daemon that is gone */
        /* All calls pass through to the driver: after fork, or where the driver cannot be shared.
         */
        _Atomic bool bystander;
        _Atomic uintptr_t exiter; /* the thread that ends the process; 0: no thread does */
};

extern struct core core;

/* Returns the bytes that the program may have on this card now. Lock held. */
static inline uint64_t core_limit(const struct gpu *g) REQUIRES(core_lock)
{
        return g->limit < g->own_limit ? g->limit : g->own_limit;
}

/* Returns the unevictable bytes that the program would also have without sublet. Lock held. */
static inline uint64_t core_own_unevictable(const struct gpu *g) REQUIRES(core_lock)
{
        return g->unevictable - (g->mover_room < g->unevictable ? g->mover_room : g->unevictable);
}

/* Returns the bytes of the visible size that the program may still allocate. Lock held. */
static inline uint64_t core_visible_free(const struct gpu *g) REQUIRES(core_lock)
{
        return sub_sat(g->visible, g->heap.allocated + core_own_unevictable(g));
}

/* Load the driver and set the process up, once. Every hook but plain submission calls it. 0, or
 * -errno: there is no driver, or this process was forked during the set-up and uses the driver
 * directly. */
int core_setup(void);

/* Returns the GPU whose heap holds this address, and in *ret the allocation; NULL: none. Lock held.
 */
struct gpu *core_find(CUdeviceptr address, struct heap_place *ret);
/* True if a heap has reserved the first or the last of these addresses. The program must not change
 * mappings there, but the driver would not prevent that. Lock held. */
bool core_holds(CUdeviceptr address, uint64_t bytes);
/* Tells all parts that the room on this GPU has changed: by an answer of the daemon, or by a free.
 * Lock held. */
void core_room_changed(struct gpu *g);
/* Returns the bytes of host memory that are mapped, or about to be, on all GPUs. Lock held. */
uint64_t core_host_mapped(void) REQUIRES(core_lock);

/* Returns the GPU of the calling thread's current context; NULL: none, or not managed by us. */
struct gpu *core_current_gpu(void);
/* Returns the GPU of a device, and attaches it to the daemon; may wait. NULL: not managed by us. */
struct gpu *core_attach(CUdevice device);
/* After core_attach() has returned NULL: false if the program must not use this device, because it
 * must not run without sharing (require.h). */
bool core_may_go_alone(CUdevice device);

static inline bool core_passive(void)
{
        uintptr_t exiter = atomic_load_explicit(&core.exiter, memory_order_relaxed);

        return atomic_load_explicit(&core.bystander, memory_order_relaxed) ||
               (unlikely(exiter) && exiter == (uintptr_t)pthread_self());
}

/* Checks whether the driver has shut down because the process exits. If so, ends all waits. The
 * lock is not held. */
void core_look_for_shutdown(void);

/* Call it once the driver is set up. Our exit handler is registered after the driver's, so it runs
 * before the driver's. */
void core_expect_exit(void);

/* Keep the GPU's context from ending while the agent releases core_lock. False: the context is
 * ending, or there is none. core_lock held. */
bool core_keep_context(struct gpu *g) REQUIRES(core_lock);
void core_let_context(struct gpu *g) REQUIRES(core_lock);

/* Wait for core.changed. The lock is released during the wait. After 10 s one message tells what
 * the program waits for and which process is in the way, unless `told` is set. */
struct core_wait {
        const char *what;
        uint64_t since_ns, asked_ns;
        bool told;
};
void core_wait(struct core_wait *w, uint64_t timeout_ns) UNLOCKS(core_lock);
/* Like core_wait(), but returns at once if the bell has rung since bell_listen() returned heard. */
void core_wait_since(struct core_wait *w, uint32_t heard, uint64_t timeout_ns) UNLOCKS(core_lock);

/* Allow driver calls of our own during a stream capture: in global capture mode CUDA fails unsafe
 * calls. Returns the mode for core_unrelax(). */
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
