/* container.h: the container of a process, by the path of its cgroup.
 *
 * For people only: a user who may make cgroups can give them any name. What the daemon acts upon is
 * the tenant (tenant.h). */
#pragma once

#define CONTAINER_ID_MAX 64 /* Docker's, Podman's and containerd's ids have 64 digits */

struct container {
        char id[CONTAINER_ID_MAX + 1]; /* "": none */
};

/* Reads the names that container engines give cgroups. Of nested ones the innermost counts. Pure.
 */
void container_of_cgroup(const char *path, struct container *ret);
