/* overflow.h: one process may use more memory than the card has (SUBLET_MEMORY=overflow).
 *
 * Buffers that do not fit lie in host memory that is mapped at their addresses; kernels, copies,
 * fills and graphs use it over the bus. Buffers are chosen for the card by priority (sublet.h),
 * then by their known use (profile.h), then the smallest first. Memory on the card is in the
 * daemon's ledger as for any program; host memory is requested from the daemon before it is taken.
 * Buffers move between card and host while no work is in flight, some time after the last
 * allocation, free or change of priority. core_lock is held in all functions unless said
 * otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/state/part.h"
#include "preload/process/lock.h"

struct block;
struct gpu;

/* Call it once, without the lock: it reads the settings. */
void overflow_setup(void);
/* Find out, once, whether this GPU can use mapped host memory. */
void overflow_learn(struct gpu *g) UNLOCKS(core_lock);

/* The next four functions need g->overflow. overflow_card_most() returns the most bytes that
 * heap.allocated may reach when cuMemAlloc asks for `bytes`. Large allocations leave some bytes for
 * small ones. */
uint64_t overflow_card_most(const struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* Returns the bytes that one allocation would get now, on the card and the host together. promised:
 * the bytes of the card that the daemon would promise. */
uint64_t overflow_free(const struct gpu *g, uint64_t promised) REQUIRES(core_lock);
/* Allocate host memory at an address of ours. If that does not suffice, the first extents go to the
 * card. Returns 0, or -ENOMEM. */
int overflow_allocate(struct gpu *g, uint64_t bytes, CUcontext owner, CUdeviceptr *ret_address)
        UNLOCKS(core_lock);
/* Memory was allocated at an address. If it is a buffer of its own, the profile may know it. */
void overflow_allocated(struct gpu *g, CUdeviceptr address, uint64_t bytes);
/* True if a block can move between the card and the host: only a large buffer of the program can.
 */
bool overflow_places(const struct block *b);

/* Move buffers at once to where the trials want them (profile_place()). */
void overflow_arrange(void);
bool overflow_is_arranging(void);
bool overflow_is_arranged(void); /* false: the move has failed, or goes on */

/* Call it after an allocation, a free or another change that may put other buffers on the card. */
void overflow_changed(struct gpu *g);

/* For include/sublet.h: sets the priority of the buffer at the address. 0, or -1: no buffer with a
 * block of its own is there. The lock is not held. */
int sublet_buffer_priority(uint64_t address, int priority) __attribute__((visibility("default")));

/* ---- for the agent ---- */

/* Begin to move buffers if it is time. */
void overflow_step(uint64_t now) REQUIRES(core_lock);
/* A drain has ended, or failed. False: this module did not begin it. */
bool overflow_drained(void);
bool overflow_drain_failed(void);
/* The daemon has taken the drain over, or is lost: end the move. */
void overflow_cancel(void) REQUIRES(core_lock);
enum own_drain overflow_own(void);
/* Move one extent from the card to the host, or back. False: no extent is left to move. The lock is
 * not held. */
bool overflow_move(void);
/* Returns when overflow_step() or overflow_move() is due; UINT64_MAX: not now. */
uint64_t overflow_next_ns(void);
