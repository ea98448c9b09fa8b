/* loop.h: the daemon's loop. */
#pragma once

#include <stdbool.h>

struct config;
struct place;
struct ring;
struct sources;

/* Serves until told to stop; place's sockets listen already. Takes over what config owns; sources:
 * where a reload reads the settings again. history: the caller keeps it; NULL: none. linger: end
 * some time after the last client. Returns an enum server_end, or -errno. */
int loop_run(const struct config *config, struct sources *sources, struct place *place,
             struct ring *history, bool linger);

/* Blocks the signals that the loop handles: from here on none of them ends the process before its
 * sockets are removed. */
void loop_block_signals(void);
