/* swap_state.h: shared by swap.c (what is moved, and when), back.c (at the gate), choose.c (which
 * extent first), transfer.c (how) and trouble.c (when the driver fails). No other file includes it.
 *
 * The agent makes the transfers without core_lock. It takes the lock only for the figures of the
 * GPU and the state of extents. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/state/core.h"
#include "preload/move/kept_copies.h"
#include "preload/move/swap.h"
#include "preload/move/unchanged.h"

#define TRANSFERS_MAX UNCHANGED_SLOTS /* enough to map one extent while others are being copied */

struct transfer {
        struct extent *extent; /* NULL: the transfer was given up */
        CUevent done;          /* an event behind the copy; reused by later transfers */
        CUdeviceptr at;        /* the address at which the extent is copied; 0: none yet */
        bool out, copies;
        bool stuck;               /* a restore given up, whose memory cannot be taken away yet */
        bool asked;               /* eviction: the GPU is being asked whether a copy is needed */
        bool known;               /* eviction: the fingerprint below is known */
        struct fingerprint print; /* eviction: fingerprint of the memory on the card */
        uint64_t began_ns;
};

/* Extents found by a walk; the last one is chosen first (choose.c). */
#define CHOICE_MAX 256u
struct choice {
        uint64_t buried; /* heap.buried at the time of the walk */
        uint64_t end;
        unsigned count;
        struct extent *extents[CHOICE_MAX];
};

struct swap {
        CUcontext context; /* the context of the streams and events; NULL: none */
        CUstream out, in;
        struct arena *arena;
        uint64_t arena_said;         /* the arena's bytes at the last report of a change */
        uint64_t unpin;              /* bytes that the arena has yet to unpin for other programs */
        bool others_lack;            /* memory was given back for other programs: pin none ahead */
        struct kept_sweep sweep;     /* drops host copies for other programs */
        struct unchanged *unchanged; /* NULL: everything is copied */
        struct transfer ring[TRANSFERS_MAX];
        unsigned first, count;
        struct choice resident, evicted, unbacked;
        bool none_left;    /* the last walk found no EVICTED extent */
        bool evicting,     /* inside an episode of evictions; for the trace */
                restoring; /* inside an episode of restores; for the trace */
        uint64_t episode_bytes, spared_before;
        bool no_host_said;
        bool no_host;       /* host memory ran out: begin no eviction before a pause */
        bool lent_soon;     /* with no_host: the daemon is about to lend some */
        uint64_t copied_ns; /* when a copy out was last seen to end */
};

/* The choose_...() functions return what to move next; NULL: nothing. core_lock held. */
/* The next extent in this state, in address order, that contains an allocation. */
struct extent *choose_by_state(struct gpu *g, enum extent_state state);
/* The next evicted extent that can be restored to handed-over memory. */
struct extent *choose_whole(struct gpu *g);
/* The next extent to evict when `missing` bytes have to leave. Extents without allocations come
 * first: they need no copy. Then comes the smallest extent that is large enough; if none is, the
 * largest, which saves calls. Of equal extents the one with the highest address is chosen: memory
 * at low addresses was allocated first and probably lives longest. */
struct extent *choose_evict(struct gpu *g, uint64_t missing);
/* An extent has become EVICTED. */
void choose_left(struct gpu *g);
/* An extent has come to the card. */
void choose_arrived(struct gpu *g);

/* Make the streams and events for copies in the GPU's context, and make this context current. */
CUresult transfer_prepare(struct gpu *g);
/* Begin to move an extent that is marked busy. False: the extent cannot be moved now, and its
 * figures are as before. */
bool transfer_evict(struct gpu *g, struct extent *e);
bool transfer_restore(struct gpu *g, struct extent *e, int passed_fd);
/* Continue the evictions for which the GPU has told whether a copy is needed (unchanged.h). */
enum swap_progress transfer_answers(struct gpu *g);
/* Finish the oldest transfer if its copy has ended. SWAP_MORE: the transfer has ended. SWAP_LATER:
 * it had no effect, and is forgotten. SWAP_NOTHING: it goes on, or there is none. */
enum swap_progress transfer_reap(struct gpu *g);
/* Finish all transfers, and destroy our objects in the context, which is current. */
void transfer_end(struct gpu *g);

/* Mark an extent as on its way to the GPU, if the limit allows. *ret_shed: handed-over memory that
 * no longer fits the limit; the caller closes it before it creates memory. core_lock held. */
bool swap_claim(struct gpu *g, struct extent *e, struct passed *ret_shed) REQUIRES(core_lock);

/* The extent is no longer busy. swap_arrived(): it is on the GPU. swap_unclaim(): there was no
 * memory for it. swap_idle(): neither. core_lock held. */
void swap_idle(struct gpu *g, struct extent *e) REQUIRES(core_lock);
void swap_arrived(struct gpu *g, struct extent *e) REQUIRES(core_lock);
void swap_unclaim(struct gpu *g, struct extent *e, CUresult why) REQUIRES(core_lock);
