/* daemon_folder.h: the directory that names a daemon: its lock, its sockets, its marker.
 *
 * A lock, held with flock(2), decides which daemon serves a directory. It ends with the daemon, so
 * sockets found without a lock are stale and are replaced. A socket gets its name when it listens,
 * the clients' socket last, so a socket that refuses connections was left by a killed daemon. The
 * marker exists while clients may hold GPU memory. A daemon that finds one at its start knows that
 * an earlier daemon crashed, and how much host memory it had promised. The directory also has the
 * settings made at run time, and the folder conf.d, into which other programs write settings
 * (sources.h).
 *
 * A shared daemon's sockets for everybody have a second name in its folder `public`. It has nothing
 * else, because it is mounted into containers. When the daemon ends this folder stays: containers
 * would not see the next daemon in a new one. The lock and the directory stay, too. Only the
 * machine's daemon, if it was started by hand, leaves nothing, because programs wait for a daemon
 * as long as its directory exists. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/daemon_paths.h"

#define PLACE_ERROR_MAX 512

struct place_options {
        const char *dir;
        bool shared; /* other users may connect */
        gid_t group; /* the only group that may connect to a shared daemon; (gid_t)-1: everybody may
                      */
};

/* In the order in which they get their names. */
enum place_socket { PLACE_CONTROL, PLACE_STATUS, PLACE_CLIENT, PLACE_SOCKETS };

struct place {
        char dir[PATHS_DIR_MAX];
        int lock_fd;
        int listening[PLACE_SOCKETS]; /* non-blocking; -EBADF: none, such as PLACE_STATUS unless
                                         shared */
        bool given[PLACE_SOCKETS];    /* the service manager gave the socket, and keeps its name */
        bool marked;
        uint64_t promised_bytes; /* promised host memory, for the marker */
};

#define PLACE_INIT ((struct place){.lock_fd = -EBADF, .listening = {-EBADF, -EBADF, -EBADF}})

/* Makes or checks the directory, takes its lock, and listens. 0, or with a sentence in `error`:
 * -EALREADY      another daemon serves the directory
 * -ENAMETOOLONG, -EPERM, -EACCES, -ENOTDIR, -ENOENT, ...: the directory cannot be used */
int place_open(const struct place_options *o, struct place *ret,
               char error[static PLACE_ERROR_MAX]);
/* remove_sockets: removes the names, so that no client finds them any more. */
void place_close(struct place *p, bool remove_sockets);

/* Call it after a fork: writes the pid of this process, which holds the lock now, for messages. */
void place_sign(const struct place *p);
/* True if an earlier daemon has left a marker: its clients may come back. *ret_promised_bytes: the
 * host memory that it had promised; 0: not known. */
bool place_was_busy(const struct place *p, uint64_t *ret_promised_bytes);
/* True if the clients' socket has lost its name: the system removes /run/user/UID when the user
 * logs out. */
bool place_is_lost(const struct place *p);
/* Sets the marker, because clients may hold memory, or removes it. */
void place_mark(struct place *p, bool busy);
/* Keeps the settings made at run time, as configuration text, for the daemon that follows a crash.
 * "": no setting differs any more. */
void place_keep(const struct place *p, const char *text);
/* Returns the kept settings; NULL: there are none. */
FILE *place_kept(const struct place *p);
/* True if a daemon answers at the directory's client socket. */
bool place_answers(const char *dir);
