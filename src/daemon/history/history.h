/* history.h: notes in the ring what happens to the clients. Each function does nothing if the
 * daemon has no ring. */
#pragma once

#include "wire/wire_history.h"

#define HISTORY_WHO_MAX 128

struct client;
struct peer;
struct server;

/* Note that the daemon begins, or that its settings have changed. */
void history_began(struct server *s);
void history_settings(struct server *s);

/* Call it when something of the client may have changed: notes what has. */
void history_client(struct client *c);
/* Notes what an event of the scheduler has changed for any client. */
void history_event(struct server *s);
/* Notes a refused request. gpu: the scheduler's number. */
void history_refused(struct client *c, unsigned gpu, unsigned code);
/* Notes an order. of: the program that it is for; NULL: it is for the daemon. Returns who gave it,
 * for the log, such as "by user 1001, process 42". */
const char *history_order(struct server *s, struct client *of, enum history_order what,
                          const struct peer *by, char ret_who[static HISTORY_WHO_MAX]);
/* Call it when the record of the client ends. */
void history_left(struct client *c);
/* Call it once a second: notes what was too small or too frequent to be noted at once. */
void history_period(struct server *s);

/* Copies the ring for this viewer, who may not know the names of all programs. The caller frees the
 * copy. NULL: no ring, or no memory. */
struct ring_copy;
void *history_copy(struct server *s, const struct peer *viewer, struct ring_copy *ret);
