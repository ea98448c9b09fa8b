/* read_turns.h: whose messages are read next. A client that has sent a message waits in its user's
 * queue; the user that has used least of the loop's time lately is served next. The daemon's loop
 * owns it. */
#pragma once

#include <stdint.h>

struct client;
struct server;

/* Longest time of one turn, or of one batch of connections or of messages from peer daemons: others
 * wait that long. */
#define TURN_NS (NSEC_PER_SEC / 1000)

int read_turns_open(struct server *s);
void read_turns_close(struct server *s);

/* Queues c, because its socket can be read. The socket is not watched until client_turn() has read
 * all. */
void read_turns_wait(struct client *c);
/* Call it before c is freed. */
void read_turns_leave(struct client *c);
