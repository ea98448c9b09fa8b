/* blocks.h: what programs have allocated, as against what is mapped (space.h). Blocks are what
 * cuMemGetAddressRange and the pointer attributes speak of. */
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
        uint64_t mapped;     /* host memory of ours: what munmap() takes */
        uint64_t inode;      /* IMPORTED: of the file it is */
        unsigned opened;     /* IMPORTED: how often */
        struct pack *pack;   /* of small allocations; NULL: memory of its own */
        struct piece *piece; /* POOL: of a pool of the program's (pool.h) */
};

/* These four locked (space): the block that holds the address, NULL: none. */
struct block *memory_block(uint64_t address);
/* What was opened of this file, at this offset. */
struct block *memory_imported(uint64_t inode, uint64_t offset);
int block_add(struct block *b); /* 0, -EEXIST, -ENOMEM */
void block_free(struct block *b);
/* Out of the table; its memory stays. */
void block_remove(struct block *b);
/* Locked. What is allocated in the context may be used by these cards, besides its own. */
void memory_allow(CUcontext c, uint32_t devices);
void block_allow(struct range *range, unsigned own, uint32_t devices);
/* Memory of a card at addresses of its own, or at reserved ones. Locked (space) on return when it
 * succeeds. */
CUresult memory_range_new(unsigned device, uint64_t bytes, struct range **ret_range);
CUresult memory_range_at(unsigned device, uint64_t start, uint64_t bytes,
                         enum physical_origin origin, struct range **ret_range);
/* With its addresses. Locked (space). */
void memory_range_free(struct range *range);

/* Less than a block of the card's granularity, packed with others of the context. Locked (space) on
 * return when it succeeds. b gets its range and its span. */
#define BLOCK_SMALL MIB
#define BLOCK_SLOT  512
CUresult block_small(CUcontext c, uint64_t bytes, struct block *b);
/* The memory of a block of cuMemAlloc's goes back. Locked. */
void block_drop_memory(struct block *b);
/* The blocks of a context, one after the other: from *at on; NULL: no more. Locked. */
struct block *block_of_context(CUcontext c, size_t *at);
