/* overflow.h: one process may use more than the card (SUBLET_MEMORY=overflow).
 *
 * What does not fit lies in host memory that is mapped at its address; kernels, copies, fills and
 * graphs use it there, over the bus. Which buffers those are goes by priority (sublet.h), then by
 * what is known of their use (profile.h), then the largest first. The rest is in the daemon's
 * ledger like any program's memory; what is on the host is asked of the daemon before it is taken.
 * Buffers change sides while nothing is in flight, some time after the last change. core_lock is
 * held for all of it unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/state/part.h"
#include "preload/process/lock.h"

struct block;
struct gpu;

/* Read the environment, once; without the lock. */
void overflow_setup(void);
/* Find out whether this GPU can; once. */
void overflow_learn(struct gpu *g) UNLOCKS(core_lock);

/* How much of the card cuMemAlloc of so many bytes may use, given the bytes promised: some are kept
 * for small allocations. */
uint64_t overflow_card_room(const struct gpu *g, uint64_t promised, uint64_t bytes)
        REQUIRES(core_lock);
/* Asking for more would not help: the program's part of the card is used. */
bool overflow_is_full(const struct gpu *g, uint64_t bytes, uint64_t cost) REQUIRES(core_lock);
/* Host memory at an address of ours. 0, or -ENOMEM. */
int overflow_allocate(struct gpu *g, uint64_t bytes, CUcontext owner, CUdeviceptr *ret_address)
        UNLOCKS(core_lock);
/* There is memory at an address now; if it is a buffer of its own, the profile may know it. */
void overflow_allocated(struct gpu *g, CUdeviceptr address, uint64_t bytes);
/* Whether it can change sides: a large buffer of the program's, on such a GPU. */
bool overflow_places(const struct block *b);

/* Put buffers where the trials want them (profile_place()), at once. */
void overflow_arrange(void);
bool overflow_is_arranging(void);
bool overflow_is_arranged(void); /* false: it failed, or is not done yet */

/* After an allocation, a free or an order that may put other buffers on the card. */
void overflow_changed(struct gpu *g);

/* For include/sublet.h: the priority of the buffer at the address. 0, or -1: there is no buffer of
 * its own there. The lock is not held. */
int sublet_buffer_priority(uint64_t address, int priority) __attribute__((visibility("default")));

/* ---- the agent's ---- */

/* Begin to move buffers if it is time. */
void overflow_step(uint64_t now) REQUIRES(core_lock);
/* A drain that this module began has ended. False: another began it. */
bool overflow_drained(void);
bool overflow_drain_failed(void);
/* The daemon has taken over. */
void overflow_cancel(void) REQUIRES(core_lock);
enum own_drain overflow_own(void);
/* Carry one extent to the other side. False: there is none (left). The lock is not held. */
bool overflow_move(void);
/* When to look again. */
uint64_t overflow_next_ns(void);
