/* part.h: the parts of the library, as code in lower layers sees them.
 *
 * One table (parts.c, the top layer) lists the parts in the order in which they are called. Code
 * that notifies or polls all parts walks the table and names none. Every member may be NULL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;

/* The stage of an own drain: a drain that a part of the library began, not the daemon. There is at
 * most one at a time. */
enum own_drain {
        OWN_NONE,
        OWN_MOVES, /* the gate stays shut while the part moves memory itself */
        OWN_DRAINS,
        OWN_EVICTS,   /* the agent evicts down to gpu.own_limit */
        OWN_RESTORES, /* the agent restores, and the program goes on */
};

struct part {
        /* The life of the process. */
        void (*setup)(void); /* called once, when the driver is loaded */
        void (*learn)(struct gpu *g)
                MAY_UNLOCK(core_lock); /* this GPU comes into use. core_lock held */
        void (*attach)(struct gpu *g) MAY_UNLOCK(core_lock); /* attach the GPU to the daemon */
        void (*failed)(
                const struct gpu *g,
                CUresult why); /* the GPU has failed for good, with this error. core_lock held */
        void (*exits)(void);   /* called at exit, before the driver shuts down */
        void (*forked)(void);  /* called in the child after fork */

        /* Called in the agent's rounds, with core_lock held. */
        void (*step)(uint64_t now_ns); /* begin an own drain if one is due */
        uint64_t (*next_ns)(void);     /* returns when an own drain may be due */
        bool (*clean)(void) MAY_UNLOCK(
                core_lock); /* release memory that is free by now. True: call again soon */
        uint64_t (*tend)(uint64_t now_ns)
                MAY_UNLOCK(core_lock); /* like clean(), but returns in how many ns to call again */
        bool (*move)(void);            /* move some memory; core_lock not held. True: call again */

        /* Own drains. */
        enum own_drain (*own)(void);
        bool (*drained)(void); /* the drain is complete. True: this part began it, and own() tells
                                  what follows */
        bool (*drain_failed)(void); /* the drain has failed. True: this part began it */
        void (*cancel)(void);       /* the daemon has taken the drain over */
        void (*evicted)(void);      /* OWN_EVICTS: nothing more can be evicted */
        void (*restored)(void);     /* all memory is back, and the program goes on */

        /* Notifications; core_lock held. */
        void (*room_changed)(struct gpu *g); /* called by core_room_changed() */
        void (*daemon_lost)(void);
};

extern const struct part parts[];
extern const unsigned parts_count;

#define FOR_EACH_PART(p, member)                                         \
        for (const struct part *p = parts; p < parts + parts_count; p++) \
                if (p->member)
