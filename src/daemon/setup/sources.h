/* sources.h: where the settings of a daemon come from: files, and the command line over them.
 *
 * They are read at the start and at each reload. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/setup/config.h"

#define SOURCES_SYSTEM_FILE CONFIG_SYSTEM_FILE

struct sources {
        char file[CONFIG_PATH_MAX]; /* its folder file.d has the drop-ins; empty: no files */
        bool named;                 /* a person named the file, so it must exist */
        char dir[CONFIG_PATH_MAX];  /* the daemon's own: its conf.d has the last files; empty: none
                                     */
        bool shared;                /* other users connect */
        struct source_override {
                const char *key, *value; /* of the command line, which outlives this structure */
        } * overrides;
        size_t n_overrides;
};

/* Chooses the file: named (--config), else the machine's file (system), or the user's own. 0, or
 * -ENAMETOOLONG with a sentence in error. */
enum sources_of { SOURCES_NONE, SOURCES_SYSTEM, SOURCES_USER };
int sources_choose(struct sources *s, const char *named, enum sources_of whose,
                   char error[static CONFIG_ERROR_MAX]);
/* Names the daemon's own directory. 0, -ENAMETOOLONG. */
int sources_in(struct sources *s, const char *dir);
/* Makes a relative name absolute, because a private daemon changes its folder. 0, -ENAMETOOLONG. */
int sources_absolute(const char *name, char ret[static CONFIG_PATH_MAX]);

/* Notes a key of the command line, and checks its value. As config_set(). */
int sources_override(struct sources *s, const char *key, const char *value,
                     char error[static CONFIG_ERROR_MAX]);

/* Reads everything into *ret, for config_free(). 0, or -errno with a sentence that names file and
 * line; then *ret is unchanged. */
int sources_read(const struct sources *s, struct config *ret, char error[static CONFIG_ERROR_MAX]);
/* The same for a daemon that starts. 1: what programs wrote into conf.d cannot be used and is left
 * out, because a daemon without their classes is better than none; the sentence is in error. */
int sources_read_first(const struct sources *s, struct config *ret,
                       char error[static CONFIG_ERROR_MAX]);
