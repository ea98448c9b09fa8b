/* part_paths.c: owns the paths of the other parts of sublet. Must never look in the working
 * directory or in PATH, because the files are loaded into other programs. */
#include "client/common/part_paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Paths relative to the folder of the running binary, in a build tree and in an installation
 * (cmake/install.cmake). */
static const struct {
        const char *built, *installed;
} places[] = {
        [PART_DAEMON] = {"subletd", "subletd"},
        [PART_LIBRARY] = {"libsublet.so", SUBLET_FROM_BIN_TO_PRIVATE "/libsublet.so"},
        [PART_SIMULATOR] = {"sim", SUBLET_FROM_BIN_TO_PRIVATE "/sim"},
        [PART_DEMO_JOB] = {"sublet-demo-job", SUBLET_FROM_BIN_TO_PRIVATE "/sublet-demo-job"},
        [PART_BENCH_JOB] = {"sublet-bench-job", SUBLET_FROM_BIN_TO_PRIVATE "/sublet-bench-job"},
        [PART_BENCH_TORCH] = {"bench_torch.py", SUBLET_FROM_BIN_TO_PRIVATE "/bench_torch.py"},
        [PART_PAIRS_JOB] = {"sublet-pairs-job", SUBLET_FROM_BIN_TO_PRIVATE "/sublet-pairs-job"},
        [PART_PAIRS_TORCH] = {"pairs_torch.py", SUBLET_FROM_BIN_TO_PRIVATE "/pairs_torch.py"},
        [PART_SIMULATOR_STAT] = {"sim/simcuda-stat",
                                 SUBLET_FROM_BIN_TO_PRIVATE "/sim/simcuda-stat"},
        [PART_RANKS] = {"libsublet-ranks.so", SUBLET_FROM_BIN_TO_PRIVATE "/libsublet-ranks.so"},
        [PART_PAIRING] = {"sublet-pairing", SUBLET_FROM_BIN_TO_PRIVATE "/sublet-pairing"},
};

static int own_folder(char *ret, size_t size)
{
        ssize_t n = readlink("/proc/self/exe", ret, size - 1);

        if (n < 0)
                return -errno;
        ret[n] = 0;
        *strrchr(ret, '/') = 0;
        return 0;
}

int parts_find(enum part part, char ret[static PATH_MAX])
{
        char folder[PATH_MAX - 64], path[PATH_MAX];
        int r = own_folder(folder, sizeof(folder));

        if (r < 0)
                return r;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, places[part].installed);
        if (realpath(path, ret))
                return 0;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, places[part].built);
        if (realpath(path, ret))
                return 0;
        r = -errno;
        (void)strcpy(ret, path);
        return r;
}
