/* server.h: the daemon's loop. */
#pragma once

#include <stdbool.h>

struct config;
struct place;

/* Serves until told to stop; place's sockets listen already. linger: end some time after the last
 * client. Returns an enum server_end, or -errno. */
int server_run(const struct config *config, struct place *place, bool linger);

/* Blocks the signals that the loop handles: from here on none of them ends the process before its
 * sockets are removed. */
void server_block_signals(void);
