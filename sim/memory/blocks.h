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
        struct span span; /* the requested bytes */
        enum block_kind kind;
        CUcontext context;
        unsigned flags;
        _Atomic bool sync_memops; /* the attribute that cuPointerSetAttribute sets */
        uint64_t id;
        struct range *range;
        uint64_t mapped;   /* length for munmap() of host memory that the simulator mapped */
        uint64_t inode;    /* IMPORTED: the inode of the file */
        unsigned opened;   /* IMPORTED: how often the program has opened the handle */
        struct pack *pack; /* the pack of a small allocation; NULL: the block has its own memory */
        struct piece *piece; /* POOL: the piece of a pool (pool_memory.h) */
};

/* All functions that take or return blocks need the space lock. */

/* Returns the block that holds the address; NULL: none. */
struct block *memory_block(uint64_t address);
/* Returns the block opened from this file, at this offset; NULL: none. */
struct block *memory_imported(uint64_t inode, uint64_t offset);
int block_add(struct block *b); /* 0, -EEXIST, -ENOMEM */
void block_free(struct block *b);
/* Removes a block from the table and keeps its memory. */
void block_remove(struct block *b);
/* Lets these cards, besides the context's own, use the context's allocations. Needs the space
 * lock. */
void memory_allow(CUcontext c, uint32_t devices);
void block_allow(struct range *range, unsigned own, uint32_t devices);
/* Allocates memory of a card, at new or at reserved addresses. On success returns with the space
 * lock held. */
CUresult memory_range_new(unsigned device, uint64_t bytes, struct range **ret_range);
CUresult memory_range_at(unsigned device, uint64_t start, uint64_t bytes,
                         enum physical_origin origin, struct range **ret_range);

/* Allocates less than the card's granularity, packed with other small allocations of the context.
 * Sets b's range and span. On success returns with the space lock held. */
#define BLOCK_SMALL MIB
#define BLOCK_SLOT  512
CUresult block_small(CUcontext c, uint64_t bytes, struct block *b);
/* Frees the memory of a block that cuMemAlloc allocated. */
void block_drop_memory(struct block *b);
/* Iterates over a context's blocks, from *at on; NULL: no more. */
struct block *block_of_context(CUcontext c, size_t *at);
