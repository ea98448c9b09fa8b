/* process.h: what the kernel tells everybody of a process. Nothing here waits for the process. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/people/peer.h"

/* Why none of its threads runs. */
enum process_stop {
        PROCESS_GOES_ON,
        PROCESS_SIGNAL,   /* Ctrl-Z, SIGSTOP */
        PROCESS_DEBUGGER, /* a debugger holds it */
        PROCESS_CGROUP,   /* its cgroup is frozen, as by docker pause */
};

#define PROCESS_NAME_MAX 64

struct process {
        uid_t uid;
        char name[PROCESS_NAME_MAX]; /* of its file, as the kernel keeps it: 15 bytes; clean */
        enum process_stop stop;
};

/* 0; -ESRCH: it has ended, or is hidden from us. */
int process_look(pid_t pid, struct process *ret);
/* Returns why the process stands still. cgroup: looks at its cgroup's freezer, too. */
enum process_stop process_stop(const struct peer *p, bool cgroup);
/* Returns "signal", "debugger", "cgroup"; NULL: it goes on. Pure. */
const char *process_stop_name(enum process_stop stop);
/* True if we see the machine's own process numbers, as NVML does: we are in no container. */
bool process_numbers_are_the_machines(void);
