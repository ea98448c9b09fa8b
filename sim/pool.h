/* pool.h: stream-ordered memory. A pool takes memory of the card in steps and cuts it into pieces;
 * what is freed on a stream is that stream's to use again at once, and everybody's when the stream
 * has come to it. */
#pragma once

#include "memory.h"

/* After a call that has waited for work: what pools hold over their threshold goes back to the
 * card. Unlocked. */
void pools_synced(void);
/* The card is full: everything that pools of the device hold for nothing goes back. True: something
 * did. Unlocked. */
bool pools_release(unsigned device);

/* The memory of a block of kind BLOCK_POOL comes back. stream NULL: nothing uses it any more. Under
 * sim.lock, and the space's. */
void pool_take_back(struct piece *piece, CUstream stream);
CUmemoryPool pool_of(const struct piece *piece);
