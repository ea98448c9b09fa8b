/* parts.h: where the other parts of sublet lie.
 *
 * Beside the running binary in a build tree; relative to it in an installation, so that a whole
 * prefix can be moved. Nothing is cached; not thread-safe with chdir or setenv. */
#pragma once

#include <linux/limits.h>
#include <stddef.h>

enum part { PART_DAEMON, PART_LIBRARY, PART_SIMULATOR, PART_DEMO_JOB, PART_SIMULATOR_STAT };

/* The absolute path of a file or, for PART_SIMULATOR, a directory. 0, or -ENOENT: it is in neither
 * place (ret is where it was looked for first), -errno. */
int parts_find(enum part part, char ret[static PATH_MAX]);
