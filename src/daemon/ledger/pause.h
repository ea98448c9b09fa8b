/* pause.h: which processes are to stand still on the GPU, and what they report of it.
 *
 * An order belongs to the daemon and outlives the process's connection: a process that reconnects
 * is told again, and a restarted daemon believes a paused process's report. All other figures of
 * FROZEN are for display only. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct client;
struct peer;
struct server;
struct wire_message;

/* Tell the process with this number to stand still, or to go on. by: who orders it. *ret_client,
 * also on an error except -ESRCH: the process's client. 0; 1: it had been told before; -ESRCH: no
 * client has this number, -EACCES: another user's, -EPERM: it runs with SUBLET_FREEZE=off,
 * -EOPNOTSUPP: it has reported why it cannot be frozen (frozen.off). */
int pause_set(struct server *s, pid_t pid, bool paused, const struct peer *by,
              struct client **ret_client);

/* ---- session.c tells ---- */
int pause_frozen(struct client *c, const struct wire_message *m); /* FROZEN */
void pause_greeted(struct client *c);                             /* HELLO has come */
void pause_attached(struct client *c);                            /* the first GPU is */
void pause_refused(struct client *c); /* whether it keeps its memory because it is paused */
