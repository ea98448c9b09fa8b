/* turns.h: whose messages are read next. A client with something to say has a place in its user's
 * queue; of the users, the one that has used least of the loop's time lately is served next. The
 * daemon's loop owns it. */
#pragma once

#include <stdint.h>

struct client;
struct server;

/* What one turn lasts, and one batch of connections or notes: what anybody else waits for. */
#define TURN_NS (NSEC_PER_SEC / 1000)

int turns_open(struct server *s);
void turns_close(struct server *s);

/* There is something to read from c. It is not watched for more until client_turn() has read all of
 * it. */
void turns_wait(struct client *c);
/* c is about to be freed. */
void turns_leave(struct client *c);
