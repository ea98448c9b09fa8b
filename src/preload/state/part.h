/* part.h: the parts of the library, as those below them see them.
 *
 * One table (parts.c, above all parts) names them, in the order in which they are asked and told.
 * Whoever tells all parts something, or polls them, goes through the table and names nobody. Every
 * member may be NULL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

struct gpu;

/* A drain that a part of the library has begun, and not the daemon; one at a time. */
enum own_drain {
        OWN_NONE,
        OWN_MOVES, /* the gate stays shut while the part moves memory itself */
        OWN_DRAINS,
        OWN_EVICTS,   /* the agent evicts down to gpu.own_limit */
        OWN_RESTORES, /* the agent restores, and the program goes on */
};

struct part {
        /* The life of the process. */
        void (*setup)(void);           /* the driver is there; once */
        void (*learn)(struct gpu *g);  /* this GPU is there. core_lock held */
        void (*attach)(struct gpu *g); /* have the daemon know it. core_lock held, given up */
        void (*failed)(const struct gpu *g,
                       CUresult why); /* for good, by this error. core_lock held */
        void (*exits)(void);          /* before the driver shuts down */
        void (*forked)(void);         /* in the child */

        /* The agent's rounds; core_lock held, and given up where that is said. */
        void (*step)(uint64_t now_ns);     /* before a drain goes on: begin one where it is time */
        uint64_t (*next_ns)(void);         /* when that may be */
        bool (*clean)(void);               /* release what has become free. True: more comes soon */
        uint64_t (*tend)(uint64_t now_ns); /* the same, and in how many ns there will be more */
        bool (*move)(void);                /* without the lock. True: there is more to do */

        /* Own drains. */
        enum own_drain (*own)(void);
        bool (*drained)(void);      /* true: it was this part's drain, and goes on as own() says */
        bool (*drain_failed)(void); /* the same; it is over */
        void (*cancel)(void);       /* the daemon has taken over */
        void (*evicted)(void);      /* OWN_EVICTS: nothing more can go */
        void (*restored)(void);     /* all memory is back, and the program goes on */

        /* What has happened; core_lock held. */
        void (*room_changed)(struct gpu *g); /* core_room_changed() */
        void (*daemon_lost)(void);
};

extern const struct part parts[];
extern const unsigned parts_count;

#define FOR_EACH_PART(p, member)                                         \
        for (const struct part *p = parts; p < parts + parts_count; p++) \
                if (p->member)
