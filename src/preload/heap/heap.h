/* heap.h: the addresses a program holds on one GPU and the memory behind them.
 *
 * The address space is one large reservation, cut into blocks: one a large allocation, or one a
 * slab that packs small ones. A block is backed by extents of at most EXTENT_BYTES_MAX, each one
 * physical handle. Addresses never change; what is behind them does. What a program creates with
 * cuMemCreate is a block without an address of its own: it is mapped where the program says
 * (virtual.h). The heap keeps books only: it calls no driver function but the reservation's, and
 * its caller holds core_lock throughout. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/heap/arena.h"
#include "preload/heap/fingerprint.h"

/* Extents are at most this, and at most a 16th of the card: what is in transit at a time is
 * bounded, and the daemon's arithmetic knows it (gpu_extent() in src/sched/ledger.c). Larger
 * handles move no faster (docs/measurements/README.md), delay the first byte of a restore, and
 * leave fewer that are equal, which memory must be to be passed on. */
#define HEAP_EXTENT_MAX  (UINT64_C(128) << 20)
#define HEAP_SMALL_MAX   (UINT64_C(1) << 20) /* allocations up to this size share a slab */
#define HEAP_SLAB_MAX    (UINT64_C(64) << 20)
#define HEAP_SMALL_ALIGN 512u                /* like the driver's own */
#define HEAP_GRANULARITY (UINT64_C(2) << 20) /* of VMM handles, checked at attach */

enum extent_state {
        EXTENT_UNBACKED, /* no memory, no contents */
        EXTENT_RESIDENT, /* mapped */
        EXTENT_EVICTED,  /* contents in the arena, or all zero and nowhere */
        EXTENT_MAPPED,   /* host memory is mapped there and used over the bus (overflow.h) */
};

struct block;
struct stay;

struct extent {
        CUdeviceptr address;    /* 0 in a HANDLE: it is mapped wherever the program says */
        uint64_t bytes, offset; /* offset: in the block */
        struct block *block;
        CUmemGenericAllocationHandle handle; /* RESIDENT, MAPPED */
        /* One bit for each HEAP_GRANULARITY bytes, lowest address first. */
        uint64_t live; /* pages with an allocation: their contents count */
        uint64_t kept; /* EVICTED, during the copy, and while the host has a copy: the pages that
                          the copy holds */
        struct arena_room host;   /* that copy; none where all is zero */
        struct fingerprint print; /* fingerprint of the kept pages ... */
        bool known;               /* ... where one was requested */
        enum extent_state state;
        bool managed; /* managed memory: no handle and no arena; the driver moves it at our request
                       */
        bool busy;  /* a thread makes driver calls on it without the lock; no other thread may touch
                       it */
        bool moves; /* shall move to the other side (overflow.c) */
        bool counted; /* in h->allocated: has to be there before the program may run, or is there */
        bool adopted; /* RESIDENT: the memory came from another process (passed.h) */
        bool own;     /* never handed over again: another process or the program has a handle of the
                         allocation */
        bool exported;     /* stays on the card (export.h) */
        struct stay *stay; /* somebody wants it to stay; NULL */
        uint32_t peers;    /* RESIDENT: other GPUs that it is mapped for, 1 << ordinal */
};

_Static_assert(HEAP_EXTENT_MAX / HEAP_GRANULARITY <= 64, "pages of an extent are bits of a word");

/* All pages of an extent; of managed memory the last may be a part of one. */
static inline uint64_t extent_whole(const struct extent *e)
{
        return UINT64_MAX >> (64 - (e->bytes + HEAP_GRANULARITY - 1) / HEAP_GRANULARITY);
}

static inline uint64_t extent_pages_bytes(uint64_t pages)
{
        return (uint64_t)__builtin_popcountll(pages) * HEAP_GRANULARITY;
}

enum block_kind {
        BLOCK_FREE,
        BLOCK_LARGE,
        BLOCK_SLAB,
        BLOCK_ADOPTED, /* the program's own cuMemAllocManaged: the driver answers questions about it
                        */
        BLOCK_POOL,    /* only pool.c knows what is in it */
        BLOCK_HANDLE,  /* what the program has created itself */
};

struct handle;
struct slab;
struct chunk;

struct block {
        CUdeviceptr address;
        uint64_t bytes;     /* of address space, a multiple of HEAP_GRANULARITY */
        uint64_t requested; /* LARGE: what the program asked for */
        enum block_kind kind;
        bool managed;     /* its addresses are cuMemAllocManaged's, and go with it */
        bool dying;       /* freed by the program, its memory is being given back */
        bool late;        /* partly freed while work may still use it (late.h) */
        bool sync_memops; /* LARGE: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as set by the program */
        bool held;        /* its mapping is being changed: its extents stay as they are */
        int priority; /* which blocks stay on the card when not all fit (overflow.c); higher first
                       */
        int64_t use;  /* ... and among equals: what is known of its use (profile.h); 0: nothing */
        uint64_t nth; /* number among allocations of its size, to recognize it in the next run; 0:
                         not counted */
        CUcontext owner;
        uint64_t id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
        struct slab *slab;
        struct block *next_slab;      /* of heap.slabs */
        struct block *lower, *higher; /* FREE: in heap.spaces ... */
        uint64_t largest;             /* ... the most bytes of this one and those below it */
        struct chunk *chunk;          /* POOL */
        struct handle *handle;        /* HANDLE; NULL: the program has released it */
        size_t index;                 /* HANDLE: in heap.handles */
        uint16_t *users;              /* SLAB, POOL: allocations in each HEAP_GRANULARITY bytes */
        struct block *next_late;      /* freed during a capture: the next one of gpu.late */
        uint64_t extent_bytes;        /* of each but the last */
        unsigned extent_count;        /* POOL: how many were ever used */
        struct extent *extents;
};

/* Where pieces of slabs were freed lately, by size: programs often allocate the same size again.
 * Only hints: each is checked before use. */
#define HOLE_SIZES 64u
#define HOLES_KEPT 256u
struct holes {
        uint64_t filled; /* sizes that have any */
        uint16_t count[HOLE_SIZES];
        CUdeviceptr at[HOLE_SIZES][HOLES_KEPT];
};

struct heap {
        struct block **blocks; /* by address, without gaps inside a reservation */
        size_t count, room;
        struct block *spaces;   /* those of them that are FREE and not managed (spaces.h) */
        struct block **handles; /* the blocks without an address, in no order */
        size_t handle_count, handle_room;
        uint64_t buried;        /* blocks in all: who remembers extents sees that some are gone */
        uint64_t reserve_bytes; /* size of the next reservation */
        uint64_t extent_bytes;  /* the largest extent of this GPU */
        uint64_t next_id;
        struct block *slabs; /* those that were of use last come first */
        uint64_t slab_bytes;
        struct holes *holes; /* NULL: no slab yet */
        bool managed;        /* everything is made of managed memory (SUBLET_MEMORY=managed) */

        uint64_t allocated;     /* bytes of extents that are in use or hold memory */
        uint64_t managed_bytes; /* of these, what is managed memory */
        uint64_t
                backed; /* of extents that hold GPU memory, those on their way in or out included */
        uint64_t resident; /* of extents that are RESIDENT and whole */
        uint64_t mapped;   /* of extents that are MAPPED, which are in none of the others */
};

void heap_init(struct heap *h, uint64_t gpu_bytes);

/* 0; -ENOSPC: h->allocated would exceed max, and *ret_cost says by how much it has to rise;
 * -ENOBUFS: a heap of managed memory needs *ret_cost bytes of it (heap_provide()) first;
 * -ENOMEM: no address space or no memory for the books. Nothing is backed yet. */
int heap_allocate(struct heap *h, uint64_t bytes, CUcontext owner, uint64_t max,
                  CUdeviceptr *ret_address, uint64_t *ret_cost);

/* A block that takes nothing of the card; its extents are busy, and the caller maps host memory at
 * all of them. NULL: no memory. */
struct block *heap_allocate_aside(struct heap *h, uint64_t bytes, CUcontext owner);
/* An extent is MAPPED now and was RESIDENT, or the other way round; h->backed counts it already in
 * the second case. */
void heap_change_sides(struct heap *h, struct extent *e);

/* Managed memory to make one block of exactly this size of. 0 or -ENOMEM: it stays the caller's. */
int heap_provide(struct heap *h, CUdeviceptr address, uint64_t bytes);
/* Count managed memory that the program has allocated itself. 0, -ENOSPC or -ENOMEM as above. */
int heap_adopt(struct heap *h, CUdeviceptr address, uint64_t bytes, CUcontext owner, uint64_t max,
               uint64_t *ret_cost);
/* A block of managed memory leaves the books and is deleted. The figures stay as they are: it is
 * the caller who knows when the driver has the memory back. */
void heap_withdraw(struct heap *h, struct block *b);
/* One of the program's own blocks of managed memory that these bytes touch (0 and UINT64_MAX: all);
 * NULL: there is none (left). */
struct block *heap_adopted(const struct heap *h, CUdeviceptr address, uint64_t bytes);

/* Memory for a handle of the program, of a multiple of HEAP_GRANULARITY. 0, -ENOSPC or -ENOMEM. */
int heap_create(struct heap *h, uint64_t bytes, struct handle *handle, uint64_t max,
                struct block **ret);

/* What lies at an address inside an allocation of the program: its start, its size as requested,
 * its block. False: not ours. */
struct heap_place {
        CUdeviceptr start;
        uint64_t bytes;
        struct block *block;
};
bool heap_find(const struct heap *h, CUdeviceptr address, struct heap_place *ret);
/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of an allocation. */
void heap_set_sync(const struct heap_place *p, bool on);
bool heap_sync(const struct heap_place *p);
/* An address that the heap itself has reserved, whatever is there. */
bool heap_holds(const struct heap *h, CUdeviceptr address);
/* One of these where no allocation is: free, or behind the end of one. */
bool heap_gap(const struct heap *h, CUdeviceptr address);

/* The program gives back the allocation that starts at address. 0 and in *ret_dead the block whose
 * memory the caller must now release and then hand to heap_bury(), or NULL where the slab lives on.
 * -EINVAL: nothing starts there. */
int heap_free(struct heap *h, CUdeviceptr address, struct block **ret_dead);
/* Blocks of a context that dies (NULL: of all): each call hands out one more, marked dying; NULL
 * when there is none left. */
struct block *heap_orphan(struct heap *h, CUcontext owner);
/* A POOL block of so many bytes of address space; nothing in it is in use. NULL: no memory. */
struct block *heap_take_pool(struct heap *h, uint64_t bytes, uint64_t extent_bytes);
/* Bytes by which h->allocated will rise when this part of a POOL block comes into use. */
uint64_t heap_use_cost(const struct block *b, CUdeviceptr at, uint64_t bytes);
/* An allocation in a slab or a POOL block begins or ends. Extents that it leaves without any stay
 * counted until heap_settle(). */
void heap_use(struct heap *h, struct block *b, CUdeviceptr at, uint64_t bytes);
void heap_unuse(struct block *b, CUdeviceptr at, uint64_t bytes);
/* An extent that holds neither memory nor contents and is of no use: nobody has to wait for it. */
void heap_settle(struct heap *h, struct extent *e);
/* The block holds nothing any more: its addresses can be used again, and h->allocated falls. */
void heap_bury(struct heap *h, struct block *dead);

/* Walk the extents: next one after the cursor { block, extent } in address order, those of handles
 * after all others. NULL at the end. Reset by zeroing the cursor; a cursor stays valid while the
 * lock is held. */
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

/* Nobody else is at it: it may be moved. */
static inline bool extent_is_free(const struct extent *e)
{
        return !e->busy && !e->block->held;
}
