/* store.h: stores and moves the bytes of managed memory, for managed.c alone.
 *
 * A store is a file of memory as large as the region of device addresses; an address has the same
 * offset in both stores of a process. Bytes in one store take no memory in the other. frames.h
 * defines blocks and regions; `block` is the address of a block. The callers must not move a block
 * twice at the same time: frames_pin(), frames_claim() and the lock of managed.c prevent that.
 * Functions return 0 or -errno. */
#pragma once

#include "base/clock.h"
#include "sim/session/frames.h"

/* Time to wait for room on a card when no frame can be evicted. */
#define STORE_PATIENCE_NS (10 * NSEC_PER_SEC)

enum store_side { STORE_HOST, STORE_CARD };

/* ---- sets of regions of a block, with one bit per region ---- */

/* Returns the regions of a block that contain its bytes [start, end). */
uint32_t regions_of(uint64_t start, uint64_t end);
uint64_t regions_bytes(uint32_t regions);
/* Takes the next run of adjacent regions out of the set. Returns false if the set was empty. */
bool regions_next(uint32_t *regions, uint64_t *ret_offset, uint64_t *ret_bytes);

/* ---- this process's stores ---- */

int store_setup(void); /* makes the stores, once, and publishes them in the session */
/* Maps [address, address + bytes) of a store at `at`, or anywhere if `at` is 0. NULL: no room. */
void *store_map(uint64_t at, uint64_t bytes, enum store_side side, uint64_t address,
                int protection);
/* Both functions move regions to the other store. They share a buffer, so the caller must hold the
 * same lock for both. */
int store_to_card(uint64_t block, uint32_t regions);
int store_to_host(uint64_t block, uint32_t regions);
void store_forget(uint64_t block, uint32_t regions);
/* Returns the number that struct frames_place has for a block. */
uint64_t store_block(uint64_t block);

/* ---- the cost of moves ---- */

void store_count(unsigned device, enum session_direction direction, uint64_t bytes);
/* Sleeps until the bus has transferred the bytes. fault: sleeps longer by the time of a fault.
 * *ready_ns is the end of the caller's last transfer; 0: this is the first one. */
void store_pace(uint64_t *ready_ns, unsigned device, enum session_direction direction,
                uint64_t bytes, bool fault);

/* Evicts the block that was used longest ago, whichever process owns it. Returns 0, -EBUSY (no
 * block can be moved now), -ENOENT (there is none), or another error. */
int store_evict(unsigned device, uint64_t *ready_ns);
