/* agent.h: one thread that speaks with the daemon, drains, evicts and restores. Sleeps whenever
 * there is nothing of that to do.
 *
 * All functions below are for the program's threads; those that say so wait for the daemon's
 * answer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gpu;

/* Start the thread and connect, once. core.lock held. 0, or -errno: no thread; the library then
 * stays passive. */
int agent_start(void);

/* The process exits: wait, a moment at most, until the thread is out of the driver for good. The
 * lock is not needed. */
void agent_stop(void);

/* Something the agent looks at has changed. Cheap when it has been told already. */
void agent_kick(void);
/* Where memory has to be taken now: not while this process gives way (giveway.h). core.lock held,
 * given up meanwhile. */
void agent_come_in(void);
/* Figures of this GPU have changed: they are told soon. core.lock held. */
void agent_figures(struct gpu *g);
/* Memory that was in a thread's hands may be moved again: the agent may have found nothing else to
 * move or to pin, and sleep. core.lock held. */
void agent_released(void);

/* A thread passes the gate of a client that was reported idle. */
void agent_active(void);
/* A create within the limit failed by so many bytes. core.lock held. */
void agent_short(struct gpu *g, uint64_t bytes);

/* A thread has waited long: ask who is in the way. core.lock held. */
void agent_ask_holder(void);
/* A sentence about who that is, NULL while the answer is awaited. core.lock held, and needed as
 * long as the text. */
const char *agent_holder(void);

/* Wait until this GPU is attached, or cannot be. core.lock held, given up meanwhile. */
void agent_attach(struct gpu *g);
/* Wait until the program may hold so many bytes. 0, or -ENOMEM: refused. core.lock held, given up
 * meanwhile. */
int agent_ask_commit(struct gpu *g, uint64_t bytes);
/* Wait until so much more host memory may be mapped, and count it in core.host.taking. 0, or
 * -ENOMEM. core.lock held, given up meanwhile. */
int agent_ask_host(uint64_t more);
/* May so much more be mapped? If not it is asked for, and not waited for. core.lock held. */
bool agent_may_map(uint64_t more);
/* Wait until so many fixed bytes more are kept free for us, and count them as ours. 0, or -ENOMEM.
 * core.lock held, given up meanwhile. */
int agent_take_fixed(struct gpu *g, uint64_t more);
/* The same without waiting: -EAGAIN: it is asked for. *seen: g->refused_fixed.count as of the first
 * try. core.lock held. */
int agent_try_fixed(struct gpu *g, uint64_t more, uint32_t *seen);
/* They are no longer needed. core.lock held. */
void agent_return_fixed(struct gpu *g, uint64_t bytes);

/* The daemon answers, and knows what is said with agent_say(); core.lock held. */
bool agent_is_up(void);
/* There is one, or there was and it may come back. core.lock held. */
bool agent_has_daemon(void);
/* Tell the daemon something about the process as a whole. The message's sequence; 0: nobody there.
 * core.lock held. */
struct wire_message;
uint32_t agent_say(struct wire_message *m, unsigned type);

/* In the child after fork: close what is ours. */
void agent_forget(void);
