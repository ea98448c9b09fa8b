/* memory.h: what programs allocate: device memory and pinned host memory, as against what is mapped
 * (space.h). Blocks are what cuMemGetAddressRange and the pointer attributes speak of. */
#pragma once

#include "sim/api/objects.h"
#include "sim/memory/space.h"

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
        struct pool *pool;   /* of small allocations; NULL: memory of its own */
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
/* A pool's block, in the order of a stream (pool.h). sim.lock held, too. */
void block_free_on(struct block *b, CUstream stream);

/* These locked. What is allocated in the context may be used by these cards, besides its own. */
void memory_allow(CUcontext c, uint32_t devices);
/* peer.c: the cards that may use what is allocated in the context; the context is going. */
uint32_t peer_devices(CUcontext c);
void peer_forget(CUcontext c);

/* What the driver looks at before it queues a copy or a fill: device addresses are mapped,
 * accessible to some device and within one allocation. Host memory is the program's own risk.
 * graph: it is for a graph, whose own memory need not be there yet. Unlocked. */
bool memory_usable(uint64_t at, uint64_t bytes, bool write, bool graph);

/* Memory of a card at addresses of its own, or at reserved ones. Locked (space) on return when it
 * succeeds. */
CUresult memory_range_new(unsigned device, uint64_t bytes, struct range **ret_range);
CUresult memory_range_at(unsigned device, uint64_t start, uint64_t bytes,
                         enum physical_origin origin, struct range **ret_range);
/* With its addresses. Locked (space). */
void memory_range_free(struct range *range);

/* Device memory for the driver's own use (module variables). */
CUresult memory_allocate(CUcontext c, uint64_t bytes, CUdeviceptr *ret);
/* At once, without waiting. */
CUresult memory_free(CUdeviceptr ptr);
/* Everything allocated in the context. sim.lock held. */
void memory_release_context(CUcontext c);
