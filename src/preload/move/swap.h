/* swap.h: puts memory behind addresses and takes it away again.
 *
 * The agent's thread evicts and restores, one step at a time, and listens to the daemon in between.
 * Both directions keep several copies in flight while the next extent is mapped or the last one
 * unmapped. Threads of the program back the memory that they have just allocated themselves, at the
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
/* Make g->swap for a GPU; it stays NULL if there is no memory for it. */
void swap_learn(struct gpu *g);

/* One step towards the GPU's targets; agent's thread, core_lock not held.
 *   not running: evict while heap.backed > limit
 *   restore:     bring back and back everything while the limit allows
 */
enum swap_progress {
        SWAP_NOTHING, /* nothing to do, or nothing that is allowed now */
        SWAP_LATER,   /* there was no device memory where there should be: try again in some
                         milliseconds */
        SWAP_COPYING, /* copies are in flight */
        SWAP_MORE,    /* call again at once */
};
enum swap_progress swap_step(struct gpu *g, bool may_evict, bool restore);

/* Back one block at once, where no daemon could make room later. 0, or -ENOMEM: the GPU is full. */
int swap_back_block(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* No block lives in the extent any more: its contents are dropped, its memory stays. core_lock
 * held. */
void swap_unused(struct gpu *g, struct extent *e) REQUIRES(core_lock);
/* Give back the memory of an extent that is not busy and that no work uses; blocks in it lose their
 * contents. */
void swap_release(struct gpu *g, struct extent *e) UNLOCKS(core_lock);

/* Release the memory of a dying block, and wait for its transfers. False: the GPU has failed, and
 * no memory is given back before the process ends. */
bool swap_empty(struct gpu *g, struct block *b) UNLOCKS(core_lock);
/* ... and bury it. */
void swap_discard(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* Free a block whose memory, all of it on the GPU or none, belongs to another process from now on.
 * core_lock held. */
void swap_hand_over(struct gpu *g, struct block *b) REQUIRES(core_lock);

/* Copy all of an extent that is marked busy to another address, and wait for the copy; the agent's
 * thread, core_lock not held. */
CUresult swap_carry(struct gpu *g, struct extent *e, CUdeviceptr to);

/* Stop counting a block of the program's own managed memory; the driver moves its pages. */
void swap_disown(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* The context that copies run in is about to end: finish the transfers in flight and let go of the
 * context. */
void swap_retire(struct gpu *g) UNLOCKS(core_lock);

/* No transfer is in flight in a context of the program's own. The agent. */
bool swap_moves_apart(const struct gpu *g);
bool swap_is_still(const struct gpu *g); /* nor in any other */
/* The mover is about to end, and no transfer is in flight: let go of the objects in its context.
 * The agent, core_lock not held. */
void swap_leave_mover(struct gpu *g, const struct mover *m);

uint64_t swap_arena_bytes(const struct gpu *g);
/* Give back host memory beyond the limit after a lower limit; the agent, core_lock not held. */
void swap_trim_arena(struct gpu *g);
