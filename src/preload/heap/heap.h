/* heap.h: the addresses that a program holds on one GPU, and the memory behind them.
 *
 * Reserved address space is cut into blocks: one for each large allocation, or one for a slab of
 * small ones. A block consists of extents of at most HEAP_EXTENT_MAX, each with one physical
 * handle. Addresses never change, but the memory behind them moves. Memory of cuMemCreate is a
 * block without an address: the program maps it where it likes (virtual.h). The heap only keeps
 * accounts: its one driver call reserves addresses. The caller of each function holds core_lock.
 * Why: docs/decisions.md, "Extents are at most 128 MiB and at most a 16th of the card". */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/heap/arena.h"
#include "preload/heap/fingerprint.h"

/* The largest size of an extent; on a small card it is a 16th of the card. It limits the bytes in
 * transit, and gpu_extent() in src/sched/ledger.c relies on that limit. Larger extents would move
 * no faster (docs/measurements) and delay the first byte of a restore. A hand-over needs extents of
 * equal size; with a larger limit, fewer would be equal. */
#define HEAP_EXTENT_MAX  (UINT64_C(128) << 20)
#define HEAP_SMALL_MAX   (UINT64_C(1) << 20) /* allocations up to this size share a slab */
#define HEAP_SLAB_MAX    (UINT64_C(64) << 20)
#define HEAP_SMALL_ALIGN 512u                /* the alignment of cuMemAlloc */
#define HEAP_GRANULARITY (UINT64_C(2) << 20) /* unit of physical memory, checked at attach */

enum extent_state {
        EXTENT_UNBACKED, /* no memory, no contents */
        EXTENT_RESIDENT, /* GPU memory is mapped there */
        EXTENT_EVICTED,  /* the arena has the contents, unless they are all zero */
        EXTENT_MAPPED, /* host memory is mapped there; the GPU uses it over the bus (overflow.h) */
};

struct block;
struct stay;

struct extent {
        CUdeviceptr address;    /* 0 in a HANDLE block, which the program maps where it likes */
        uint64_t bytes, offset; /* offset: bytes from the block's start */
        struct block *block;
        CUmemGenericAllocationHandle handle; /* valid if RESIDENT or MAPPED */
        /* One bit for each HEAP_GRANULARITY bytes, lowest address first. */
        uint64_t live;          /* pages that contain an allocation: their contents must be kept */
        uint64_t kept;          /* pages in the host copy, or being copied to it */
        struct arena_room host; /* the host copy; empty if it would be all zero, or if managed */
        struct fingerprint print; /* fingerprint of the kept pages, if `known` */
        bool known;               /* a fingerprint was computed */
        enum extent_state state;
        bool managed; /* managed memory: the driver moves it; no handle, no host copy */
        bool busy;    /* a thread works on it without the lock: other threads may not touch it */
        bool moves;   /* planned to move from the card to the host, or back (overflow.c) */
        bool counted; /* in h->allocated: the program may run only while it is on the card */
        bool adopted; /* RESIDENT: the memory came from another process (passed.h) */
        bool own; /* restore it only to new memory: another process may open it (ipc_export.c) */
        bool exported;     /* it stays on the card (export.h) */
        struct stay *stay; /* record of the exports that keep it on the card; NULL: not exported */
        uint32_t peers;    /* RESIDENT: other GPUs that it is mapped for, 1 << ordinal */
        /* POOL (pool_state.h): the pool size that the program reads counts it, with or without
         * memory. */
        bool told;
        /* POOL: the free list with frees in this extent for which no call has waited; 0: none
         * (pool_state.h). */
        uint32_t unawaited;
};

_Static_assert(HEAP_EXTENT_MAX / HEAP_GRANULARITY <= 64, "pages of an extent are bits of a word");

/* Returns a mask of all pages of an extent. The last page of managed memory may be incomplete. */
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
        BLOCK_ADOPTED, /* memory of the program's own cuMemAllocManaged, known to the driver */
        BLOCK_POOL,    /* address space of a memory pool; pool.c knows its contents */
        BLOCK_HANDLE,  /* memory that the program created with cuMemCreate */
};

struct handle;
struct slab;
struct chunk;

struct block {
        CUdeviceptr address;
        uint64_t bytes;     /* size of the address space, a multiple of HEAP_GRANULARITY */
        uint64_t requested; /* LARGE: bytes that the program asked for */
        enum block_kind kind;
        bool managed; /* its addresses come from cuMemAllocManaged, and are freed with its memory */
        bool dying;   /* the program has freed it, and its memory is being given back */
        bool late;    /* an allocation in it is freed, but work may still use it (late_frees.h) */
        bool sync_memops; /* LARGE: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as set by the program */
        bool held;        /* the program is changing its mappings: its extents must not be moved */
        int priority;     /* blocks with higher priority come to the card first (overflow.c) */
        int64_t use;  /* known use (profile.h), compared if priorities are equal; 0: not known */
        uint64_t nth; /* number among blocks of this size, to find it in the next run; 0: none */
        CUcontext owner;
        uint64_t id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
        struct slab *slab;
        struct block *next_slab;      /* SLAB: the next one in heap.slabs */
        struct block *lower, *higher; /* FREE: children in the tree heap.spaces */
        uint64_t largest;             /* FREE: bytes of the largest block in its subtree */
        struct chunk *chunk;          /* POOL: the suballocator's record of it */
        struct handle *handle;        /* HANDLE: NULL if the program has released it */
        size_t index;                 /* HANDLE: its index in heap.handles */
        uint16_t *users;              /* SLAB, POOL: number of allocations in each page */
        struct block *next_late;      /* the next one in gpu.late or gpu.lost */
        uint64_t extent_bytes;        /* size of each extent but the last */
        unsigned extent_count;        /* number of extents; POOL: up to the last one ever used */
        struct extent *extents;
};

/* Addresses in slabs that were freed lately, by size: programs often allocate the same size again.
 * They are only hints: each is checked before use. */
#define HOLE_SIZES 64u
#define HOLES_KEPT 256u
struct holes {
        uint64_t filled; /* one bit for each size class that has holes */
        uint16_t count[HOLE_SIZES];
        CUdeviceptr at[HOLE_SIZES][HOLES_KEPT];
};

struct heap {
        struct block **blocks; /* sorted by address, without gaps inside a reservation */
        size_t count, room;
        struct block *spaces;   /* tree of the FREE blocks that are not managed (spaces.h) */
        struct block **handles; /* HANDLE blocks, which have no address; not sorted */
        size_t handle_count, handle_room;
        uint64_t buried;        /* number of deleted blocks; if it grows, extents may be gone */
        uint64_t reserve_bytes; /* size of the next reservation */
        uint64_t extent_bytes;  /* size of the largest extents on this GPU */
        uint64_t next_id;
        struct block *slabs; /* all slabs; the one used last comes first */
        uint64_t slab_bytes;
        struct holes *holes; /* NULL: no slab yet */
        bool managed;        /* all blocks are managed memory (SUBLET_MEMORY=managed) */

        uint64_t allocated;     /* bytes of extents that are in use or hold memory */
        uint64_t managed_bytes; /* part of allocated: managed memory */
        uint64_t managed_left;  /* managed memory left to the driver; no other figure counts it */
        uint64_t backed;        /* bytes of extents with GPU memory, also while they move */
        uint64_t resident;      /* bytes of RESIDENT extents, except those that are leaving */
        uint64_t mapped;        /* bytes of MAPPED extents; no other figure counts them */
};

void heap_init(struct heap *h, uint64_t gpu_bytes);

/* Allocate addresses; no memory is behind them yet. Returns 0 or an error. -ENOSPC: h->allocated
 * would have to rise by *ret_cost bytes and then exceed max. -ENOBUFS, from a managed heap: first
 * give it *ret_cost bytes with heap_provide(). -ENOMEM: no address space, or no memory for the
 * accounts. */
int heap_allocate(struct heap *h, uint64_t bytes, CUcontext owner, uint64_t max,
                  CUdeviceptr *ret_address, uint64_t *ret_cost);

/* Allocate a block that gets host memory instead of memory of the card, beyond its first on_card
 * bytes (whole extents). The extents beyond are busy until the caller has mapped host memory at all
 * of them. NULL: no memory. */
struct block *heap_allocate_aside(struct heap *h, uint64_t bytes, CUcontext owner,
                                  uint64_t on_card);
/* Count a MAPPED extent as allocated and backed before it comes to the card, so that no allocation
 * takes its room meanwhile. heap_unclaim() undoes that: the extent stays where it is. */
void heap_claim(struct heap *h, struct extent *e);
void heap_unclaim(struct heap *h, struct extent *e);
/* Record that an extent has changed from RESIDENT to MAPPED, or, after heap_claim(), from MAPPED to
 * RESIDENT. */
void heap_change_sides(struct heap *h, struct extent *e);

/* Give the heap managed memory for one block of exactly this size. Returns 0; or -ENOMEM, and the
 * caller keeps the memory. */
int heap_provide(struct heap *h, CUdeviceptr address, uint64_t bytes);
/* Count managed memory that the program has allocated itself. Returns 0, -ENOSPC or -ENOMEM like
 * heap_allocate(). */
int heap_adopt(struct heap *h, CUdeviceptr address, uint64_t bytes, CUcontext owner, uint64_t max,
               uint64_t *ret_cost);
/* Delete a block of managed memory. The figures stay unchanged, because only the caller knows when
 * the driver has the memory back. */
void heap_withdraw(struct heap *h, struct block *b);
/* Returns an ADOPTED block that overlaps this range, or NULL. To search all addresses, pass 0 and
 * UINT64_MAX. */
struct block *heap_adopted(const struct heap *h, CUdeviceptr address, uint64_t bytes);

/* Create the block of a program's handle. bytes: a multiple of HEAP_GRANULARITY. Returns 0, -ENOSPC
 * or -ENOMEM. */
int heap_create(struct heap *h, uint64_t bytes, struct handle *handle, uint64_t max,
                struct block **ret);

/* An allocation of the program, found by an address inside it: its start, its requested size and
 * its block. heap_find() returns false if no allocation of this heap contains the address. */
struct heap_place {
        CUdeviceptr start;
        uint64_t bytes;
        struct block *block;
};
bool heap_find(const struct heap *h, CUdeviceptr address, struct heap_place *ret);
/* Returns the index of the last block that starts at or below address, or h->count. */
size_t heap_locate(const struct heap *h, CUdeviceptr address);

/* The addresses from `from` up to `to`, without `to`, that one call may reach: an allocation, or
 * addresses between reservations. */
struct stretch {
        CUdeviceptr from, to;
};
/* Narrow a stretch around an address to the allocation that contains the address. If the heap has
 * not reserved the address, narrow the stretch to end at the heap's blocks. False: the heap has
 * reserved the address, and no allocation covers it. */
bool heap_narrow(const struct heap *h, CUdeviceptr address, struct stretch *s);
/* A stretch is valid until this number changes. It changes when an allocation ends, and when a heap
 * or an import gets addresses. Never 0. Any thread may read it without the lock. */
extern _Atomic uint64_t heap_changes;
static inline void heap_note_change(void)
{
        atomic_fetch_add_explicit(&heap_changes, 1, memory_order_relaxed);
}

/* Set and read CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of an allocation. */
void heap_set_sync(const struct heap_place *p, bool on);
bool heap_sync(const struct heap_place *p);
/* True if the heap has reserved this address, allocated or not. */
bool heap_holds(const struct heap *h, CUdeviceptr address);
/* True if the heap has reserved this address and no allocation covers it. */
bool heap_gap(const struct heap *h, CUdeviceptr address);

/* Free the allocation that starts at address. Returns 0, or -EINVAL if no allocation starts there.
 * The caller must release the memory of the block *ret_dead and then call heap_bury(). *ret_dead is
 * NULL if the slab still has other allocations: then nothing is left to do. */
int heap_free(struct heap *h, CUdeviceptr address, struct block **ret_dead);
/* Mark one more block as dying, because its context (owner) ends, and return it. owner NULL: any
 * context. Returns NULL if no such block is left. */
struct block *heap_orphan(struct heap *h, CUcontext owner);
/* Allocate a POOL block with this many bytes of address space, none of it in use. NULL: no memory.
 */
struct block *heap_take_pool(struct heap *h, uint64_t bytes, uint64_t extent_bytes);
/* Returns by how many bytes h->allocated rises when this part of a POOL block comes into use. */
uint64_t heap_use_cost(const struct block *b, CUdeviceptr at, uint64_t bytes);
/* Record that an allocation in a slab or a POOL block begins or ends. Extents without allocations
 * stay counted in h->allocated until heap_settle(). */
void heap_use(struct heap *h, struct block *b, CUdeviceptr at, uint64_t bytes);
void heap_unuse(struct block *b, CUdeviceptr at, uint64_t bytes);
/* Subtract an extent from h->allocated, because the program need not wait for its memory. */
void heap_settle(struct heap *h, struct extent *e);
/* Delete a block whose memory is released: its addresses become free, and h->allocated falls. */
void heap_bury(struct heap *h, struct block *dead);

/* The position of heap_walk(), which returns the next extent in address order; extents of handles
 * come last, then NULL. Start with a cursor of zeros. The cursor is valid as long as the lock is
 * held. */
struct heap_cursor {
        size_t block;
        unsigned extent;
};
struct extent *heap_walk(struct heap *h, struct heap_cursor *c);

/* Returns the allocated bytes that are not resident: at 0 the program may run. */
static inline uint64_t heap_missing(const struct heap *h)
{
        return h->allocated - h->resident;
}

static inline bool block_is_busy(const struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++)
                if (b->extents[i].busy)
                        return true;
        return false;
}

/* True if no thread works on the extent, so that it may be moved. */
static inline bool extent_is_free(const struct extent *e)
{
        return !e->busy && !e->block->held;
}
