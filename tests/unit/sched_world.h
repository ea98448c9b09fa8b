/* sched_world.h: a small world around the scheduler: clients that keep the protocol, with random
 * delays, work, growth and accidents, on cards that hold what they hold.
 *
 * Everything follows from the seed. The world keeps its own books (what is really backed on each
 * card), so that it need not believe the scheduler's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sched/sched.h"

#define WORLD_CLIENTS_MAX 12
#define WORLD_GPUS_MAX    3

struct world_options {
        uint64_t seed;
        unsigned clients, gpus;
        uint64_t total_bytes;
        bool accidents;  /* processes die, stop, lose the connection; drains fail; the daemon
                            restarts */
        bool foreigners; /* others use the card, unmanaged */
        bool priorities;
        bool modes;   /* the mode changes now and then */
        bool hostile; /* one client sends whatever it likes */
        struct sched_config config;
};

struct world;

struct world_counts {
        uint64_t steps, grants, revokes, restores, refusals, deaths, restarts, overdue, shorts,
                returns, drain_failures, fixed_growth;
        uint64_t longest_wait_ns; /* in which nothing excused the wait */
};

/* Options that depend on nothing but the seed. */
void world_options_random(uint64_t seed, struct world_options *ret);
struct world *world_new(const struct world_options *o);
void world_free(struct world *w);
/* One event. NULL, or a sentence that says what does not hold. */
const char *world_step(struct world *w);
void world_counts(const struct world *w, struct world_counts *ret);
