/* agent.h: one thread that speaks with the daemon, drains, evicts and restores. Sleeps whenever
 * there is nothing of that to do. What the program's threads want of it goes through request.h;
 * what it does for other parts of the library, through part.h. */
#pragma once

#include "preload/process/lock.h"

struct gpu;

/* Have this GPU attached, or known to be nobody's, with the thread started for the first one: wait
 * for that. */
void agent_attach(struct gpu *g) UNLOCKS(core_lock);

/* The process exits: wait, a moment at most, until the thread is out of the driver for good. The
 * lock is not needed. */
void agent_stop(void);

/* In the child after fork: close what is ours. */
void agent_forget(void);
