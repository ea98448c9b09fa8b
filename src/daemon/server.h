/* server.h: the daemon's loop. */
#pragma once

#include <stdbool.h>

struct config;
struct place;

/* Serve until told to stop. enum server_end or -errno. place's sockets listen already. linger: end
 * some time after the last client. */
int server_run(const struct config *config, struct place *place, bool linger);

/* Block the signals that the loop handles: from here on none of them ends the process before its
 * sockets are removed. */
void server_block_signals(void);
