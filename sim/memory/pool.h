/* pool.h: stream-ordered memory: what others have to tell the pools, and to ask them. */
#pragma once

#include "sim/memory/memory.h"

/* After a call that has waited for the point, or, where it is NULL, for all of the context: what
 * pools hold over their threshold goes back to the card. Unlocked. */
void pools_synced(CUcontext c, const struct point *p);
/* The card is full: everything that pools of the device hold for nothing goes back. True: something
 * did. Unlocked. */
bool pools_release(unsigned device);

/* The memory of a block of kind BLOCK_POOL comes back. stream NULL: nothing uses it any more. Under
 * sim.lock, and the space's. */
void pool_take_back(struct piece *piece, CUstream stream);
CUmemoryPool pool_of(const struct piece *piece);
