/* peer.h: the process at the other end of a connection, as the kernel knows it. Linux only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/tenant.h"

struct peer {
        pid_t pid; /* 0: the process is in a pid namespace that we cannot see */
        uid_t uid;
        gid_t gid;
        int pidfd; /* -EBADF: the process cannot be seen; the owner of this structure closes it */
        ino_t pid_namespace; /* inode of the namespace; 0: unknown */
        bool outside;        /* in our own pid namespace, not in one below: in no container */
        ino_t container; /* the outermost pid namespace below ours that the process is in, because
                            root of a container can make others below it; 0: none, or unknown */
        struct tenant tenant; /* the pod or the job that it runs in */
        bool trusted; /* may give orders: the daemon's own user or root, outside a container; but in
                         a pod only if it is the daemon's own one */
};

/* Reads the daemon's own cgroups, once, for later calls. 0, or -ENOENT: there are none. */
int peer_look_at_self(void);
/* Reads all fields, once, when the connection is accepted: later another process may have the
 * number. 0; -ESRCH: the process has ended already; -EMFILE, -ENFILE: no free descriptor;
 * -ENAMETOOLONG: its cgroup is too deep to be known; or another -errno. */
int peer_identify(int fd, struct peer *ret);
/* Fills in the fields that peer_has_right() reads, for a process that has not connected. There is
 * no pidfd, so another process may soon have its number: use the result only to show something. */
void peer_look_at(pid_t pid, uid_t uid, struct peer *ret);
/* Reads the path of the process's cgroup (tenant.h). 0; -ESRCH: it has ended, or cannot be seen;
 * -ENOENT: it is in none; -ENAMETOOLONG; or another -errno. */
#define PEER_CGROUP_MAX 4096
int peer_cgroup(const struct peer *p, char ret[static PEER_CGROUP_MAX]);
/* True if the process of this pidfd has ended. False for -EBADF: unknown. */
bool peer_ended(int pidfd);
/* True for the same user in the same pod, or in the same container and job: as far as the kernel
 * can tell, each could read the other's memory anyway. */
bool peer_same_tenant(const struct peer *a, const struct peer *b);
/* Returns the container, unless its processes are in a user namespace of their own: every user can
 * make such containers. 0: none. */
ino_t peer_own_container(const struct peer *p);
/* True for the same user. In different pods, one uid means different users; in different
 * containers, root does. All jobs of a person are the same user's. */
bool peer_same_user(const struct peer *a, const struct peer *b);
/* True if both share their limits: both are in one pod, with any uids; or both are of one user, and
 * either in the same job or both outside of jobs. */
bool peer_same_account(const struct peer *a, const struct peer *b);
/* True if `by` may see the settings of the programs of `of`, and give orders about them. A peer
 * that may give orders has this right over all programs. Any other peer has it over programs of its
 * uid that it could signal. In a container these are only the container's programs, because its
 * root can take any uid. */
bool peer_has_right(const struct peer *by, const struct peer *of);
/* What one process may know of another's program. */
enum peer_knowledge {
        PEER_KNOWS_NOTHING,
        PEER_KNOWS_NAME, /* its user and its name, as ps and nvidia-smi tell everybody */
        PEER_KNOWS_ALL   /* it has a right to the program */
};
/* names: the owner lets everybody on the machine know names. A process in a container or a pod
 * knows only names of programs that it has a right to. */
enum peer_knowledge peer_may_know(const struct peer *by, const struct peer *of, bool names);
/* Returns what a program is called to a process that may not know its name. */
const char *peer_stranger(const struct peer *by, const struct peer *of);
/* True if the process is in our own pid namespace, not in one below. The uid does not tell, because
 * the kernel shows a container's uid unchanged outside. */
bool peer_outside_container(pid_t pid);
/* True if the process is in a container, or cannot be seen: in a pid namespace below ours or in
 * another user namespace. In such a namespace a user can have many uids. */
bool peer_in_container(pid_t pid);
/* Lets the kernel accept descriptors, or refuse them at the sender's end; connections inherit this
 * from the listening socket. Kernels before Linux 6.16 cannot refuse: see hangup.h. */
void peer_pass_descriptors(int fd, bool pass);
/* Returns how long a process has lived; if that is not known, the machine's uptime. */
uint64_t peer_age_ns(pid_t pid);
/* Sends a signal. 0, or -errno of pidfd_send_signal. */
int peer_kill(int pidfd, int signal);
