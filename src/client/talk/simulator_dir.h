/* simulator_dir.h: where the daemon of the simulated driver has its sockets. */
#pragma once

#include "base/daemon_paths.h"

/* A session whose name begins with '+' is open to all users. */
#define SIMULATOR_SESSION_FORM "up to 32 letters, digits, '-' and '_', perhaps after a '+'"
/* Returns 0 if the name does not have this form. */
int simulator_session_is_good(const char *session);

/* Finds the directory of the simulator's daemon; each SIMCUDA_SESSION has one. CLI_OK, or an exit
 * status after a message. */
int simulator_dir(const char *session, char ret[static PATHS_DIR_MAX]);
