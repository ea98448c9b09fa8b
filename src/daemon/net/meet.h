/* meet.h: processes that share memory meet: the daemon makes a connection and gives each of them
 * one end. What goes over it is theirs (docs/protocol.md, "Memory that others have open"); the
 * daemon sees and keeps none of it. */
#pragma once

struct client;
struct wire_message;

/* Handlers of NAME and PEER; 0, or -errno: dropped. */
int meet_name(struct client *c, const struct wire_message *m);
int meet_peer(struct client *c, const struct wire_message *m);
