/* server.h: the daemon's loop. */
#pragma once

#include <stdbool.h>

struct config;
struct place;

/* Serve until told to stop. enum server_end or -errno. place's sockets listen already. linger:
 * leave when lonely. */
int server_run(const struct config *config, struct place *place, bool linger);

/* The signals that the loop takes. From here on none of them ends the process before its sockets
 * are gone. */
void server_block_signals(void);
