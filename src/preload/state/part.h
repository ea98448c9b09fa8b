/* part.h: the parts of the library, as lower rooms see them.
 *
 * One table (parts.c, above all parts) lists them in the order in which they are called. Code that
 * notifies or polls all parts goes through the table and names none. Every member may be NULL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;

/* A drain that a part of the library has begun, not the daemon; one at a time. */
enum own_drain {
        OWN_NONE,
        OWN_MOVES, /* the gate stays shut while the part moves memory itself */
        OWN_DRAINS,
        OWN_EVICTS,   /* the agent evicts down to gpu.own_limit */
        OWN_RESTORES, /* the agent restores, and the program goes on */
};

struct part {
        /* The life of the process. */
        void (*setup)(void); /* the driver is loaded; once */
        void (*learn)(struct gpu *g)
                MAY_UNLOCK(core_lock); /* this GPU is in use from now on. core_lock held */
        void (*attach)(struct gpu *g) MAY_UNLOCK(core_lock); /* attach it to the daemon */
        void (*failed)(const struct gpu *g,
                       CUresult why); /* it has failed for good, with this error. core_lock held */
        void (*exits)(void);          /* before the driver shuts down */
        void (*forked)(void);         /* in the child */

        /* In the agent's rounds; core_lock held. */
        void (*step)(
                uint64_t now_ns);  /* before a drain goes on: begin an own drain when it is due */
        uint64_t (*next_ns)(void); /* when one may be due */
        bool (*clean)(void)
                MAY_UNLOCK(core_lock); /* release what is free by now. True: call again soon */
        uint64_t (*tend)(uint64_t now_ns)
                MAY_UNLOCK(core_lock); /* the same; returns in how many ns there will be more */
        bool (*move)(void);            /* without the lock. True: call again */

        /* Own drains. */
        enum own_drain (*own)(void);
        bool (*drained)(void); /* true: this part had begun the drain; own() says how it goes on */
        bool (*drain_failed)(void); /* the same; it is over */
        void (*cancel)(void);       /* the daemon has taken the drain over */
        void (*evicted)(void);      /* OWN_EVICTS: nothing more can be evicted */
        void (*restored)(void);     /* all memory is back, and the program goes on */

        /* Notifications; core_lock held. */
        void (*room_changed)(struct gpu *g); /* core_room_changed() */
        void (*daemon_lost)(void);
};

extern const struct part parts[];
extern const unsigned parts_count;

#define FOR_EACH_PART(p, member)                                         \
        for (const struct part *p = parts; p < parts + parts_count; p++) \
                if (p->member)
