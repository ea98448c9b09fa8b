/* swap.h: puts memory behind addresses and takes it away again.
 *
 * The agent's thread evicts and restores, a step at a time, so that it can listen to the daemon in
 * between; both directions keep several copies in flight while the next extent is mapped or the
 * last one unmapped. Threads of the program back what they have just allocated themselves, at the
 * gate. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;
struct block;
struct extent;
struct mover;

/* Once, before the first thread passes the gate. */
void swap_setup(void);
/* Make g->swap for a GPU; it stays NULL without memory for it. */
void swap_learn(struct gpu *g);

/* One step towards the GPU's targets; agent's thread, core_lock not held.
 *   not running: evict while heap.backed > limit
 *   restore:     bring back and back everything while the limit allows
 */
enum swap_progress {
        SWAP_NOTHING, /* nothing to do, or nothing that may be done */
        SWAP_LATER,   /* memory that should be there was not: try again in some milliseconds */
        SWAP_COPYING, /* copies are in flight */
        SWAP_MORE,    /* call again at once */
};
enum swap_progress swap_step(struct gpu *g, bool may_evict, bool restore);

/* Back one block at once, where there is no daemon that could make room later. 0, or -ENOMEM: the
 * GPU has none. */
int swap_back_block(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* Nothing lives in the extent any more: its contents are forgotten, its memory stays. core_lock
 * held. */
void swap_unused(struct gpu *g, struct extent *e) REQUIRES(core_lock);
/* Give back the memory of an extent that is not busy and that no work uses any more; what still
 * lives in it loses its contents. */
void swap_release(struct gpu *g, struct extent *e) UNLOCKS(core_lock);

/* Release whatever memory a dying block holds and wait for transfers of it. False: the GPU has
 * failed, nothing is given back before the process ends. */
bool swap_empty(struct gpu *g, struct block *b) UNLOCKS(core_lock);
/* ... and bury it. */
void swap_discard(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* Bury a block whose memory, all of it on the GPU or none, is somebody else's from now on.
 * core_lock held. */
void swap_hand_over(struct gpu *g, struct block *b) REQUIRES(core_lock);

/* Copy all of an extent that is marked busy to another address and wait for it; the agent's thread,
 * core_lock not held. */
CUresult swap_carry(struct gpu *g, struct extent *e, CUdeviceptr to);

/* Count a block of the program's own managed memory no longer; what of it is on the GPU is the
 * driver's matter. */
void swap_disown(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* The context that copies run in is about to go: finish what is in flight and let go of it. */
void swap_retire(struct gpu *g) UNLOCKS(core_lock);

/* No transfer is in flight in a context of the program's own. The agent. */
bool swap_moves_apart(const struct gpu *g);
bool swap_is_still(const struct gpu *g); /* nor in any other */
/* The mover is about to end, and no transfer is in flight: let go of what is in its context. The
 * agent, core_lock not held. */
void swap_leave_mover(struct gpu *g, const struct mover *m);

uint64_t swap_arena_bytes(const struct gpu *g);
/* Give back what is held beyond the limit, where one has come that is lower; the agent, core_lock
 * not held. */
void swap_trim_arena(struct gpu *g);
