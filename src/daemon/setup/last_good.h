/* last_good.h: the last good configuration on disk, which a daemon goes on with if the present
 * files are wrong (docs/configuration.md). Only files of the owner are kept; what programs write
 * into conf.d lies in the daemon's directory anyway. Not thread-safe. */
#pragma once

#include "daemon/setup/config.h"
#include "daemon/setup/texts.h"

#define KEPT_SYSTEM_FOLDER "/var/lib/subletd"

struct kept {
        char folder[CONFIG_PATH_MAX]; /* empty: nothing can be kept */
        char path[CONFIG_PATH_MAX + 40];
        char of[2 * CONFIG_PATH_MAX + 8]; /* the directory and the file of this daemon */
        bool told;                        /* the log says that nothing could be kept */
};

/* Finds the file for the daemon of this directory, which reads this configuration file. system: it
 * is the machine's daemon. */
void last_good_open(struct kept *k, const char *dir, const char *config_file, bool system);
/* Reads what was kept. 0; -ENOENT: nothing was; or another -errno: it must not be used, for the
 * reason in error. */
int last_good_read(const struct kept *k, struct texts *ret, char error[static CONFIG_ERROR_MAX]);
/* Keeps these texts, unless the same ones are kept. If there are no texts, removes what was kept.
 * If writing fails, the log says so, once. */
void last_good_write(struct kept *k, const struct texts *t);
