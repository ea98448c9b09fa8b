/* sources.h: where the settings of a daemon come from: files, and the command line over them.
 *
 * The files are read at the start and at each reload. No wrong file is applied in part: the last
 * good configuration holds instead, and without one no program gets a turn. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/setup/config.h"
#include "daemon/setup/last_good.h"
#include "daemon/setup/texts.h"

#define SOURCES_SYSTEM_FILE CONFIG_SYSTEM_FILE

struct sources {
        char file[CONFIG_PATH_MAX]; /* its folder file.d has the drop-ins; empty: no files */
        bool named;                 /* a person named the file, so it must exist */
        char dir[CONFIG_PATH_MAX];  /* the daemon's own: its conf.d has the last files; empty: none
                                     */
        bool shared;                /* other users connect */
        struct source_override {
                const char *key, *value; /* from the command line, which outlives this structure */
        } * overrides;
        size_t n_overrides;

        /* What the last reading found. */
        enum sources_found {
                SOURCES_NOTHING,   /* no reading has found a configuration to go on with */
                SOURCES_LAST_GOOD, /* something is wrong, and the last good configuration holds */
                SOURCES_GOOD,
        } found;
        char error[CONFIG_ERROR_MAX]; /* one sentence about what is wrong; empty: nothing is */
        bool programs_good;           /* the files in conf.d are good by themselves */
        struct texts good;            /* the owner's files, as they were accepted last */
        bool good_known;
        struct kept kept;
};

/* Chooses the file: named (--config), else the machine's file (system), or the user's own. 0, or
 * -ENAMETOOLONG with a sentence in error. */
enum sources_of { SOURCES_NONE, SOURCES_SYSTEM, SOURCES_USER };
int sources_choose(struct sources *s, const char *named, enum sources_of whose,
                   char error[static CONFIG_ERROR_MAX]);
/* Names the daemon's own directory, and finds where its last good configuration is kept. 0,
 * -ENAMETOOLONG. */
int sources_in(struct sources *s, const char *dir, bool system);
/* Makes a relative name absolute, because a private daemon changes its folder. 0, -ENAMETOOLONG. */
int sources_absolute(const char *name, char ret[static CONFIG_PATH_MAX]);

/* Notes a key of the command line, and checks its value. Returns what config_set() returns. */
int sources_override(struct sources *s, const char *key, const char *value,
                     char error[static CONFIG_ERROR_MAX]);

/* Reads everything into *ret, for config_free(), and notes in `found` and `error` what it found. 0:
 * the files are good. 1: the owner's files are not good, and *ret has the last good ones, with what
 * programs wrote into conf.d. -errno: nothing can be used; *ret is unchanged. */
int sources_read(struct sources *s, struct config *ret);
/* Reads like sources_read(), for a daemon that starts. If there is nothing to go on with, *ret has
 * the defaults, which must not be applied to any program (SOURCES_NOTHING). */
void sources_read_first(struct sources *s, struct config *ret);
/* Notes that good files could not be put in force: the settings before them hold. */
void sources_refuse(struct sources *s, const char *error);
/* Keeps the owner's files on disk, if the last reading found them good. */
void sources_keep(struct sources *s);
/* Forgets what was accepted last, which another process may have replaced on disk. */
void sources_forget(struct sources *s);
