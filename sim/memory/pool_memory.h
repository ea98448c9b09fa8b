/* pool_memory.h: the memory of a pool: one stretch of addresses, cut into pieces, with memory of
 * the card behind those chunks of it that are in use. What is freed on a stream is that stream's to
 * use again at once, and everybody's when the stream has come to it; the chunk behind it goes back
 * when somebody has waited for that stream. Under sim.lock. */
#pragma once

#include "sim/memory/memory.h"

/* The unit in which pools and graphs take memory of the card: 32 MiB, as on a card; less on a small
 * one. */
uint64_t pool_chunk(unsigned device);

struct pool_memory;

struct piece {
        struct pool_memory *memory;
        uint64_t start, bytes;
        struct block *block; /* NULL: free */
        struct point freed;  /* free: the point at which it was freed */
        bool known;          /* free: some call has waited for that point */
        struct piece *next;  /* by address */
};

struct pool_memory {
        CUmemoryPool pool;
        unsigned device;
        bool follows;   /* events that a stream waits for make memory usable for it */
        uint64_t most;  /* bytes it may hold */
        uint64_t start; /* of its addresses; 0: none yet */
        uint64_t chunk_bytes;
        struct range **chunk; /* NULL: no memory there */
        size_t chunks;
        uint64_t reserved, reserved_high, used, used_high;
        struct piece *first;
};

/* most 0: as much as there is. */
void pool_memory_init(struct pool_memory *m, CUmemoryPool pool, unsigned device, uint64_t most);
/* A piece with memory behind it, counted as used; its block is the caller's to set. The lock is
 * given up meanwhile. waits: the stream may be made to wait for what another one has freed. */
CUresult pool_memory_take(struct pool_memory *m, uint64_t bytes, CUstream stream, bool waits,
                          struct piece **ret);
/* stream NULL: no work uses it any more. */
void pool_memory_free(struct piece *p, CUstream stream);
/* Some call has waited for the point (NULL: for all of the context). */
void pool_memory_synced(struct pool_memory *m, CUcontext c, const struct point *p);
/* Unused chunks go back until so many bytes are left. at_once: also chunks whose streams have not
 * been waited for yet, but could be. True: some did. */
bool pool_memory_release(struct pool_memory *m, uint64_t keep, bool at_once);
/* Gives its addresses back, if none is allocated any more. */
void pool_memory_end(struct pool_memory *m);
