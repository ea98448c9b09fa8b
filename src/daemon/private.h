/* private.h: the daemon of one user, started on demand: a supervisor and its worker.
 *
 * The supervisor holds the listening sockets, so that clients can connect while a worker that died
 * is being replaced. */
#pragma once

#include "daemon/setup/config.h"
#include "daemon/setup/daemon_folder.h"
#include "daemon/setup/sources.h"

/* Serves dir in the background. Returns in the caller's process as soon as a daemon listens there:
 * 0 (also if another private daemon was faster), or -errno with a sentence in error. Each worker
 * that replaces another one reads the sources again. */
int private_start(struct config *config, struct sources *sources, const struct place_options *o,
                  char error[static PLACE_ERROR_MAX]);
/* Drops the older part of the log of the private daemon in this directory, if the log has grown too
 * long. For any process. */
void private_bound_log(const char *dir);
