/* sched_world.h: clients with random delays, work, growth and accidents around one scheduler.
 *
 * The seed determines the choices, and the choices determine all else. A replay of some choices
 * computes the rest (messages, delays, moves, deadlines) anew, so each replay is a possible world.
 * The world counts the bytes on each card itself and does not trust the scheduler's ledger. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sched/sched.h"

#define WORLD_CLIENTS_MAX 12
#define WORLD_GPUS_MAX    3

struct world_options {
        uint64_t seed;
        unsigned clients, gpus;
        unsigned group;  /* so many processes run together; 0: each on its own */
        unsigned job;    /* so many processes are of one job, and take turns; 0: each on its own */
        bool containers; /* some programs of each user run in containers */
        uint64_t total_bytes;
        bool accidents;  /* deaths, stops, lost connections, failed drains, daemon restarts */
        bool foreigners; /* foreign processes use the card */
        bool priorities;
        bool shares;      /* classes and processes have weights, minima and maxima */
        bool modes;       /* the mode changes now and then */
        bool slow_bus;    /* moving half a card takes longer than the grace period */
        bool slow_socket; /* every second message is late */
        bool hostile;     /* one client sends arbitrary messages */
        bool preempts;    /* the daemon can preempt most processes at most times */
        bool liars; /* every second client keeps the words of the protocol and not its sense */
        struct sched_config config;
};

struct world;

struct world_counts {
        uint64_t steps, grants, revokes, restores, refusals, deaths, restarts, overdue, shorts,
                returns, drain_failures, unevictable_growth, spares, exports, stale, given_back,
                ends, pauses, evictions, stood, held, reloads, preempted, modes[3];
        uint64_t longest_wait_ns;  /* longest wait without an excuse */
        uint64_t longest_stall_ns; /* longest time in which somebody waited and nothing moved */
        struct sched_transitions transitions;
};

enum world_chooser { CHOOSE_START, CHOOSE_THINK, CHOOSE_FATE };

struct world_choice {
        uint64_t at_ns, seed;
        enum world_chooser who;
        unsigned process;
};

/* Draws options that depend on the seed alone. From this seed on the worlds have shares. */
#define WORLD_SHARES_FROM 1000000
void world_options_random(uint64_t seed, struct world_options *ret);
struct world *world_new(const struct world_options *o);
void world_free(struct world *w);
/* Plays one event. Returns NULL, or a sentence about the broken invariant. */
const char *world_step(struct world *w);
void world_counts(const struct world *w, struct world_counts *ret);

/* Returns the choices so far; the world owns the list. */
const struct world_choice *world_choices(const struct world *w, unsigned *ret_n);
/* Creates a world in which exactly these choices are made, in this order. */
struct world *world_replay(const struct world_options *o, const struct world_choice *list,
                           unsigned n);
/* Prints messages to stderr from now on. */
void world_trace(struct world *w, bool on);
uint64_t world_now_ns(const struct world *w);
bool world_ended(struct world *w); /* true: all choices are played and nothing is pending */
