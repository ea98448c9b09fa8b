/* neighbours.h: other daemons that share a card with this one, each with its own user's clients.
 *
 * To a ledger they are strangers: what their clients hold is others' use, as NVML shows it, and no
 * byte is promised twice. But who came first would keep the card for ever. So a daemon that cannot
 * make a client runnable, because of what others hold, tells the others how many bytes it lacks
 * (docs/protocol.md, "Between daemons"). What it asks for here stands in the queue like a client of
 * its user; when its turn comes, the bytes are left free, the other is told, and they are kept
 * until its client runs, or does not take them.
 *
 * Nobody has to believe or to obey: a need can only ever cost what a client of that user could. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sched_action;
struct server;
struct neighbours;

/* 0, or -errno: no socket; then nobody is asked, and nobody hears us. */
int neighbours_open(struct server *s);
void neighbours_close(struct server *s);

/* Every period, after the cards were measured: end what is over. */
void neighbours_tick(struct server *s);
/* The cards were looked at, or will not be: do what waited for it. */
void neighbours_looked(struct server *s);
/* After each batch of events: do what the scheduler told those who wait here, tell the others what
 * has changed of what our clients lack. */
void neighbours_settle(struct server *s);
/* An action for one of them, not for a client. */
void neighbours_act(struct server *s, const struct sched_action *a);

/* Of what others use by now, what was left to them: they had it promised already. */
uint64_t neighbours_absorb(const struct server *s, unsigned gpu, uint64_t foreign_bytes);
/* A client wants to allocate so much in all, and what others use is in the way: their daemons were
 * just asked what they could move away, and session_resume() is called when they answer. False:
 * nothing is in the way that they have not answered for, or nobody is there to be asked. */
bool neighbours_may_help(struct server *s, unsigned gpu, uint64_t commit);
