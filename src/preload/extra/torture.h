/* torture.h: SUBLET_TORTURE takes a program's memory away and gives it back, only to see whether
 * the program notices.
 *
 * SUBLET_TORTURE=SEED[,calls=N][,every=DURATION]: the agent acts as after a REVOKE and a LIMIT. It
 * shuts the gate, drains, evicts down to a random limit, restores and opens the gate. It does so
 * before one intercepted call in N, by default 100. It also does so on average once every DURATION,
 * by default 20ms, but for at most half of the time. calls=0 or every=0 switches one of the two
 * off. The seed and the number of a thread decide before which of its calls this happens; the seed
 * also decides the other moments. So a program with one thread is tortured before the same calls
 * each time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/state/part.h"
#include "preload/process/lock.h"

/* Call it once, before the first thread passes the gate. */
void torture_setup(void);

/* Called instead of torture_setup() in a plain build, which contains no other part of torture. */
void torture_left_out(void);

/* ---- for the agent; core_lock held ---- */

/* Begin to torture if it is due. */
void torture_step(uint64_t now) REQUIRES(core_lock);
/* A drain has ended, or failed. False: torture did not begin it. */
bool torture_drained(void) REQUIRES(core_lock);
bool torture_drain_failed(void) REQUIRES(core_lock);
/* The daemon has taken over: its orders hold. Evicted memory comes back as the daemon allows. */
void torture_cancel(void) REQUIRES(core_lock);
enum own_drain torture_own(void);
/* All memory that can leave has left: let it come back. */
void torture_evicted(void) REQUIRES(core_lock);
/* All memory is back. */
void torture_restored(void) REQUIRES(core_lock);
/* Returns when to call torture_step() again. */
uint64_t torture_next_ns(void) REQUIRES(core_lock);
