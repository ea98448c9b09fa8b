/* pool_state.h: what pool.c (who gets what) and pool_kept.c (what stays while the program is
 * frozen) share. Nobody else includes it. core_lock is held for all of it. */
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
        uint64_t marked;  /* those before the event was last recorded */
        uint64_t done;    /* those known to be reached */
        CUevent event;    /* ours, in the stream's context; NULL: none yet */
        bool pending;     /* it has been recorded and not been seen done */
        bool gone;        /* the stream is; only the event can be asked */
        bool looking;     /* somebody records it without the lock */
        unsigned awaited; /* threads that come back to it */
};

struct pool {
        struct pool *next;
        CUmemoryPool handle, name; /* handle NULL: destroyed; its memory still goes by the name */
        bool handed_over;
        struct gpu *gpu;
        struct suballocator suballocator;
        struct pool_lane *lanes;
        uint64_t used, used_high, reserved_high;
        uint64_t threshold, most; /* most: 0 is no limit */
        bool may_wait; /* an allocation may make its stream wait for another one's free */
        uint64_t turns, turns_seen; /* allocations and frees */
        unsigned users;             /* who have given up the lock and come back to it */
};

extern struct pool *pools;

/* Which frees are reached by now; record: with events where there are none. True: something became
 * everybody's. */
bool pool_look(struct pool *p, bool record) REQUIRES(core_lock);
/* Of these extents those in which nothing lives any more: what they have in host memory is dropped.
 */
void pool_drop_idle(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes)
        REQUIRES(core_lock);

/* Freed in the order of a stream. True: its contents are kept, because the program is frozen. */
bool pool_keep(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes);
/* The block goes. */
void pool_forget_kept(const struct block *b);
