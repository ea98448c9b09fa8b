/* pause.h: which processes are paused on the GPU, and what they report of it.
 *
 * An order belongs to the daemon and outlives the process's connection: a process that reconnects
 * is told again, and a restarted daemon believes the report of a paused process. All other figures
 * of FROZEN are for display only. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct client;
struct peer;
struct server;
struct wire_message;

/* Pauses or resumes the client's process; by: the peer that orders it and has a right to. 0; 1: it
 * had the same order before; -EPERM: it runs with SUBLET_FREEZE=off; -EOPNOTSUPP: it has reported
 * why it cannot be frozen (frozen.off). */
int pause_set(struct client *c, bool paused, const struct peer *by);

/* Tells all programs the strongest freeze mode that they may use now. */
void pause_most_changed(struct server *s);

/* ---- called by session.c ---- */
int pause_frozen(struct client *c, const struct wire_message *m); /* after FROZEN */
void pause_greeted(struct client *c);                             /* after HELLO */
void pause_attached(struct client *c);                            /* after ATTACH */
void pause_refused(struct client *c); /* after DRAIN_FAILED because of the pause: the process keeps
                                         its memory */
