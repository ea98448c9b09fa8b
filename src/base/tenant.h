/* tenant.h: the Kubernetes pod or the Slurm job of a process, by its cgroups. Pure.
 *
 * Rights, caps and shares follow from the tenant. So a cgroup's name counts only at the places of
 * the kubelet and Slurm: directly below the top of the tree, or below a cgroup that the daemon
 * itself is in. No user can make a cgroup there. A user can make any name in a delegated part of
 * the tree, but that part is elsewhere. A user who may make cgroups above the daemon's could as
 * well move the daemon. If names are nested, the outermost counts, because root of a pod can make
 * cgroups below the pod's. docs/operations.md tells people. The device plugin asks here, too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENANT_ID_MAX 36

struct tenant {
        enum tenant_kind { TENANT_NONE, TENANT_POD, TENANT_JOB } kind;
        char id[TENANT_ID_MAX + 1]; /* uid of the pod, or number or SLUID of the job; "": none */
};

/* theirs, ours: what /proc/PID/cgroup says about the process and about the daemon. */
void tenant_of_cgroups(const char *theirs, const char *ours, struct tenant *ret);
/* Writes the path by which classes and people know the process: that of cgroup version 2, or, if
 * that is "/", the path of version 1's memory, pids or freezer. 0; -ENOENT: there is none;
 * -ENAMETOOLONG. */
int tenant_path(const char *cgroups, char *ret, size_t size);

/* True if both are in the same pod, in the same job, or in neither. */
bool tenant_same(const struct tenant *a, const struct tenant *b);
/* Returns a number for sorting and for the scheduler: above every uid, and the same after a
 * restart; 0 for no tenant. Two pods could have the same number, so no right may depend on it. */
uint64_t tenant_number(const struct tenant *t);

/* Copies the uid of a pod, as the kubelet or a person writes it. False: the text is no uid. */
bool tenant_read_pod(const char *text, size_t length, char ret[static TENANT_ID_MAX + 1]);
/* Copies the number of a job. False: the text is no such number. */
bool tenant_read_job(const char *text, size_t length, char ret[static TENANT_ID_MAX + 1]);
/* Copies the SLUID of a job, by which Slurm names the job's cgroup of version 2 from 26.05 on.
 * False: the text is no SLUID. */
bool tenant_read_sluid(const char *text, size_t length, char ret[static TENANT_ID_MAX + 1]);
