/* swap_state.h: what swap.c (what comes and goes, and when), choose.c (which first) and transfer.c
 * (how) share. Nobody else includes it.
 *
 * The transfers are the agent's: core_lock is not held, but for the figures of the GPU and the
 * state of extents. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/state/core.h"
#include "preload/move/swap.h"
#include "preload/move/unchanged.h"

#define TRANSFERS_MAX UNCHANGED_SLOTS /* enough to map one extent while others are being copied */

struct transfer {
        struct extent *extent; /* NULL: given up meanwhile */
        CUevent done;          /* stays with the slot */
        CUdeviceptr at;        /* where it is copied from or to; 0: nowhere yet */
        bool out, copies;
        bool asked;               /* out: whether it has to be copied */
        bool known;               /* out: the fingerprint of what is on the card */
        struct fingerprint print; /* ... */
        uint64_t began_ns;
};

/* Extents that a walk has found, the next one last (choose.c). */
#define CHOICE_MAX 256u
struct choice {
        uint64_t buried; /* heap.buried then */
        uint64_t end;
        unsigned count;
        struct extent *extents[CHOICE_MAX];
};

struct swap {
        CUcontext context; /* that the streams and events were made in; NULL: none */
        CUstream out, in;
        struct arena *arena;
        struct unchanged *unchanged; /* NULL: everything is copied */
        struct transfer ring[TRANSFERS_MAX];
        unsigned first, count;
        struct choice resident, evicted, unbacked;
        bool none_left;           /* no extent is EVICTED, as a walk has seen */
        bool evicting, restoring; /* an episode is on, for the trace */
        uint64_t episode_bytes, spared_before;
        bool no_host_said;
        bool no_host;       /* found just now: nothing more begins to leave before a rest */
        uint64_t copied_ns; /* when a copy out was last seen to be done */
};

/* What to move next; NULL: nothing. core_lock held. */
/* The next one of a state that something lives in, in address order. */
struct extent *choose_by_state(struct gpu *g, enum extent_state state);
/* The next evicted one that memory passed on to us can take the place of. */
struct extent *choose_whole(struct gpu *g);
/* The next one to leave, where so many bytes are missing. What nothing lives in comes first, for it
 * need not be copied; then the smallest that is enough, else the largest: the fewest calls, and
 * little more than what is missing. Among equals the one highest in the address space: what lies
 * low was allocated first and is most likely to live long. */
struct extent *choose_evict(struct gpu *g, uint64_t missing);
/* An extent is EVICTED that was not. */
void choose_left(struct gpu *g);
/* Something is on the card that was not. */
void choose_arrived(struct gpu *g);

/* Make what the copies need in the GPU's context, and that current. */
CUresult transfer_prepare(struct gpu *g);
/* Begin to move an extent that is marked busy. False: not now, and its books are as before. */
bool transfer_evict(struct gpu *g, struct extent *e);
bool transfer_restore(struct gpu *g, struct extent *e, int passed_fd);
/* Go on with those that the GPU was asked about. */
enum swap_progress transfer_answers(struct gpu *g);
/* The oldest: SWAP_MORE: it is done. SWAP_LATER: it came to nothing, and is forgotten.
 * SWAP_NOTHING: it goes on, or there is none. */
enum swap_progress transfer_reap(struct gpu *g);
/* Finish all of them and let go of what is in the context, which is current. */
void transfer_end(struct gpu *g);

/* An extent is in nobody's hands any more: it is on the GPU, or the memory that should have been
 * there was not, or neither. core_lock held. */
void swap_idle(struct gpu *g, struct extent *e) REQUIRES(core_lock);
void swap_arrived(struct gpu *g, struct extent *e) REQUIRES(core_lock);
void swap_unclaim(struct gpu *g, struct extent *e, CUresult why) REQUIRES(core_lock);
