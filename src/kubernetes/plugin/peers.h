/* peers.h: the connections to the plugin's socket. gRPC reads and writes them; here they are
 * counted, by the process that made them, so that no process can keep kubelet out.
 *
 * Not thread-safe: the loop's thread calls all of it. */
#pragma once

#include <stdbool.h>

#include <sys/types.h>
#include <systemd/sd-event.h>

struct peers;

int peers_new(sd_event *loop, struct peers **ret);
void peers_free(struct peers *p);

/* Notes a connection, before gRPC gets the descriptor. May make room by ending another connection,
 * of the process that has the most. 0; -EUSERS: there are too many, close this one; or -errno. */
int peers_add(struct peers *p, int fd);
/* Returns the process at the other end of gRPC's peer "fd:NUMBER"; 0: it is not known. */
pid_t peers_process(const struct peers *p, const char *peer);
/* Ends the connection that gRPC knows by this name. */
void peers_end(struct peers *p, const char *peer);
