/* container.h: the container and the Kubernetes pod of a process, by the path of its cgroup.
 *
 * For people only: a user who may make cgroups can give them any name. */
#pragma once

#define CONTAINER_ID_MAX  64 /* Docker's, Podman's and containerd's ids have 64 digits */
#define CONTAINER_POD_MAX 36

struct container {
        char id[CONTAINER_ID_MAX + 1];   /* "": none */
        char pod[CONTAINER_POD_MAX + 1]; /* uid of the pod; "": none */
};

/* Reads the names that container engines give cgroups. Of nested ones the innermost counts. Pure.
 */
void container_of_cgroup(const char *path, struct container *ret);
