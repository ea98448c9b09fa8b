/* peer.h: the process at the other end of a connection, as the kernel knows it. Linux only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer {
        pid_t pid; /* 0: in a pid namespace that we cannot see */
        uid_t uid;
        gid_t gid;
        int pidfd; /* -EBADF where the process cannot be seen; the owner of this structure closes it
                    */
        ino_t pid_namespace; /* 0: unknown */
        bool trusted; /* may give orders: the daemon's own user, or root outside a container */
};

/* Read all of it when the connection is accepted, once: later the number may be another process's.
 * 0; -ESRCH: the process has ended already; -EMFILE, -ENFILE: no free descriptor, or another
 * -errno. */
int peer_identify(int fd, struct peer *ret);
/* The process of this pidfd has ended. False for -EBADF: unknown. */
bool peer_ended(int pidfd);
/* Same user, and same container: as far as the kernel can tell, each could read the other's memory
 * anyway. */
bool peer_same_tenant(const struct peer *a, const struct peer *b);
/* Whose programs a user may see by name: the user's own; all, if the user may give orders. */
bool peer_may_know(const struct peer *viewer, const struct peer *of);
/* Whose programs a user may pause: the same; but root of a container only those in it, because all
 * containers' roots have one uid. */
bool peer_may_pause(const struct peer *by, const struct peer *whom);
/* In our own pid namespace, not in one below it: the kernel shows container roots as uid 0, too. */
bool peer_outside_container(pid_t pid);
/* Refuse descriptors at the sender's end, or accept them; connections inherit it from the listening
 * socket. Kernels before Linux 6.16 cannot refuse: see hangup.h. */
void peer_pass_descriptors(int fd, bool pass);
/* How long a process has lived; the machine's uptime where that is not known. */
uint64_t peer_age_ns(pid_t pid);
/* -errno of pidfd_send_signal. */
int peer_kill(int pidfd, int signal);
