/* blocks.h: memory that programs have allocated, in contrast to mapped memory (space.h).
 * cuMemGetAddressRange and the pointer attributes report blocks. */
#pragma once

#include "sim/call/objects.h"
#include "sim/space/space.h"

enum block_kind {
        BLOCK_DEVICE,
        BLOCK_HOST,
        BLOCK_REGISTERED,
        BLOCK_MANAGED,
        BLOCK_IMPORTED,
        BLOCK_POOL,
        BLOCK_GRAPH
};

struct piece;

struct block {
        struct span span; /* as asked for */
        enum block_kind kind;
        CUcontext context;
        unsigned flags;
        _Atomic bool sync_memops; /* as set by cuPointerSetAttribute */
        uint64_t id;
        struct range *range;
        uint64_t mapped;     /* host memory of the simulator's: the length for munmap() */
        uint64_t inode;      /* IMPORTED: the inode of its file */
        unsigned opened;     /* IMPORTED: how often */
        struct pack *pack;   /* of a small allocation; NULL: it has memory of its own */
        struct piece *piece; /* POOL: its piece of a pool (pool_memory.h) */
};

/* These four locked (space). The block that holds the address; NULL: none. */
struct block *memory_block(uint64_t address);
/* The block opened from this file, at this offset. */
struct block *memory_imported(uint64_t inode, uint64_t offset);
int block_add(struct block *b); /* 0, -EEXIST, -ENOMEM */
void block_free(struct block *b);
/* Out of the table; its memory stays. */
void block_remove(struct block *b);
/* Locked. These cards, besides its own, may use the context's allocations. */
void memory_allow(CUcontext c, uint32_t devices);
void block_allow(struct range *range, unsigned own, uint32_t devices);
/* Memory of a card, at new or at reserved addresses. Locked (space) on return if it succeeds. */
CUresult memory_range_new(unsigned device, uint64_t bytes, struct range **ret_range);
CUresult memory_range_at(unsigned device, uint64_t start, uint64_t bytes,
                         enum physical_origin origin, struct range **ret_range);
/* With its addresses. Locked (space). */
void memory_range_free(struct range *range);

/* For allocations smaller than the card's granularity, packed with others of the context. Locked
 * (space) on return if it succeeds. Sets b's range and span. */
#define BLOCK_SMALL MIB
#define BLOCK_SLOT  512
CUresult block_small(CUcontext c, uint64_t bytes, struct block *b);
/* Frees the memory of a block of cuMemAlloc's. Locked. */
void block_drop_memory(struct block *b);
/* Iterates over a context's blocks, from *at on; NULL: no more. Locked. */
struct block *block_of_context(CUcontext c, size_t *at);
