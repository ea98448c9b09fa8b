/* request.h: requests of the program's threads to the agent. A thread changes figures in `core` and
 * wakes the agent by request_kick().
 *
 * The agent (agent.h) sends requests to the daemon and writes the answers into `core`. A thread
 * that waits for an answer sleeps until core.changed rings. core_lock is held in all functions;
 * those marked UNLOCKS release it while they wait. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

struct gpu;

/* Wake the agent, because a figure that it looks at has changed. Cheap if the agent is awake
 * already. Needs no lock. */
void request_kick(void);
/* request_fd() becomes readable by request_kick(). request_open() creates it: 0 or -errno.
 * request_close() is for the child after fork, or where there is no agent. */
int request_open(void);
void request_close(void);
int request_fd(void);
/* Reset request_fd() after the agent has slept on it. */
void request_woken(void);

/* Let the agent report this GPU's figures to the daemon soon. */
void request_report(struct gpu *g) REQUIRES(core_lock);
/* Wake the agent after a thread has released memory that can be moved again: the agent sleeps if it
 * found nothing else to move or to export. */
void request_released(void) REQUIRES(core_lock);

/* Wait until the program may allocate this many bytes in all. 0, or -ENOMEM: refused. */
int request_commit(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock);
/* Ask the daemon how much the program could allocate now: the answers are g->room and g->room_host.
 * They are UINT64_MAX if the daemon does not answer soon, because nobody may wait long for a
 * figure. */
void request_room(struct gpu *g) UNLOCKS(core_lock);
/* Wait until `more` bytes of host memory may be mapped, and add them to core.host.taking. 0, or
 * -ENOMEM. */
int request_host(uint64_t more) UNLOCKS(core_lock);
/* True if `more` bytes of host memory may be mapped now. Otherwise the agent requests them. */
bool request_may_map(uint64_t more) REQUIRES(core_lock);
/* Wait until the daemon allows `more` unevictable bytes, and add them to g->unevictable. 0, or
 * -ENOMEM. */
int request_unevictable(struct gpu *g, uint64_t more) UNLOCKS(core_lock);
/* Like request_unevictable(), but without waiting. -EAGAIN: the bytes are requested, so try again.
 * *seen: g->refused_unevictable.count before the first try. */
int request_try_unevictable(struct gpu *g, uint64_t more, uint32_t *seen) REQUIRES(core_lock);
/* Give back unevictable bytes. */
void request_return_unevictable(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* True if the current request for unevictable bytes is the mover's (g->mover_request). */
bool request_is_movers(const struct gpu *g) REQUIRES(core_lock);
/* Withdraw the mover's request in favour of a thread's. The agent repeats it after the thread's. */
void request_drop_movers(struct gpu *g) REQUIRES(core_lock);
/* Note that the mover's request was refused. The agent repeats it after MOVER_AGAIN_NS. */
void request_no_mover(struct gpu *g) REQUIRES(core_lock);
