/* peer.h: who is at the other end of a connection, as the kernel knows it. Linux only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer {
        pid_t pid; /* 0: in a pid namespace that we cannot see */
        uid_t uid;
        gid_t gid;
        int pidfd;           /* -EBADF where the process cannot be seen; the holder closes it */
        ino_t pid_namespace; /* 0: unknown */
        bool trusted; /* may give orders: the daemon's own user, or root outside a container */
};

/* All of it is of the process that connected, at this moment: once a connection, when it is
 * accepted. Later its number may be another's. 0; -ESRCH: the process has ended already; -EMFILE,
 * -ENFILE: no descriptor is left, or -errno. */
int peer_identify(int fd, struct peer *ret);
/* The process of this pidfd has ended. False for -EBADF: unknown. */
bool peer_ended(int pidfd);
/* One user, on one side of every container's wall: as far as the kernel can tell, one may look into
 * the other's memory anyway. */
bool peer_same_tenant(const struct peer *a, const struct peer *b);
/* Whose programs one may know by name: his own, and all of them if he may give orders. */
bool peer_may_know(const struct peer *viewer, const struct peer *of);
/* Whose programs one may pause: the same; but root of a container only those in it, since the roots
 * of all containers have one uid. */
bool peer_may_pause(const struct peer *by, const struct peer *whom);
/* In our own pid namespace, not in one below it: container roots are uid 0 for the kernel, too. */
bool peer_outside_container(pid_t pid);
/* Refuse descriptors at the sender's end, or no longer; connections are as the socket that listens.
 * Where the kernel cannot (before Linux 6.16) they come: see hangup.h. */
void peer_pass_descriptors(int fd, bool pass);
/* How long a process has lived; how long the machine is up where that is not known. */
uint64_t peer_age_ns(pid_t pid);
/* -errno of pidfd_send_signal. */
int peer_kill(int pidfd, int signal);
