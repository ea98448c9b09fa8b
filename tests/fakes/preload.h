/* preload.h: fakes of the modules of src/preload, for tests of one module alone.
 *
 * One file for each module (core.c, agent.c, …), with its functions in as little code as works. All
 * are weak: a test defines a function itself where it needs other behaviour. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/state/core.h"

/* core.c: core_wait() releases the lock for a call of this function; NULL: the test expects no
 * wait. Only a ring of the bell ends a wait without a limit, so the function must ring. */
extern void (*meanwhile)(const struct core_wait *w);
/* core.c: number of calls of core_setup(). */
extern unsigned core_setups;

/* request.c: number of calls of request_kick(). */
extern unsigned request_kicks;
/* gate.c: the function passed to gate_own(). */
extern void (*fake_gate_owner)(uint64_t work);
/* quiesce.c: true says that a capture is in progress. */
extern bool fake_capturing;
/* trace.c: trace_last is the last event, trace_count() the number of events of a name. */
struct trace_seen {
        const char *event;
        uint64_t bytes;
};
extern struct trace_seen trace_last;
unsigned trace_count(const char *event);
void trace_reset(void);
