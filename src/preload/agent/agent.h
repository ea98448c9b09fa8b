/* agent.h: one thread that talks with the daemon, drains, evicts and restores. It sleeps when there
 * is nothing to do. Threads of the program reach it through request.h; other parts of the library,
 * through part.h. */
#pragma once

#include <stdbool.h>

#include "preload/process/lock.h"

struct gpu;

/* False: the program must not run without sharing (require.h), but a setting that limits it is
 * malformed, or a system call that sharing needs is refused. A message has said so. Leaves no
 * thread and no descriptor. The lock is not needed. */
bool agent_may_start(void);

/* Wait until this GPU is attached, known to have no daemon, or refused to a program that must not
 * run without sharing. Starts the thread for the first GPU. */
void agent_attach(struct gpu *g) UNLOCKS(core_lock);

/* The process exits: wait until the thread has left the driver for good, but at most 2 s. The lock
 * is not needed. */
void agent_stop(void);

/* Call it in the child after fork: closes our descriptors. */
void agent_forget(void);
