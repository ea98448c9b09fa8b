/* torture.h: SUBLET_TORTURE takes a program's memory away and gives it back for no other reason
 * than to see whether the program notices.
 *
 * SUBLET_TORTURE=SEED[,calls=N][,every=DURATION]: before one caught call in N (100), and in the
 * mean once every DURATION (20ms), but no more than half of the time, the agent does what a REVOKE
 * and a LIMIT make it do: it shuts the gate, drains, evicts down to a limit that it chose, restores
 * and opens the gate. calls=0 and every=0 leave one of them out. Each thread draws from the seed
 * and its number for its calls, the agent for its moments, so a program with one thread meets its
 * calls' evictions at the same calls each time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/state/part.h"
#include "preload/process/lock.h"

/* Once, before the first thread passes the gate. */
void torture_setup(void);

/* Used in its place in a plain build, which contains nothing else of it. */
void torture_left_out(void);

/* ---- the agent's; core_lock held ---- */

/* Begin one if it is due. */
void torture_step(uint64_t now) REQUIRES(core_lock);
/* A drain of torture's, not the daemon's, has ended. False: it was another. */
bool torture_drained(void) REQUIRES(core_lock);
bool torture_drain_failed(void) REQUIRES(core_lock);
/* The daemon has taken over: its orders hold. Evicted memory comes back as it allows. */
void torture_cancel(void) REQUIRES(core_lock);
enum own_drain torture_own(void);
/* All memory that can leave has left: let it come back. */
void torture_evicted(void) REQUIRES(core_lock);
/* Everything is back. */
void torture_restored(void) REQUIRES(core_lock);
/* When to look again. */
uint64_t torture_next_ns(void) REQUIRES(core_lock);
