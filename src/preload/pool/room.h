/* room.h: room for memory that can be moved. core_lock is held in all functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

struct gpu;

/* Ask the daemon for room for `more` bytes. Returns 0, or -ENOMEM. */
int room_commit(struct gpu *g, uint64_t more) UNLOCKS(core_lock);

/* Find room for `more` bytes. Unused memory of pools is given back if need be. Managed memory may
 * be taken out of the figures, because the driver moves it to the host, as it does without sublet.
 * False: there is no room. */
bool room_grow(struct gpu *g, uint64_t more) UNLOCKS(core_lock);

/* Tells the program's user, once, which limit of ours refuses `more` bytes; says nothing if none
 * does. Call it only where the program gets CUDA_ERROR_OUT_OF_MEMORY. room_tell_unevictable() is
 * for bytes that request_unevictable() has refused. */
void room_tell(const struct gpu *g, uint64_t more) REQUIRES(core_lock);
void room_tell_unevictable(const struct gpu *g, uint64_t more) REQUIRES(core_lock);

/* Returns how large heap.allocated may become without a new request. */
uint64_t room_allowed(const struct gpu *g) REQUIRES(core_lock);
/* Call it after each allocation. */
void room_taken(struct gpu *g) REQUIRES(core_lock);
