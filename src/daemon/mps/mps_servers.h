/* mps_servers.h: the MPS servers that the daemon starts for programs, if the owner allows it.
 *
 * A fault in one program of an MPS server ends the work of all. So there is a control daemon for
 * each GPU and user; a pod, or a job, is a user of its own. It is started when the first program
 * asks, as that user, and is ended when its last program has been gone for the time `linger`. It
 * does not end with subletd: the next subletd finds it by its directory, DIR/mps/UID.TENANT.GPU.
 * For the loop's thread. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "wire/wire.h"

struct client;
struct server;

/* Makes server->mps, with the control daemons that an earlier subletd has left. 0 or -errno. */
int mps_servers_new(struct server *s);
/* Ends control daemons without programs; the others go on. */
void mps_servers_free(struct server *s);

/* Handles JOIN. 0, or -EEXIST: the client has sent JOIN already. */
int mps_servers_join(struct client *c, const struct wire_message *m);
/* Call it when a client says that it takes part in MPS on this GPU: it may have asked an earlier
 * subletd. */
void mps_servers_seen(struct client *c, unsigned gpu);
/* Handles the end of a child of the daemon. False: the child was not of MPS. */
bool mps_servers_reaped(struct server *s, pid_t pid, int status);
