/* store.h: the bytes of managed memory and how they are moved. For managed.c alone.
 *
 * A store is a file of memory as large as the device addresses; an address is at the same place in
 * both. What a store does not have takes no memory there. Blocks and regions as in frames.h;
 * `block` is the address where one begins. Whose turn it is to have the bytes is the callers'
 * business: a block must not be moved by two at once (frames_pin(), frames_claim() and managed.c's
 * lock see to that). 0 or -errno. */
#pragma once

#include "base/clock.h"
#include "sim/session/frames.h"

/* With nothing to be had and nothing moving. */
#define STORE_PATIENCE_NS (10 * NSEC_PER_SEC)

enum store_side { STORE_HOST, STORE_CARD };

/* ---- sets of regions of a block, a bit each ---- */

/* Those that bytes [start, end) of the block touch. */
uint32_t regions_of(uint64_t start, uint64_t end);
uint64_t regions_bytes(uint32_t regions);
/* Takes the next run of neighbours out of the set; false: it was empty. */
bool regions_next(uint32_t *regions, uint64_t *ret_offset, uint64_t *ret_bytes);

/* ---- this process's stores ---- */

int store_setup(void); /* makes them, once, and tells the session */
/* Shows [address, address + bytes) of one of them, at `at` or, 0, anywhere. NULL: no room. */
void *store_map(uint64_t at, uint64_t bytes, enum store_side side, uint64_t address,
                int protection);
/* These two under one lock. */
int store_to_card(uint64_t block, uint32_t regions);
int store_to_host(uint64_t block, uint32_t regions);
void store_forget(uint64_t block, uint32_t regions);
/* The block's number in the frames. */
uint64_t store_block(uint64_t block);

/* ---- what moving costs ---- */

void store_count(unsigned device, enum session_direction direction, uint64_t bytes);
/* Sleep until the bytes are across, and the fault is served. *ready_ns: until when the caller has
 * been served so far, 0 at first. */
void store_pace(uint64_t *ready_ns, unsigned device, enum session_direction direction,
                uint64_t bytes, bool fault);

/* Take the block off the card that was used longest ago, whoever owns it. -EBUSY: none can be moved
 * now; -ENOENT: there is none; anything else: it cannot be done. */
int store_evict(unsigned device, uint64_t *ready_ns);
