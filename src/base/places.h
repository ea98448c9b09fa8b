/* places.h: where private daemons of one user may be. The library, the command line and doctor look
 * at one list, in one order, so that programs with different environments find one daemon:
 *   1. $XDG_RUNTIME_DIR/sublet
 *   2. /run/user/UID/sublet
 *   3. /tmp/sublet-UID
 *   4. the folders that running programs of this user name: $XDG_RUNTIME_DIR/sublet of each program
 *      under sublet that names no SUBLET_DIR
 * A daemon counts only if its folder is the user's and closed to others, and if the kernel says
 * that the user or root listens there (SO_PEERCRED). A daemon that SUBLET_DIR names is for the
 * programs that name it, and is not joined: demonstrations and measurements start such daemons.
 * places_look() shows it, because its programs take no turns with the user's other programs.
 *
 * Nothing here keeps state. No glibc symbol past 2.17 is used, because the preload library calls
 * these functions. Thread-safe as far as getenv is. */
#pragma once

#include <stdbool.h>

#include "base/daemon_paths.h"

#define PLACES_MAX 8

/* What to do about a second daemon: a format for printf(), whose argument is the daemon's
 * folder. */
#define PLACES_JOIN "`sublet stop --daemon %s`: its programs go on, and join the other daemon"
/* What to do if SUBLET_DIR names one of the two daemons: stopping it would not help. */
#define PLACES_ONE "start all of your programs with the same SUBLET_DIR, or all without it"

struct private_place {
        char dir[PATHS_DIR_MAX];
        int error;      /* 0: a daemon answers; -ENOENT, -ECONNREFUSED: none; else: not trusted */
        int pid;        /* the program that names the place; 0: none does */
        bool named;     /* a program names it by SUBLET_DIR, and joins no other daemon */
        bool elsewhere; /* a daemon answers there, but the folder is in another mount namespace,
                           that of `pid`: this process cannot join it */
};

/* Replaces dir, which has n bytes, by the first place where a daemon answers. Where none does, dir
 * stays as it is. */
void places_find(const struct paths_input *in, char *dir, size_t n);

/* Looks at all places, also at those in other mount namespaces. If SUBLET_DIR is set here, the
 * usual places count only if a program of this user uses them. Returns their number, at most
 * PLACES_MAX. */
unsigned places_look(const struct paths_input *in, struct private_place ret[static PLACES_MAX]);
