/* core.h: the state of the library in this process, in one place under one lock.
 *
 * Submitting work, which a program does thousands of times a second, takes the lock only for a copy
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

struct context;

#define LOCKED GUARDED_BY(core_lock)

#define MOVER_AGAIN_NS (10 * NSEC_PER_SEC) /* between two requests for the mover's bytes */

/* One GPU that this process uses. */
struct gpu {
        unsigned index;    /* CUDA ordinal */
        bool known;        /* uuid, total and granularity are known */
        bool managed;      /* allocations on it go to our heap */
        bool asked LOCKED; /* a thread has sent ATTACH to this daemon */
        bool attached;     /* the daemon has answered ATTACH */
        bool may_pass; /* the daemon has refused none of our descriptors since it answered ATTACH */
        bool passes;   /* its memory can be handed over to another process as a descriptor */
        bool rdma;     /* other devices may access its memory */
        bool mps;      /* this process takes part in MPS: it has no channels of its own */
        bool unpacks;  /* the GPU can decompress into memory that is created for it */
        uint32_t peers; /* other GPUs that its memory is mapped for, 1 << ordinal (peer.h) */
        /* The primary context after its reset or last release. It may still be current: calls in it
         * get the driver's own answer. NULL once the context is retained again. */
        _Atomic(CUcontext) ended;
        CUresult error; /* sticky: the GPU and all memory on it are lost to this process (poison.h)
                         */
        uint8_t uuid[16];
        uint64_t total;

        /* Figures, in bytes (docs/protocol.md, "Figures of a client"). */
        struct heap heap; /* holds the figures allocated, backed and resident */
        struct home home; /* does managed memory leave the card when it is sent to the host? */
        uint64_t unevictable LOCKED; /* contexts, and all other bytes known to be unevictable */
        /* Part of unevictable: bytes reserved for a driver call in progress (unevictable.h). */
        uint64_t unevictable_room LOCKED,
                unevictable_room_ns LOCKED; /* time of the last such reservation */
        /* Part of unevictable: memory of the program's handles that was taken out of the heap. */
        uint64_t unevictable_handles LOCKED;
        uint64_t moved_out LOCKED, moved_in LOCKED;
        uint64_t spared_out LOCKED, /* bytes that left the card without a copy */
                spared_in LOCKED;   /* bytes that came back without a copy */
        /* More than the limit is backed, and the last attempt to evict could move none of it. */
        bool stays LOCKED;

        /* The daemon's grants, in bytes. UINT64_MAX in commit, limit, unevictable_allowed: there is
         * no daemon. */
        uint64_t visible, context_bytes, block_bytes;
        uint64_t cap; /* the owner or the user allows no more; 0: no cap */
        uint64_t commit LOCKED, limit LOCKED, unevictable_allowed LOCKED;
        uint32_t limit_sequence LOCKED;
        /* A limit that the library sets itself; below the card's size only for torture, or while
         * the program gives way without a daemon (giveway.h). */
        uint64_t own_limit LOCKED;

        /* Our requests to the daemon, in bytes. */
        uint64_t commit_requested LOCKED, unevictable_requested LOCKED;
        /* Part of commit that is not given back while the program's caches free memory (caches.c).
         */
        uint64_t commit_kept LOCKED;
        uint64_t commit_used_ns LOCKED; /* when commit was last requested or used */
        uint64_t most_allocated LOCKED,
                grew_ns LOCKED;           /* its most allocated bytes; when they rose */
        unsigned commit_askers LOCKED;    /* threads that wait for more commit */
        uint32_t request_sequence LOCKED; /* sequence number of the last REQUEST */
        uint64_t commit_said LOCKED, unevictable_said LOCKED; /* bytes in the last REQUEST */
        struct refusals {
                uint64_t bytes; /* bytes of the last refused request; 0: not known */
                uint32_t count;
                char why[160]; /* the daemon's reason, for a person */
        } refused_commit LOCKED, refused_unevictable LOCKED;
        /* request_room(): the questions are numbered; the last two belong to the last answer. */
        uint32_t room_asked LOCKED, room_said LOCKED, room_answered LOCKED;
        uint64_t room LOCKED, room_host LOCKED; /* bytes in all, on the card and mapped */
        bool request_dirty LOCKED, usage_dirty LOCKED;
        uint64_t allocated_said LOCKED; /* allocated bytes in the last USAGE */

        /* Exported extents (export.h), in bytes. */
        uint64_t export_requested LOCKED, /* exported by the program */
                export_granted LOCKED;    /* part of export_requested that the daemon has allowed */
        uint64_t export_said LOCKED,      /* in the last EXPORT message */
                export_allowed LOCKED;    /* in the daemon's last answer */
        /* Freed by the program, but still open in another process and counted in the heap. */
        uint64_t export_ghosts LOCKED;

        bool overflow;     /* the program may use more memory than the card has (overflow.h) */
        uint64_t keep;     /* bytes of the card that the program may use with overflow */
        CUdeviceptr aside; /* addresses of an extent while overflow.c fills it */

        struct context *context;     /* the context that our copies run in; NULL: none yet */
        bool context_kept LOCKED;    /* one of our threads uses the context: it must not end */
        bool context_retires LOCKED; /* the context is to end: no thread of ours begins to use it */
        struct swap *swap;
        struct trouble {
                uint64_t since_ns, /* first failure; 0: there is none */
                        next_ns,   /* the time of the next attempt */
                        wait_ns;
                CUresult why;
                bool look, /* find out whether a context has failed */
                        told;
        } trouble LOCKED;           /* failed calls of our own (trouble.h) */
        struct mover *mover;        /* the second context; if there is one, copies run in it */
        uint64_t mover_room LOCKED; /* part of unevictable: bytes reserved for the mover */
        uint64_t mover_ns LOCKED;   /* after a refusal or a failure: the time of the next attempt */
        /* Bytes to request for the mover's context beyond the expected size, after failures. */
        uint64_t mover_more LOCKED;
        bool mover_unwanted LOCKED;    /* the daemon asks for the bytes of the mover back */
        uint64_t mover_request LOCKED; /* bytes requested for the mover, if mover_asks */
        bool mover_asks LOCKED;        /* bytes for the mover are requested */
        bool mover_said LOCKED;        /* the last REQUEST included mover_request */
        /* Addresses of ours at which extent.c maps extents without an address; 0: none reserved. */
        CUdeviceptr windows;
        struct block *lost LOCKED;    /* blocks lost by a sticky error, not given back yet */
        struct passed leaving LOCKED; /* descriptors of evicted memory, sent with the next USAGE */
        /* Descriptors that came with a LIMIT. The limit counts them beside heap.backed. */
        struct passed passed LOCKED;
        struct block *late LOCKED; /* blocks freed during a capture, released after the capture */
        /* Size of a cuMemCreate that failed though the limit allowed it; 0: none failed, or the
         * daemon has been told. */
        uint64_t short_bytes LOCKED;
        bool host_short LOCKED; /* an eviction found no host memory: tell the daemon */
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

/* Returns the unevictable bytes that the program would have without sublet too. Any thread. */
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

/* Finds out whether the driver has shut down, because the process exits. Then no thread waits for
 * anything any more. The lock is not held. */
void core_look_for_shutdown(void);

/* Call it once the driver is set up. Our exit handler, registered after the driver's, runs before
 * it. */
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

/* Begin driver calls of our own that a stream capture would reject: in global capture mode CUDA
 * fails unsafe calls. */
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
