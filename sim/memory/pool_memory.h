/* pool_memory.h: the memory of a pool: one stretch of addresses, cut into pieces, with memory of
 * the card behind the chunks in use. The stream that freed a piece may reuse it at once. Other
 * streams may reuse the piece when that stream has reached the free. A chunk goes back to the card
 * when a call has waited for the stream that freed its pieces. All functions need sim.lock. */
#pragma once

#include "sim/memory/memory.h"

/* Returns the unit in which pools and graphs take memory of the card: 32 MiB as on a real card,
 * less on a small one. */
uint64_t pool_chunk(unsigned device);

struct pool_memory;

struct piece {
        struct pool_memory *memory;
        uint64_t start, bytes;
        struct block *block; /* the allocation in the piece; NULL: the piece is free */
        struct point freed;  /* the point at which a free piece was freed */
        bool known;          /* a call has waited for that point */
        struct piece *next;  /* the piece at the next higher address */
};

struct pool_memory {
        CUmemoryPool pool;
        unsigned device;
        bool follows;   /* a stream may reuse memory freed before an event that it waits for */
        uint64_t most;  /* bytes that the pool may hold */
        uint64_t start; /* first address of the pool; 0: it has none yet */
        uint64_t chunk_bytes;
        struct range **chunk; /* memory of each chunk; NULL: none */
        size_t chunks;
        uint64_t reserved, reserved_high, used, used_high;
        struct piece *first;
};

/* most: bytes that the pool may hold; 0: no limit. */
void pool_memory_init(struct pool_memory *m, CUmemoryPool pool, unsigned device, uint64_t most);
/* Takes a piece with memory behind it; the caller sets its block. May release sim.lock for a time.
 * waits: the function may make the stream wait for a free on another stream. */
CUresult pool_memory_take(struct pool_memory *m, uint64_t bytes, CUstream stream, bool waits,
                          struct piece **ret);
/* Frees a piece in the order of a stream. stream NULL: no work uses the piece any more. */
void pool_memory_free(struct piece *p, CUstream stream);
/* Notes that a call has waited for the point, or for all work of the context if p is NULL. */
void pool_memory_synced(struct pool_memory *m, CUcontext c, const struct point *p);
/* Returns unused chunks to the card until `keep` bytes are left. at_once: also returns chunks for
 * which no call has waited, if their streams have reached the free. Returns true if a chunk went
 * back. */
bool pool_memory_release(struct pool_memory *m, uint64_t keep, bool at_once);
/* Gives the pool's addresses back, if no piece is allocated any more. */
void pool_memory_end(struct pool_memory *m);
