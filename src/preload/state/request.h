/* request.h: what the program's threads ask of the agent, through figures in `core` and a kick.
 *
 * The agent (agent.h) sends requests to the daemon and writes the answers into `core`; a thread
 * that waits for one sleeps until core.changed rings. core_lock is held for all of it; the
 * functions that say so give it up meanwhile. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

struct gpu;

/* Wake the agent: something that it looks at has changed. Cheap when it was woken already. Needs no
 * lock. */
void request_kick(void);
/* request_fd(): becomes readable by request_kick(). request_open(): make it, 0 or -errno.
 * request_close(): in the child after fork, or where there is no agent. */
int request_open(void);
void request_close(void);
int request_fd(void);
/* The agent has slept on request_fd(): reset it. */
void request_woken(void);

/* Figures of this GPU have changed: the agent reports them soon. */
void request_report(struct gpu *g) REQUIRES(core_lock);
/* A thread has let go of memory, which may be moved again: the agent may have found nothing else to
 * move or to export, and sleep. */
void request_released(void) REQUIRES(core_lock);

/* Wait until the program may hold so many bytes. 0, or -ENOMEM: refused. */
int request_commit(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock);
/* Wait until so much more host memory may be mapped, and count it in core.host.taking. 0, or
 * -ENOMEM. */
int request_host(uint64_t more) UNLOCKS(core_lock);
/* May so much more be mapped? If not it is asked for, and not waited for. */
bool request_may_map(uint64_t more) REQUIRES(core_lock);
/* Wait until the daemon allows so many more unevictable bytes, and count them as ours. 0, or
 * -ENOMEM. */
int request_unevictable(struct gpu *g, uint64_t more) UNLOCKS(core_lock);
/* The same without waiting; -EAGAIN: requested. *seen: g->refused_unevictable.count as of the first
 * try. */
int request_try_unevictable(struct gpu *g, uint64_t more, uint32_t *seen) REQUIRES(core_lock);
/* These bytes are no longer needed. */
void request_return_unevictable(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* The current request for unevictable bytes is the mover's (g->mover_request). */
bool request_is_movers(const struct gpu *g) REQUIRES(core_lock);
/* The mover's request gives way to a thread's, and is sent again right after it. */
void request_drop_movers(struct gpu *g) REQUIRES(core_lock);
/* The mover's request was refused; it is sent again later. */
void request_no_mover(struct gpu *g) REQUIRES(core_lock);
