/* agent.h: one thread that talks with the daemon, drains, evicts and restores. It sleeps when there
 * is nothing to do. Threads of the program reach it through request.h; other parts of the library,
 * through part.h. */
#pragma once

#include "preload/process/lock.h"

struct gpu;

/* Wait until this GPU is attached, or known to have no daemon. Starts the thread for the first GPU.
 */
void agent_attach(struct gpu *g) UNLOCKS(core_lock);

/* The process exits: wait until the thread has left the driver for good, but at most 2 s. The lock
 * is not needed. */
void agent_stop(void);

/* In the child after fork: close our descriptors. */
void agent_forget(void);
