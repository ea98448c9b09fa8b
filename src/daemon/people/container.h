/* container.h: the container of a process, by the path of its cgroup.
 *
 * The id is only shown to people: a user who may make cgroups can give them any name. The daemon
 * acts upon the tenant (tenant.h). */
#pragma once

#define CONTAINER_ID_MAX 64 /* Docker's, Podman's and containerd's ids have 64 digits */

struct container {
        char id[CONTAINER_ID_MAX + 1]; /* "": none */
};

/* Finds the container in the path of a cgroup. Of nested containers the innermost counts. Pure. */
void container_of_cgroup(const char *path, struct container *ret);
