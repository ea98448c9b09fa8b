/* order_reload.h: what may change while the daemon runs: settings by an order, and all of them by a
 * reload.
 *
 * A setting that an order changed wins over the files until the daemon ends, or until a reload
 * finds that this key changed there. */
#pragma once

#include "daemon/setup/values.h"

struct server;

#define RELOAD_AT_START_MAX 16

/* What a reload did. */
struct reload {
        const char *at_start[RELOAD_AT_START_MAX]; /* keys that differ and wait for a restart */
        unsigned n_at_start;
        unsigned n_classes;
};

/* Reads the files and the command line again and applies the whole, or nothing. If only the files
 * of the daemon's owner are wrong, those that were accepted last stay in force, with what programs
 * wrote into conf.d. Logs what is wrong. 0: sources->error says whether the owner's files are
 * wrong. -errno: `error` has a sentence that names file, line and reason. */
int server_reload(struct server *s, struct reload *ret, char error[static CONFIG_ERROR_MAX]);

/* Sets a key of [daemon] that takes effect at once, and keeps it for the next daemon should this
 * one crash. 0, or -errno with a sentence. */
int reload_set(struct server *s, const char *key, const char *value,
               char error[static CONFIG_ERROR_MAX]);
