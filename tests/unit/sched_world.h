/* sched_world.h: a small world around the scheduler: clients that keep the protocol, with random
 * delays, work, growth and accidents, on cards that hold what they hold.
 *
 * Everything follows from the seed, by way of choices: what each program does next, and what
 * befalls it. The choices of a world can be played again, all or some of them; what follows from
 * them (messages, their delays, moves, deadlines) is worked out anew, so that what is played is
 * always a world that could be. The world keeps its own books (what is really backed on each card),
 * so that it need not believe the scheduler's. */
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
        bool modes;       /* the mode changes now and then */
        bool slow_bus;    /* moving half a card takes longer than the grace period */
        bool slow_socket; /* every second message is late */
        bool hostile;     /* one client sends whatever it likes */
        struct sched_config config;
};

struct world;

struct world_counts {
        uint64_t steps, grants, revokes, restores, refusals, deaths, restarts, overdue, shorts,
                returns, drain_failures, unevictable_growth, spares, exports, stale, given_back,
                ends, pauses, stood, modes[3];
        uint64_t longest_wait_ns; /* in which nothing excused the wait */
        struct sched_transitions transitions;
};

enum world_chooser { CHOOSE_START, CHOOSE_THINK, CHOOSE_FATE };

struct world_choice {
        uint64_t at_ns, seed;
        enum world_chooser who;
        unsigned process;
};

/* Options that depend on nothing but the seed. */
void world_options_random(uint64_t seed, struct world_options *ret);
struct world *world_new(const struct world_options *o);
void world_free(struct world *w);
/* One event. NULL, or a sentence that says what does not hold. */
const char *world_step(struct world *w);
void world_counts(const struct world *w, struct world_counts *ret);

/* What was chosen so far; the world's. */
const struct world_choice *world_choices(const struct world *w, unsigned *ret_n);
/* A world in which just that is chosen, in this order. */
struct world *world_replay(const struct world_options *o, const struct world_choice *list,
                           unsigned n);
/* Messages on stderr from now on. */
void world_trace(struct world *w, bool on);
uint64_t world_now_ns(const struct world *w);
bool world_ended(struct world *w); /* played to the end of its choices, and nothing is left */
