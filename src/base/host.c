/* host.c: owns the reading of the machine's and the cgroup's memory figures.
 * Must never report more than the smaller of the two. */
#include "base/host.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

/* The names of the memory files in the two versions of cgroups. Above `slow`, the kernel makes each
 * process that takes memory sleep: for ever if all used memory is pinned. */
static const struct cgroup_kind {
        const char *root, *limit, *slow, *used, *file_inactive, *file_active;
} cgroup_v1 = {.root = CGROUP_ROOT "/memory",
               .limit = "memory.limit_in_bytes",
               .used = "memory.usage_in_bytes",
               .file_inactive = "total_inactive_file",
               .file_active = "total_active_file"},
  cgroup_v2 = {.root = CGROUP_ROOT,
               .limit = "memory.max",
               .slow = "memory.high",
               .used = "memory.current",
               .file_inactive = "inactive_file",
               .file_active = "active_file"};

static int read_number(const char *path, uint64_t *ret)
{
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        char line[64];

        if (!f)
                return -errno;
        if (!fgets(line, sizeof(line), f))
                return -ENODATA;
        line[strcspn(line, "\n")] = '\0';
        return units_parse_count(line, ret); /* "max" is no number */
}

/* Reads the number in a line "KEY NUMBER ..."; cuts the line after the number. */
static bool read_line(char *line, const char *key, uint64_t *ret)
{
        size_t n = strlen(key);

        if (strncmp(line, key, n) != 0 || line[n] != ' ')
                return false;
        line += n + strspn(line + n, " ");
        line[strcspn(line, " \n")] = '\0';
        return units_parse_count(line, ret) == 0;
}

static int read_in(const struct cgroup_kind *k, const char *dir, const char *file, uint64_t *ret)
{
        char path[1300];

        (void)snprintf(path, sizeof(path), "%s%s/%s", k->root, dir, file);
        return read_number(path, ret);
}

/* Returns the bytes of used memory that the kernel can reclaim: all inactive cached files and half
 * of the active ones. MemAvailable counts the machine's cached files in the same way. */
static uint64_t read_reclaimable(const struct cgroup_kind *k, const char *dir)
{
        char path[1300], line[256];
        _cleanup_fclose_ FILE *f = NULL;
        uint64_t sum = 0, n;

        (void)snprintf(path, sizeof(path), "%s%s/memory.stat", k->root, dir);
        f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f)) {
                if (read_line(line, k->file_inactive, &n))
                        sum += n;
                else if (read_line(line, k->file_active, &n))
                        sum += n / 2;
        }
        return sum;
}

/* Lowers m to what the cgroup `dir` allows. Reads memory.stat only if need be: the kernel collects
 * it from all processors, and evicting programs look often. machine_bytes: the machine's memory; a
 * limit that is not below it does not count. */
static void lower(struct host_memory *m, uint64_t machine_bytes, const struct cgroup_kind *k,
                  const char *dir)
{
        uint64_t limit = UINT64_MAX, slow = UINT64_MAX, used;

        (void)read_in(k, dir, k->limit, &limit);
        if (k->slow)
                (void)read_in(k, dir, k->slow, &slow);
        limit = MIN(limit, slow);
        if (limit >= machine_bytes || read_in(k, dir, k->used, &used) < 0)
                return;
        m->total_bytes = MIN(m->total_bytes, limit);
        if (sub_sat(limit, used) < m->available_bytes)
                used = sub_sat(used, read_reclaimable(k, dir));
        m->available_bytes = MIN(m->available_bytes, sub_sat(limit, used));
}

/* Applies the limits of the cgroup `dir` and of all its ancestors, including the root: the root
 * that a container sees is the container's own cgroup. */
static void lower_upwards(struct host_memory *m, uint64_t machine_bytes,
                          const struct cgroup_kind *k, char *dir)
{
        for (;;) {
                char *end;

                lower(m, machine_bytes, k, dir);
                end = strrchr(dir, '/');
                if (!end)
                        break;
                *end = '\0';
        }
}

static bool names_memory(const char *controllers, size_t length)
{
        for (const char *c = controllers; c < controllers + length;) {
                size_t n = strcspn(c, ",:");

                if (n == strlen("memory") && strncmp(c, "memory", n) == 0)
                        return true;
                c += n + 1;
        }
        return false;
}

/* A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:PATH"; for version 2 the CONTROLLERS are
 * empty. */
static void apply_cgroups(struct host_memory *m)
{
        const uint64_t machine_bytes = m->total_bytes;
        _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
        char line[1024];

        while (f && fgets(line, sizeof(line), f)) {
                char *controllers = strchr(line, ':'), *dir;

                line[strcspn(line, "\n")] = '\0';
                dir = controllers ? strchr(++controllers, ':') : NULL;
                if (!dir)
                        continue;
                if (dir == controllers)
                        lower_upwards(m, machine_bytes, &cgroup_v2, dir + 1);
                else if (names_memory(controllers, (size_t)(dir - controllers)))
                        lower_upwards(m, machine_bytes, &cgroup_v1, dir + 1);
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
                if (read_line(line, "MemTotal:", &kib))
                        m.total_bytes = kib * KIB;
                else if (read_line(line, "MemAvailable:", &kib))
                        m.available_bytes = kib * KIB;
        }
        if (m.total_bytes == 0 || m.available_bytes == 0)
                return -ENODATA;
        apply_cgroups(&m);
        *ret = m;
        return 0;
}

static uint64_t host_margin(const struct host_memory *m)
{
        return MAX(m->total_bytes / 16, MIN(GIB, m->total_bytes / 4));
}

uint64_t host_memory_budget(const struct host_memory *m, uint64_t before)
{
        return MIN(m->total_bytes / 2, MAX(sub_sat(m->available_bytes, host_margin(m)), before));
}

uint64_t host_memory_room(const struct host_memory *m)
{
        return sub_sat(m->available_bytes, host_margin(m) / 2);
}

uint64_t host_memory_share(const struct host_memory *m)
{
        const uint64_t share = MAX(host_margin(m) / 2 / HOST_TAKERS, HOST_SHARE_LEAST);

        return MIN(share, host_memory_room(m));
}
