/* pool_state.h: shared by pool.c (allocation and free), pool_space.c (address space),
 * pool_streams.c (frees that streams have reached), pool_awaited.c (frees that the program has
 * waited for) and pool_kept.c (memory kept while the program is frozen). No other file includes it.
 * core_lock is held in all functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/heap/suballocator.h"
#include "preload/pool/pool.h"
#include "preload/process/lock.h"

/* The memory that one stream has freed. */
struct pool_free_list {
        struct pool_free_list *next;
        struct pool_stream stream;
        struct free_list free;
        uint32_t name;    /* names the list in extent.unawaited */
        uint64_t freed;   /* number of the last free (frees.h) */
        uint64_t marked;  /* `freed` when the event was last recorded */
        uint64_t done;    /* the stream is known to have reached the frees up to this number */
        uint64_t awaited; /* a call of the program has waited for the frees up to this number */
        CUevent event;    /* our event in the stream's context; NULL: none yet */
        bool pending;     /* the event is recorded, and not known to be reached */
        bool gone;        /* the stream is destroyed; only the event can be queried */
        bool looking;     /* a thread records the event without the lock */
        unsigned waiters; /* threads that wait to use this record */
};

/* The value of extent.unawaited if no call has waited for frees of several lists. */
#define UNAWAITED_MANY UINT32_MAX

struct pool {
        struct pool *next;
        CUmemoryPool handle, /* NULL: the pool is destroyed */
                name;        /* the handle that the pool's memory still reports */
        bool handed_over;
        struct gpu *gpu;
        struct suballocator suballocator;
        struct pool_free_list *free_lists;
        uint32_t names; /* free lists made so far */
        uint64_t used, used_high, reserved_high;
        uint64_t threshold, /* bytes that an unused pool keeps */
                most;       /* bytes that the pool may hold; 0: no limit */
        bool may_wait;      /* an allocation may make its stream wait for another stream's free */
        uint64_t turns,     /* number of allocations and frees */
                turns_seen; /* value of `turns` when the agent last looked */
        unsigned users;     /* threads that have given up the lock and will use the pool again */
};

#define POOL_REST_NS (100 * NSEC_PER_MSEC) /* after it an unused pool shrinks to its threshold */

extern struct pool *pools;
extern bool pool_tending; /* the agent looks at pools at pool_tend_ns */
extern uint64_t pool_tend_ns;

/* Returns the free list of a stream. pool_list_find(): NULL if there is none. pool_list_get() makes
 * it; NULL: no memory, or no such stream. */
struct pool_free_list *pool_list_find(const struct pool *p, const struct pool_stream *s);
struct pool_free_list *pool_list_get(struct pool *p, const struct pool_stream *s);
/* Makes the stream wait for another stream that has freed enough, and takes that memory. */
bool pool_borrow(struct pool *p, const struct pool_stream *s, uint64_t bytes) UNLOCKS(core_lock);

/* Find out which frees the streams have reached. record: record events for frees that have none.
 * True: some memory became free for all streams. */
bool pool_look(struct pool *p, bool record) UNLOCKS(core_lock);
/* Drop the contents of those extents in this range that have no allocation any more. */
void pool_drop_idle(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes)
        REQUIRES(core_lock);

/* Reserve more address space, for at least this many bytes. 0; -1: no memory. */
int pool_widen(struct pool *p, uint64_t bytes);
/* Returns free memory of `pages` bytes, in a block of its own: single pages may have room where a
 * whole extent has none. NULL: no memory. */
struct suballocation *pool_pages(struct pool *p, uint64_t pages);

/* Look soon whether memory is to be given back. */
void pool_tend_soon(void);

/* Returns the size of the pool that the program is told. Unused memory that has left the card
 * counts until the driver would have given it back. */
uint64_t pool_told(const struct pool *p);
/* An allocation begins: the program is told of its extents from now on. */
void pool_note_used(struct block *b, CUdeviceptr at, uint64_t bytes);
/* The stream has freed this memory, and no call of the program has waited for that yet. */
void pool_note_unawaited(const struct pool_free_list *l, struct block *b, CUdeviceptr at,
                         uint64_t bytes);
/* Calls have waited for all frees of a stream. */
void pool_settle_frees(struct pool *p, struct pool_free_list *l);

/* While the program is frozen, keep the contents of memory that is freed in stream order. False:
 * the program is not frozen, so nothing is kept. */
bool pool_keep(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes);
/* The block is about to be discarded: forget the memory kept in it. */
void pool_forget_kept(const struct block *b);
