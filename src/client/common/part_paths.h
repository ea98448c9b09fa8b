/* part_paths.h: finds the other parts of sublet.
 *
 * In a build tree the parts are beside the running binary. In an installation they are at fixed
 * places relative to the binary, so that an installation can be moved as a whole. Nothing is
 * cached. */
#pragma once

#include <linux/limits.h>
#include <stddef.h>

enum part {
        PART_DAEMON,
        PART_LIBRARY,
        PART_SIMULATOR,
        PART_DEMO_JOB,
        PART_BENCH_JOB,
        PART_BENCH_TORCH,
        PART_PAIRS_JOB,
        PART_PAIRS_TORCH,
        PART_SIMULATOR_STAT,
        PART_PAIRING,
        PART_RANKS
};

/* Finds the absolute path of a file or, for PART_SIMULATOR, a directory. 0;
 * -ENOENT: the part is missing, and ret is its path in a build tree; or another -errno. */
int parts_find(enum part part, char ret[static PATH_MAX]);
