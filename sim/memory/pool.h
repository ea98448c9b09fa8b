/* pool.h: stream-ordered memory, for others. */
#pragma once

#include "sim/memory/pool_memory.h"

#define MAGIC_POOL 0x504f4f4cu

struct CUmemPoolHandle_st {
        uint32_t magic;
        bool is_default, destroyed;
        int may[2]; /* CU_MEMPOOL_ATTR_REUSE_*, without the first, which is in `memory` */
        uint64_t threshold;
        struct pool_memory memory;
        struct CUmemPoolHandle_st *next;
};

/* A pool of the device from now on; most: bytes it may hold, 0: as much as there is. Under
 * sim.lock. */
void pool_begin(CUmemoryPool p, unsigned device, uint64_t most);

/* After a call that has waited for the point (NULL: for all of the context): pools give back to the
 * card what they hold above their threshold. Unlocked. */
void pools_synced(CUcontext c, const struct point *p);
/* The card is full: the pools of the device give back all memory that they hold unused. True: there
 * was some. Unlocked. */
bool pools_release(unsigned device);

/* Frees a pool's block in the order of a stream. sim.lock held, too. */
void block_free_on(struct block *b, CUstream stream);
