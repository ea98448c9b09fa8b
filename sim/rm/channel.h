/* channel.h: the queues from which a card takes work, and the work that stands still while a queue
 * is off the card.
 *
 * Every operation of a stream runs on a channel. On a disabled channel none begins; a running one
 * stands at the next moment at which it uses no memory, and goes on when the channel is enabled.
 * Objects are never freed, so that a late thread finds a channel, if another's. channel.c has one
 * lock, taken last. */
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
/* The RM object is freed: enable it and keep it for later use. */
void channel_end(struct channel *ch);
bool channel_enabled(struct channel *ch);

/* Returns when no work runs on them, or the process exits. */
void channels_disable(struct channel *const *list, size_t n);
void channels_enable(struct channel *const *list, size_t n);
/* Returns when none is disabled, or the process exits. */
void channels_await_enabled(void);
/* Returns when none of these is disabled, or when sim_cancelled(). */
void channels_await(const struct channels_of *of, const _Atomic int *error);
/* Wake standing threads, so that they check whether to give up. */
void channels_wake(void);

/* ---- for the threads that run work ---- */

/* The channels of this thread's work from now on; NULL: none, so it never stands. error: of its
 * context. */
void channel_sit(struct channel *compute, struct channel *copy, const _Atomic int *error);
/* Around each operation. It begins when the channel is enabled, or the thread should give up. */
void channel_begin(bool copies);
void channel_done(void);
/* The thread's channel has been disabled: it should let go of all memory, then stand. */
bool channel_stops(void);
void channel_stand(void);
