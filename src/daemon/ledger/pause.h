/* pause.h: who is to stand still on the GPU, and who says that it does.
 *
 * The order is the daemon's and outlives the connection of a process: a process that comes back is
 * told again, and a daemon that was restarted believes what a paused process says of itself. All
 * other figures of FROZEN are for people. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct client;
struct peer;
struct server;
struct wire_message;

/* Tell the process with this number to stand still, or to go on; by whom: as it is known of his
 * connection. *ret_client, also on an error but -ESRCH: who it is. 0; 1: it had been told so
 * already; -ESRCH: no client has this number, -EACCES: it is another user's, -EPERM: it runs with
 * SUBLET_FREEZE=off, -EOPNOTSUPP: it says why it cannot be frozen (frozen.off). */
int pause_set(struct server *s, pid_t pid, bool paused, const struct peer *by,
              struct client **ret_client);

/* ---- session.c tells ---- */
int pause_frozen(struct client *c, const struct wire_message *m); /* FROZEN */
void pause_greeted(struct client *c);                             /* HELLO has come */
void pause_attached(struct client *c);                            /* the first GPU is */
void pause_refused(struct client *c); /* it does not give way because it is paused */
