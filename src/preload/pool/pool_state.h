/* pool_state.h: shared by pool.c (allocation and free), pool_space.c (address space) and
 * pool_kept.c (memory kept while the program is frozen). No other file includes it. core_lock is
 * held in all functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/heap/suballocator.h"
#include "preload/pool/pool.h"
#include "preload/process/lock.h"

#define POOL_EXTENT (UINT64_C(32) << 20) /* the driver's pools grow in such steps */

/* The memory that one stream has freed. */
struct pool_free_list {
        struct pool_free_list *next;
        struct pool_stream stream;
        struct free_list free;
        uint64_t freed;   /* number of frees so far */
        uint64_t marked;  /* `freed` when the event was last recorded */
        uint64_t done;    /* number of frees that the stream is known to have reached */
        CUevent event;    /* our event in the stream's context; NULL: none yet */
        bool pending;     /* the event is recorded, and not known to be reached */
        bool gone;        /* the stream is destroyed; only the event can be queried */
        bool looking;     /* a thread records the event without the lock */
        unsigned awaited; /* threads that wait to use this record */
};

struct pool {
        struct pool *next;
        CUmemoryPool handle, /* NULL: the pool is destroyed */
                name;        /* the handle that the pool's memory still reports */
        bool handed_over;
        struct gpu *gpu;
        struct suballocator suballocator;
        struct pool_free_list *free_lists;
        uint64_t used, used_high, reserved_high;
        uint64_t threshold, /* bytes that an unused pool keeps */
                most;       /* bytes that the pool may hold; 0: no limit */
        bool may_wait;      /* an allocation may make its stream wait for another stream's free */
        uint64_t turns,     /* number of allocations and frees */
                turns_seen; /* value of `turns` when the agent last looked */
        unsigned users;     /* threads that have given up the lock and will use the pool again */
};

extern struct pool *pools;

/* Find out which frees the streams have reached. record: record events for frees that have none.
 * True: some memory became free for all streams. */
bool pool_look(struct pool *p, bool record) UNLOCKS(core_lock);
/* Drop the contents of those extents in this range that have no allocation any more. */
void pool_drop_idle(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes)
        REQUIRES(core_lock);

/* Reserve more address space, for so many bytes at least. 0; -1: no memory. */
int pool_widen(struct pool *p, uint64_t bytes);
/* Returns free memory of just these pages, in a block of its own: where a whole extent has no room
 * any more, its pages may. NULL: no memory. */
struct suballocation *pool_pages(struct pool *p, uint64_t pages);

/* While the program is frozen, keep the contents of memory that is freed in stream order. False:
 * the program is not frozen, so nothing is kept. */
bool pool_keep(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes);
/* The block is about to be discarded: forget the memory kept in it. */
void pool_forget_kept(const struct block *b);
