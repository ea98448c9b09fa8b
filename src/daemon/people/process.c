/* process.c: owns what the daemon reads in /proc of processes that have not connected. Must never
 * read a file that waits for the process's memory, such as its command line: a process that hangs
 * would stop the daemon. */
#include "daemon/people/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/text.h"

#define FIRST_PID_NAMESPACE 0xEFFFFFFCu /* PROC_PID_INIT_INO of the kernel's proc_ns.h */

/* NSpid lists the number in our pid namespace and in each one below. Every user may read it, unlike
 * /proc/PID/ns. */
static void read_numbers(const char *line, struct process *ret)
{
        const char *last = strrchr(line, '\t');

        ret->inner = (pid_t)strtol(last, NULL, 10);
        ret->outside = last == strchr(line, '\t');
}

int process_look(pid_t pid, struct process *ret)
{
        struct process p = {.uid = (uid_t)-1};
        _cleanup_fclose_ FILE *f = NULL;
        char path[64], line[256], state = 0;

        (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
        f = pid > 0 ? fopen(path, "re") : NULL;
        while (f && fgets(line, sizeof(line), f)) {
                line[strcspn(line, "\n")] = '\0';
                if (strncmp(line, "Name:\t", 6) == 0)
                        (void)text_copy(p.name, sizeof(p.name), line + 6);
                else if (strncmp(line, "State:\t", 7) == 0)
                        state = line[7];
                else if (strncmp(line, "Uid:\t", 5) == 0)
                        (void)sscanf(line + 5, "%u %u", &p.real_uid, &p.uid);
                else if (strncmp(line, "NSpid:\t", 7) == 0)
                        read_numbers(line, &p);
        }
        if (!state || p.uid == (uid_t)-1)
                return -ESRCH;
        p.ended = state == 'Z' || state == 'X';
        p.stop = state == 'T' ? STOP_SIGNAL : state == 't' ? STOP_DEBUGGER : STOP_NONE;
        *ret = p;
        return 0;
}

/* True if the cgroup, or one above it, is frozen: the file cgroup.events (cgroups(7)) covers
 * both. */
static bool is_cgroup_frozen(const struct peer *p)
{
        static char group[PEER_CGROUP_MAX], path[PEER_CGROUP_MAX + 64];
        _cleanup_fclose_ FILE *f = NULL;
        char line[64];

        if (peer_cgroup(p, group) < 0)
                return false;
        (void)snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cgroup.events", group);
        f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
                if (strcmp(line, "frozen 1\n") == 0)
                        return true;
        return false;
}

enum stop process_stop(const struct peer *p, bool cgroup)
{
        struct process look;

        if (process_look(p->pid, &look) < 0)
                return STOP_NONE;
        if (cgroup && look.stop == STOP_NONE && is_cgroup_frozen(p))
                return STOP_CGROUP;
        return look.stop;
}

bool process_numbers_are_the_machines(void)
{
        struct stat st;

        return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == FIRST_PID_NAMESPACE;
}
