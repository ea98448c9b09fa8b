/* submit_place.h: a place in the daemon's queue of jobs: the connection of one `sublet submit`.
 *
 * If the daemon ends, so does the connection. Then `sublet submit` asks the next daemon, behind
 * jobs that were quicker. For a running job it names the GPU and the way. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "base/daemon_paths.h"

struct launch;

struct place {
        const struct launch *launch;
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
        json_t *order; /* the order, without "running" */
        char *file;    /* the job file as one line; NULL: none */
        size_t file_size;

        int fd; /* -EBADF: there is no connection */
        char line[2048];
        size_t used;
        bool waits_for_daemon; /* people were told so */
        /* The GPU and the way in which the job runs, and its program. gpu is empty while it waits.
         */
        char gpu[96], way[16];
        pid_t pid;
};

/* Takes a place. Starts a private daemon if none runs and one may be started. first: waits for a
 * daemon, and prints why none gives a place. 0; -EAGAIN: no daemon answers now; -EACCES, after a
 * message: the daemon refuses, or a first attempt failed. */
int place_take(struct place *p, bool first);
/* Reads what the daemon says. 1: *ret is an object, a new reference; 0: nothing more has come;
 * -ECONNRESET: the connection has ended, and fd is closed. */
int place_read(struct place *p, json_t **ret);
void place_tell_progress(struct place *p, double progress);
void place_leave(struct place *p);
