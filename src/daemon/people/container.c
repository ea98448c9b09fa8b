/* container.c: owns the forms of the cgroups' names that container engines use. Must never let
 * other characters through than digits, letters, '-', '_' and '.'. */
#include "daemon/people/container.h"

#include <stddef.h>
#include <string.h>

#define DIGITS   "0123456789abcdef"
#define LXC      "lxc.payload."
#define LXC_NAME "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

/* Engines name a container's cgroup ID, or ENGINE-ID.scope: docker, libpod, crio, cri-containerd.
 */
static void take_id(const char *name, size_t length, struct container *ret)
{
        const char *end = name + length;

        for (const char *p = name; p + CONTAINER_ID_MAX <= end; p++) {
                if ((p > name && p[-1] != '-') || strspn(p, DIGITS) != CONTAINER_ID_MAX)
                        continue;
                if (p + CONTAINER_ID_MAX == end || p[CONTAINER_ID_MAX] == '.') {
                        memcpy(ret->id, p, CONTAINER_ID_MAX);
                        ret->id[CONTAINER_ID_MAX] = 0;
                }
                return;
        }
}

static void take_lxc(const char *name, size_t length, struct container *ret)
{
        const size_t prefix = strlen(LXC), n = length - prefix;

        if (length <= prefix || n > CONTAINER_ID_MAX || strncmp(name, LXC, prefix) != 0 ||
            strspn(name + prefix, LXC_NAME) < n)
                return;
        memcpy(ret->id, name + prefix, n);
        ret->id[n] = 0;
}

void container_of_cgroup(const char *path, struct container *ret)
{
        *ret = (struct container){0};
        while (*path) {
                const size_t length = strcspn(path, "/");

                take_id(path, length, ret);
                take_lxc(path, length, ret);
                path += length + (path[length] == '/');
        }
}
