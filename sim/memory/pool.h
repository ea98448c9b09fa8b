/* pool.h: stream-ordered memory: what others have to tell the pools, and to ask them. */
#pragma once

#include "sim/memory/pool_memory.h"

#define MAGIC_POOL 0x504f4f4cu

struct CUmemPoolHandle_st {
        uint32_t magic;
        bool is_default, destroyed;
        int may[2]; /* CU_MEMPOOL_ATTR_REUSE_, but the first, which its memory knows */
        uint64_t threshold;
        struct pool_memory memory;
        struct CUmemPoolHandle_st *next;
};

/* A pool of the device from now on; most: bytes it may hold, 0: as much as there is. Under
 * sim.lock. */
void pool_begin(CUmemoryPool p, unsigned device, uint64_t most);

/* After a call that has waited for the point, or, where it is NULL, for all of the context: what
 * pools hold over their threshold goes back to the card. Unlocked. */
void pools_synced(CUcontext c, const struct point *p);
/* The card is full: everything that pools of the device hold for nothing goes back. True: something
 * did. Unlocked. */
bool pools_release(unsigned device);

/* A pool's block, in the order of a stream. sim.lock held, too. */
void block_free_on(struct block *b, CUstream stream);
