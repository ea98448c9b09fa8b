/* place.h: the directory that names a daemon: its lock, its sockets, its marker.
 *
 * The lock file decides who serves a directory, not the sockets: it is held with flock(2) for the
 * daemon's life and survives nothing, so sockets found without a lock are stale and are replaced.
 * The lock file itself is never removed (removing it would race with the next daemon).
 * A socket gets its name when it listens, with its mode, and the clients' is the last: whoever
 * finds a name without a daemon has found what a killed one left. The marker exists while clients
 * may hold GPU memory: found at start, it tells a restart after a crash from a first start, and how
 * much host memory was promised. So do the settings that were made at run time and differ from the
 * configuration's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/paths.h"

#define PLACE_ERROR_MAX 512

struct place_options {
        const char *dir;
        bool shared; /* other users may connect */
        gid_t group; /* shared daemons: only this group; (gid_t)-1: everybody */
};

struct place {
        char dir[PATHS_DIR_MAX];
        int lock_fd, client_fd, control_fd; /* the sockets listen, non-blocking */
        int status_fd;                      /* -EBADF where other users do not connect */
        bool activated;                     /* the sockets are the service manager's */
        bool marked;
        uint64_t promised_bytes; /* promised host memory, as written to the marker */
};

#define PLACE_INIT                            \
        ((struct place){.lock_fd = -EBADF,    \
                        .client_fd = -EBADF,  \
                        .control_fd = -EBADF, \
                        .status_fd = -EBADF})

/* Make or check the directory, take its lock, listen. One sentence in `error` for
 * -EALREADY      another daemon serves it
 * -ENAMETOOLONG, -EPERM, -EACCES, -ENOTDIR, -ENOENT, ...: the directory cannot be used */
int place_open(const struct place_options *o, struct place *ret,
               char error[static PLACE_ERROR_MAX]);
/* remove_sockets: nobody is to find them any more. */
void place_close(struct place *p, bool remove_sockets);

/* After a fork: this process holds the lock now; for messages. */
void place_sign(const struct place *p);
/* A marker of an earlier daemon was found: its clients may come back. Returns what it had promised;
 * 0: not known. */
bool place_was_busy(const struct place *p, uint64_t *ret_promised_bytes);
/* Set or remove the marker: clients may hold memory, or no client does. */
void place_mark(struct place *p, bool busy);
/* Keep what was set at run time, as configuration text, for the daemon that follows a crash. "":
 * nothing is set any more. */
void place_keep(const struct place *p, const char *text);
/* The kept text; NULL: none. */
FILE *place_kept(const struct place *p);
/* Whether a daemon answers at the directory's client socket. */
bool place_answers(const char *dir);
