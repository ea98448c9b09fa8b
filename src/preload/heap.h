/* heap.h: the addresses a program holds on one GPU and the memory behind them.
 *
 * The address space is one large reservation, cut into blocks: one a large allocation, or one a
 * slab that packs small ones. A block is backed by extents of at most EXTENT_BYTES_MAX, each one
 * physical handle. Addresses never change; what is behind them does. The heap keeps books only: it
 * calls no driver function but the reservation's, and its caller holds core.lock throughout. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/arena.h"

/* Extents are at most this, and at most a 16th of the card: what is in transit at a time is
 * bounded, and the daemon's arithmetic knows it (gpu_extent() in src/sched/ledger.c). Larger
 * handles move no faster (docs/measurements/README.md), delay the first byte of a restore, and
 * leave fewer that are equal, which memory must be to be passed on. */
#define HEAP_EXTENT_MAX  (UINT64_C(128) << 20)
#define HEAP_SMALL_MAX   (UINT64_C(1) << 20) /* up to this, allocations share a slab */
#define HEAP_SMALL_ALIGN 512u                /* like the driver's own */
#define HEAP_GRANULARITY (UINT64_C(2) << 20) /* of VMM handles, checked at attach */

enum extent_state {
        EXTENT_UNBACKED, /* no memory, no contents */
        EXTENT_RESIDENT, /* mapped */
        EXTENT_EVICTED,  /* contents in the arena */
};

struct extent {
        CUdeviceptr address;
        uint64_t bytes;
        CUmemGenericAllocationHandle handle; /* RESIDENT */
        struct arena_room host;              /* EVICTED, and while copying */
        enum extent_state state;
        bool managed; /* no handle and no arena: the driver moves it, and we tell it where to */
        bool busy; /* somebody makes driver calls on it without the lock; nobody else may touch it
                    */
};

enum block_kind {
        BLOCK_FREE,
        BLOCK_LARGE,
        BLOCK_SLAB,
        BLOCK_ADOPTED, /* the program's own cuMemAllocManaged: the driver answers questions about it
                        */
};

struct slab;

struct block {
        CUdeviceptr address;
        uint64_t bytes;     /* of address space, a multiple of HEAP_GRANULARITY */
        uint64_t requested; /* LARGE: what the program asked for */
        enum block_kind kind;
        bool managed;     /* its addresses are cuMemAllocManaged's, and go with it */
        bool dying;       /* freed by the program, its memory on the way back */
        uint64_t dropped; /* bytes that h->allocated no longer counts */
        CUcontext owner;
        uint64_t id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
        struct slab *slab;
        struct block *next_late; /* freed during a capture: the next one of gpu.late */
        unsigned extent_count;
        struct extent *extents;
};

struct heap {
        struct block **blocks; /* by address, without gaps inside a reservation */
        size_t count, room;
        uint64_t reserve_bytes; /* size of the next reservation */
        uint64_t extent_bytes;  /* the largest extent of this GPU */
        uint64_t next_id;
        unsigned slabs;
        bool managed; /* everything is made of managed memory (SUBLET_MEMORY=managed) */

        uint64_t allocated;     /* bytes of blocks in use */
        uint64_t managed_bytes; /* of these, what is managed memory */
        uint64_t
                backed; /* of extents that hold GPU memory, those on their way in or out included */
        uint64_t resident; /* of extents that are RESIDENT and whole */
};

void heap_init(struct heap *h, uint64_t gpu_bytes);

/* 0; -ENOSPC: h->allocated would exceed max, and *ret_cost says by how much it has to rise;
 * -ENOBUFS: a heap of managed memory needs *ret_cost bytes of it (heap_provide()) first;
 * -ENOMEM: no address space or no memory for the books. Nothing is backed yet. */
int heap_allocate(struct heap *h, uint64_t bytes, CUcontext owner, uint64_t max,
                  CUdeviceptr *ret_address, uint64_t *ret_cost);

/* Managed memory to make one block of exactly this size of. 0 or -ENOMEM: it stays the caller's. */
int heap_provide(struct heap *h, CUdeviceptr address, uint64_t bytes);
/* Count managed memory that the program has allocated itself. 0, -ENOSPC or -ENOMEM as above. */
int heap_adopt(struct heap *h, CUdeviceptr address, uint64_t bytes, CUcontext owner, uint64_t max,
               uint64_t *ret_cost);
/* A block of managed memory leaves the books and is deleted. The figures stay as they are: it is
 * the caller who knows when the driver has the memory back. */
void heap_withdraw(struct heap *h, struct block *b);
/* One of the program's own blocks of managed memory; NULL: there is none (left). */
struct block *heap_adopted(const struct heap *h);

/* What lies at an address inside an allocation of the program: its start, its size as requested,
 * its block. False: not ours. */
struct heap_place {
        CUdeviceptr start;
        uint64_t bytes;
        struct block *block;
};
bool heap_find(const struct heap *h, CUdeviceptr address, struct heap_place *ret);

/* The program gives back the allocation that starts at address. 0 and in *ret_dead the block whose
 * memory the caller must now release and then hand to heap_bury(), or NULL where the slab lives on.
 * -EINVAL: nothing starts there. */
int heap_free(struct heap *h, CUdeviceptr address, struct block **ret_dead);
/* Blocks of a context that dies (NULL: of all): each call hands out one more, marked dying; NULL
 * when there is none left. */
struct block *heap_orphan(struct heap *h, CUcontext owner);
/* So many bytes of a dying block hold neither memory nor contents: nobody has to wait for them. */
void heap_drop(struct heap *h, struct block *dead, uint64_t bytes);
/* The block holds nothing any more: its addresses can be used again, and h->allocated falls. */
void heap_bury(struct heap *h, struct block *dead);

/* Walk the extents: next one after the cursor { block, extent } in address order. NULL at the end.
 * Reset by zeroing the cursor; a cursor stays valid while the lock is held. */
struct heap_cursor {
        size_t block;
        unsigned extent;
};
struct extent *heap_walk(struct heap *h, struct heap_cursor *c);

/* Bytes allocated that hold no memory or are on their way: 0 means the program may run. */
static inline uint64_t heap_missing(const struct heap *h)
{
        return h->allocated - h->resident;
}
