/* broker.h: connects processes that share memory: the daemon makes a connection and gives each of
 * them one end (docs/protocol.md, "Memory that others have open"). It does not see what they
 * send. */
#pragma once

struct client;
struct wire_message;

/* Handlers of NAME and PEER. 0; -errno: the client is dropped. */
int broker_name(struct client *c, const struct wire_message *m);
int broker_peer(struct client *c, const struct wire_message *m);
