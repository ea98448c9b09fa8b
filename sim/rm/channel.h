/* channel.h: channels, the queues from which a card takes work. Work is frozen while its channel is
 * off the card.
 *
 * Every operation of a stream runs on a channel. On a disabled channel no operation begins. A
 * running operation stops as soon as it uses no memory, and continues when the channel is enabled.
 * Channel objects are never freed, so that a late thread always finds a channel, perhaps of another
 * stream. All processes of the session can disable a channel (shared_rm.h). channel.c has one lock,
 * which is taken last. */
#pragma once

#include "sim/process/sim.h"

#define CHANNELS_COMPUTE 8
#define CHANNELS_COPY    4

struct channel;

/* The channels of one context. */
struct channels_of {
        struct channel *compute[CHANNELS_COMPUTE];
        struct channel *copy[CHANNELS_COPY];
};

/* Returns an enabled channel, which all processes of the session can name. NULL: no room. */
struct channel *channel_new(uint32_t client, uint32_t handle);
/* Enables a channel whose RM object is freed, and keeps it for reuse. */
void channel_end(struct channel *ch);
/* Waits until no channel is disabled, or the process exits. */
void channels_await_enabled(void);
/* Waits until none of these channels is disabled, or sim_cancelled(error) is true. */
void channels_await(const struct channels_of *of, const _Atomic int *error);
/* Wakes frozen threads, so that they check for an exit or a failure. */
void channels_wake(void);

/* ---- for the threads that run work ---- */

/* Sets the channels of this thread's work. NULL: the work has no channel and is never frozen.
 * error: the sticky error of the work's context. */
void channel_sit(struct channel *compute, struct channel *copy, const _Atomic int *error);
/* Begins an operation, which channel_done() ends. Waits until the channel is enabled, or the work
 * is cancelled. */
void channel_begin(bool copies);
void channel_done(void);
/* True if the thread's channel has been disabled: the thread must release its memory and call
 * channel_stand(), which waits until the channel is enabled. */
bool channel_stops(void);
void channel_stand(void);
