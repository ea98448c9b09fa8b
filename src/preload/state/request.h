/* request.h: what the program's threads ask of the agent, by figures in `core` and a kick.
 *
 * The agent (agent.h) passes requests on to the daemon and writes the answers into `core`; whoever
 * waits for one sleeps until core.changed rings. core_lock is held for all of it; the functions
 * that say so give it up meanwhile. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

struct gpu;

/* Wake the agent: something that it looks at has changed. Cheap when it has been woken already.
 * The lock is not needed. */
void request_kick(void);
/* What request_kick() writes to: a descriptor that becomes readable. request_open(): make it, 0 or
 * -errno. request_close(): in the child after fork, or where there is no agent. */
int request_open(void);
void request_close(void);
int request_fd(void);
/* The agent has slept on request_fd(): take what was written. */
void request_woken(void);

/* Figures of this GPU have changed: the daemon is told soon. */
void request_report(struct gpu *g) REQUIRES(core_lock);
/* Memory that was in a thread's hands may be moved again: the agent may have found nothing else to
 * move or to export, and sleep. */
void request_released(void) REQUIRES(core_lock);

/* Wait until the program may hold so many bytes. 0, or -ENOMEM: refused. The lock is given up. */
int request_commit(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* Wait until so much more host memory may be mapped, and count it in core.host.taking. 0, or
 * -ENOMEM. The lock is given up. */
int request_host(uint64_t more) REQUIRES(core_lock);
/* May so much more be mapped? If not it is asked for, and not waited for. */
bool request_may_map(uint64_t more) REQUIRES(core_lock);
/* Wait until so many unevictable bytes more are kept free for us, and count them as ours. 0, or
 * -ENOMEM. The lock is given up. */
int request_unevictable(struct gpu *g, uint64_t more) REQUIRES(core_lock);
/* The same without waiting: -EAGAIN: it is asked for. *seen: g->refused_unevictable.count as of the
 * first try. */
int request_try_unevictable(struct gpu *g, uint64_t more, uint32_t *seen) REQUIRES(core_lock);
/* They are no longer needed. */
void request_return_unevictable(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* The unevictable bytes that are asked for now are the mover's (g->mover_request). */
bool request_is_movers(const struct gpu *g) REQUIRES(core_lock);
/* The mover's request gives way to a thread's, and is made again right after it. */
void request_drop_movers(struct gpu *g) REQUIRES(core_lock);
/* The mover's request was refused: it is made again later. */
void request_no_mover(struct gpu *g) REQUIRES(core_lock);
