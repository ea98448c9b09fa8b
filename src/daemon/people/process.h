/* process.h: what the kernel tells everybody of a process. Nothing here waits for the process. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/stop.h"
#include "daemon/people/peer.h"

#define PROCESS_NAME_MAX 64

struct process {
        uid_t uid, real_uid;
        pid_t inner;  /* its number in its own pid namespace; 0: unknown */
        bool outside; /* in our own pid namespace, not in one below */
        bool ended;
        char name[PROCESS_NAME_MAX]; /* of its file, cut by the kernel to 15 bytes; clean */
        enum stop stop;
};

/* Describes a process. 0; -ESRCH: it has ended, or is hidden from us. */
int process_look(pid_t pid, struct process *ret);
/* Returns why the process stands still. cgroup: looks at its cgroup's freezer, too. */
enum stop process_stop(const struct peer *p, bool cgroup);
/* True if we see the machine's own process numbers, as NVML does: we are in no container. */
bool process_numbers_are_the_machines(void);
