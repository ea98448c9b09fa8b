/* room.h: room for memory that can be moved. core_lock held for all of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

struct gpu;

/* Ask the daemon to promise room for so many more bytes. 0, or -ENOMEM. The lock is given up
 * meanwhile. */
int room_commit(struct gpu *g, uint64_t more) REQUIRES(core_lock);

/* Room for so many bytes more, if need be at the cost of what pools keep for nothing, and of
 * managed memory, which nobody needs to count: the driver makes room of it, as it would on a card
 * of one's own. False: there is none. The lock is given up meanwhile. */
bool room_grow(struct gpu *g, uint64_t more) REQUIRES(core_lock);

/* What heap.allocated may be without asking for more. */
uint64_t room_allowed(const struct gpu *g) REQUIRES(core_lock);
/* What follows from an allocation. */
void room_taken(struct gpu *g) REQUIRES(core_lock);
