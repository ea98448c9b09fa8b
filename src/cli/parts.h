/* parts.h: finds the other parts of sublet.
 *
 * In a build tree they are beside the running binary, in an installation at fixed places relative
 * to it, so that a whole prefix can be moved. Nothing is cached; not thread-safe with chdir or
 * setenv. */
#pragma once

#include <linux/limits.h>
#include <stddef.h>

enum part { PART_DAEMON, PART_LIBRARY, PART_SIMULATOR, PART_DEMO_JOB, PART_SIMULATOR_STAT };

/* Finds the absolute path of a file or, for PART_SIMULATOR, a directory. 0; -ENOENT: it is in
 * neither place (ret: where it should be), or another -errno. */
int parts_find(enum part part, char ret[static PATH_MAX]);
