/* endpoint.h: serves the metrics over HTTP, at a UNIX socket or at a TCP port of this machine.
 *
 * A UNIX socket is for the daemon's own user and for root alone, outside a container, as
 * control.sock is. A TCP port is for everybody on the machine. libmicrohttpd speaks HTTP, without
 * threads: the daemon's loop drives it. A connection brings one request. */
#pragma once

#include "daemon/setup/values.h"

struct endpoint;
struct server;

/* Listens at this address (address.h). 0, or -errno with a sentence in error. */
int endpoint_open(struct server *s, const char *address, struct endpoint **ret,
                  char error[static CONFIG_ERROR_MAX]);
void endpoint_free(struct endpoint *e); /* NULL is a no-op */
/* Serves the metrics at e from now on, and no longer at the former endpoint; NULL: nowhere. */
void endpoint_use(struct server *s, struct endpoint *e);
