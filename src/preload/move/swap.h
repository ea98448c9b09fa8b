/* swap.h: puts memory behind addresses and takes it away again.
 *
 * The agent's thread evicts and restores, one step at a time, and listens to the daemon in between.
 * Both directions keep several copies in flight while the next extent is mapped or the last one
 * unmapped. Newly allocated memory is backed by the program's own threads, at the gate. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;
struct block;
struct extent;
struct mover;

/* Call it once, before the first thread passes the gate. */
void swap_setup(void);
/* Make g->swap for a GPU; it stays NULL if there is no memory for it. */
void swap_learn(struct gpu *g);

/* Do one step of the evictions and restores that are due; agent's thread, core_lock not held.
 *   may_evict: evict while heap.backed > limit
 *   restore:   restore and back all memory while the limit allows
 */
enum swap_progress {
        SWAP_NOTHING, /* nothing to do, or nothing that is allowed now */
        SWAP_LATER, /* the GPU lacked memory that it should have: try again in some milliseconds */
        SWAP_COPYING, /* copies are in flight */
        SWAP_MORE,    /* call again at once */
};
enum swap_progress swap_step(struct gpu *g, bool may_evict, bool restore);

/* Back one block at once: without a daemon nobody can make room for it later. Returns 0, or -ENOMEM
 * if the GPU is full. */
int swap_back_block(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* Back new memory at once while the program runs, as far as the limit allows: other processes see
 * it on the card, as without sublet. The rest is backed at the gate. So is memory that is allocated
 * during a capture: if it is freed unused, the free need not wait for the capture's end
 * (late_frees.h). core_lock held. */
void swap_back_new(struct gpu *g) UNLOCKS(core_lock);

/* The extent has no allocation any more: drop its contents, but keep its memory. core_lock held. */
void swap_unused(struct gpu *g, struct extent *e) REQUIRES(core_lock);
/* Give back the memory of an extent that is not busy and that no work uses; its contents are
 * lost. False: the driver keeps the memory for now. */
bool swap_release(struct gpu *g, struct extent *e) UNLOCKS(core_lock);

/* Wait for the transfers of a dying block, and release its memory. False: the driver keeps some of
 * it for now, or the process ends. */
bool swap_empty(struct gpu *g, struct block *b) UNLOCKS(core_lock);
/* Like swap_empty(), and also remove the block, at once or as soon as its memory is released. */
void swap_discard(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* The process ends, and none of its work is in flight: give back all memory that could be evicted,
 * except managed memory. Its contents are lost. Stops at until_ns. For the agent, core_lock held.
 */
void swap_let_go(struct gpu *g, uint64_t until_ns) UNLOCKS(core_lock);

/* Give back host memory that holds no contents. Stops at until_ns. For the agent, core_lock not
 * held. */
void swap_unpin(struct gpu *g, uint64_t until_ns);

/* Free a block whose memory now belongs to another process; either all or none of its extents are
 * on the GPU. core_lock held. */
void swap_hand_over(struct gpu *g, struct block *b) REQUIRES(core_lock);

/* Copy all of an extent that is marked busy to another address, and wait for the copy; the agent's
 * thread, core_lock not held. */
CUresult swap_carry(struct gpu *g, struct extent *e, CUdeviceptr to);

/* Stop counting a block of the program's own managed memory; the driver moves its pages. */
void swap_disown(struct gpu *g, struct block *b) UNLOCKS(core_lock);

/* The context that copies run in is about to end: finish the transfers in flight and stop using the
 * context. */
void swap_retire(struct gpu *g) UNLOCKS(core_lock);

/* True if no transfer is in flight in a context of the program itself. For the agent. */
bool swap_moves_apart(const struct gpu *g);
bool swap_is_still(const struct gpu *g); /* True if no transfer is in flight in any context */
/* The mover is about to end, and no transfer is in flight: destroy our objects in its context. The
 * agent, core_lock not held. */
void swap_leave_mover(struct gpu *g, const struct mover *m);

/* Begin to pin some host memory for a later eviction: without it the first eviction of a process
 * takes 1.5 times as long. True: call again soon for more. For the agent, core_lock not held. */
bool swap_pin_ahead(struct gpu *g);
/* Other programs lack this many bytes of host memory. Each call of swap_unpin_step() gives back
 * some that holds no evicted memory. True: call again at once. The driver then waits for all work
 * in flight, so there must be none. For the agent. */
void swap_ask_unpin(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* True if swap_unpin_step() has something to do. */
bool swap_is_to_unpin(const struct gpu *g) REQUIRES(core_lock);
bool swap_unpin_step(struct gpu *g);
/* The process ends: wait until no thread pins host memory. For the agent, core_lock not held. */
void swap_rest(struct gpu *g);

uint64_t swap_arena_bytes(const struct gpu *g);
