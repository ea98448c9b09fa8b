/* channel.h: the queues from which a card takes work, and what stands still while one is off it.
 *
 * Every operation of a stream runs on a channel. A channel that is disabled lets none begin; what
 * runs stands at the next moment at which it uses no memory, and goes on when the channel is
 * enabled. Objects are never given back, so that a late one finds a channel, if another's. One lock
 * of channel.c's own, taken last. */
#pragma once

#include "sim/process/sim.h"

#define CHANNELS_COMPUTE 8
#define CHANNELS_COPY    4

struct channel;

/* Those of one context. */
struct channels_of {
        struct channel *compute[CHANNELS_COMPUTE];
        struct channel *copy[CHANNELS_COPY];
};

struct channel *channel_new(void); /* enabled; NULL: out of memory */
/* Nothing is held by it any more. */
void channel_end(struct channel *ch);
bool channel_enabled(struct channel *ch);

/* Returns when nothing of them runs, or the process leaves. */
void channels_disable(struct channel *const *list, size_t n);
void channels_enable(struct channel *const *list, size_t n);
/* Until none is disabled, or the process leaves. */
void channels_await_enabled(void);
/* Until none of these is, or there is reason to give up (sim_cancelled()). */
void channels_await(const struct channels_of *of, const _Atomic int *error);
/* Those that stand look again whether they should give up. */
void channels_wake(void);

/* ---- for the threads that run work ---- */

/* The channels that this thread's work runs on from now on; NULL: on none, it never stands. error:
 * of its context. */
void channel_sit(struct channel *compute, struct channel *copy, const _Atomic int *error);
/* Around each piece of work. It begins when the channel is enabled, or there is reason to give up.
 */
void channel_begin(bool copies);
void channel_done(void);
/* Its channel has been disabled: let go of all memory, then stand. */
bool channel_stops(void);
void channel_stand(void);
