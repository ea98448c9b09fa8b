/* host.c: owns the reading of the machine's and the cgroup's memory figures.
 * Must never report more than the smaller of the two. */
#include "daemon/host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

static int read_number(const char *path, uint64_t *ret)
{
        _cleanup_fclose_ FILE *f = fopen(path, "re");

        if (!f)
                return -errno;
        return fscanf(f, "%" SCNu64, ret) == 1 ? 0 : -ENODATA; /* "max" is no number */
}

static void lower(struct host_memory *m, uint64_t limit, uint64_t used)
{
        m->total_bytes = MIN(m->total_bytes, limit);
        m->available_bytes = MIN(m->available_bytes, sub_sat(limit, used));
}

/* cgroup v2: every ancestor's limit holds. */
static void apply_cgroups(struct host_memory *m)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
        char line[1024], path[1200];
        uint64_t limit = 0, used = 0;

        if (read_number(CGROUP_ROOT "/memory/memory.limit_in_bytes", &limit) == 0 &&
            read_number(CGROUP_ROOT "/memory/memory.usage_in_bytes", &used) == 0)
                lower(m, limit, used); /* v1, as a container sees its own */
        while (f && fgets(line, sizeof(line), f)) {
                char *dir = line + 3, *end;

                if (strncmp(line, "0::", 3) != 0)
                        continue;
                dir[strcspn(dir, "\n")] = '\0';
                for (;;) {
                        (void)snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.max", dir);
                        if (read_number(path, &limit) == 0) {
                                (void)snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.current",
                                               dir);
                                if (read_number(path, &used) == 0)
                                        lower(m, limit, used);
                        }
                        end = strrchr(dir, '/');
                        if (!end)
                                break;
                        *end = '\0';
                }
        }
}

int host_memory_read(struct host_memory *ret)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/meminfo", "re");
        struct host_memory m = {0};
        char line[256];
        uint64_t kib = 0;

        if (!f)
                return -errno;
        while (fgets(line, sizeof(line), f)) {
                if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1)
                        m.total_bytes = kib * KIB;
                else if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
                        m.available_bytes = kib * KIB;
        }
        if (m.total_bytes == 0 || m.available_bytes == 0)
                return -ENODATA;
        apply_cgroups(&m);
        *ret = m;
        return 0;
}

uint64_t host_memory_budget(const struct host_memory *m)
{
        uint64_t margin = MAX(m->total_bytes / 16, MIN(GIB, m->total_bytes / 4));

        return MIN(m->total_bytes / 2, sub_sat(m->available_bytes, margin));
}
