/* neighbours.h: what modules of src/preload ask of one another, for tests of one of them alone.
 *
 * One file a neighbour (core.c, agent.c, …), each of its functions once, as little as works. A test
 * defines itself whatever shall behave otherwise: all here are weak. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/state/core.h"

/* core.c: core_wait() gives the lock up and has this happen meanwhile; NULL: nobody is to wait.
 * Whoever waits without a limit is woken by a ring alone, so one has to come. */
extern void (*meanwhile)(const struct core_wait *w);

/* request.c */
extern unsigned request_kicks;
/* gate.c: what was handed to gate_own(). */
extern void (*fake_gate_owner)(uint64_t work);
/* quiesce.c: a capture is in progress. */
extern bool fake_capturing;
/* trace.c: the last event and its bytes, and how many of a name there were. */
struct trace_seen {
        const char *event;
        uint64_t bytes;
};
extern struct trace_seen trace_last;
unsigned trace_count(const char *event);
void trace_reset(void);
