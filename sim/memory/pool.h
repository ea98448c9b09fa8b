/* pool.h: memory pools and stream-ordered memory. */
#pragma once

#include "sim/memory/pool_memory.h"

#define MAGIC_POOL 0x504f4f4cu

struct CUmemPoolHandle_st {
        uint32_t magic;
        bool is_default, destroyed;
        /* The second and third CU_MEMPOOL_ATTR_REUSE_*. The first is memory.follows. */
        int may[2];
        uint64_t threshold;
        struct pool_memory memory;
        struct CUmemPoolHandle_st *next;
};

/* Makes p a pool of the device. most: bytes that it may hold; 0: no limit. Needs sim.lock. */
void pool_begin(CUmemoryPool p, unsigned device, uint64_t most);

/* Must follow a call that has waited for the point p, or for all work of the context if p is NULL.
 * Frees memory of cuMemAlloc that was freed in stream order before, and calls pools_synced(). Takes
 * sim.lock itself. */
void frees_synced(CUcontext c, const struct point *p);
/* Makes pools return memory above their threshold to the card. Takes sim.lock itself. */
void pools_synced(CUcontext c, const struct point *p);
/* Makes the pools of a full device return their unused memory. Returns true if there was some.
 * Takes sim.lock itself. */
bool pools_release(unsigned device);

/* Frees a pool's block in the order of a stream, or at once if it is NULL. Needs sim.lock and the
 * space lock. */
void block_free_on(struct block *b, CUstream stream);
/* Makes a pool return memory above its threshold. Needs sim.lock. */
void pool_shrink(CUmemoryPool pool);
