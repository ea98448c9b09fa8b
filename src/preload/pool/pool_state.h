/* pool_state.h: what pool.c (allocation and free) and pool_kept.c (memory kept while the program is
 * frozen) share. No other file includes it. core_lock is held for all of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/heap/suballocator.h"
#include "preload/pool/pool.h"
#include "preload/process/lock.h"

/* What one stream has freed. */
struct pool_lane {
        struct pool_lane *next;
        struct pool_stream stream;
        struct lane free;
        uint64_t freed;   /* frees so far */
        uint64_t marked;  /* freed before the event was last recorded */
        uint64_t done;    /* the stream is known to have reached these frees */
        CUevent event;    /* our event in the stream's context; NULL: none yet */
        bool pending;     /* recorded, and not known to be reached */
        bool gone;        /* the stream is destroyed; only the event can be queried */
        bool looking;     /* a thread records the event without the lock */
        unsigned awaited; /* threads that will use this record again */
};

struct pool {
        struct pool *next;
        CUmemoryPool handle, name; /* handle NULL: destroyed; its memory is still listed under it */
        bool handed_over;
        struct gpu *gpu;
        struct suballocator suballocator;
        struct pool_lane *lanes;
        uint64_t used, used_high, reserved_high;
        uint64_t threshold, most; /* most: 0 is no limit */
        bool may_wait; /* an allocation may make its stream wait for another stream's free */
        uint64_t turns, turns_seen; /* allocations and frees */
        unsigned users;             /* threads that have given up the lock and will return to it */
};

extern struct pool *pools;

/* Find out which frees are reached by now; record: mark those without an event. True: some memory
 * became common. */
bool pool_look(struct pool *p, bool record) UNLOCKS(core_lock);
/* Drop the host copy of those extents in which nothing is live any more. */
void pool_drop_idle(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes)
        REQUIRES(core_lock);

/* True: freed in stream order, and its contents are kept because the program is frozen. */
bool pool_keep(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes);
/* The block goes. */
void pool_forget_kept(const struct block *b);
