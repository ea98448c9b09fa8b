/* link.h: the connection to the daemon. Finds the daemon, starts a private one, sends and receives
 * packets. Never blocks for long. */
#pragma once

#include <stdbool.h>

#include "preload/process/passed.h"
#include "wire/wire.h"

/* Connect to the daemon's client socket; start a private daemon if that is allowed. 0; -ENOENT,
 * -ECONNREFUSED: no daemon, and none can be started; -EPERM, -EACCES: the directory is not trusted;
 * another -errno. where: the directory, for messages. *ret_fd: non-blocking, closed on exec. */
int link_connect(char where[static 128], int *ret_fd);
/* After a failed link_connect(), returns the system call that this process may not make; NULL: the
 * daemon is at fault. */
const char *link_refused(void);

/* Send a message with at most WIRE_PASS_MAX descriptors, which stay the caller's. 0; -EAGAIN: try
 * again later; -EPIPE and others: the connection is lost. */
int link_send(int fd, const struct wire_message *m, const int *fds, unsigned n_fds);
/* Receive a message. 1: it is valid in this direction, and the caller closes the descriptors in
 * *ret_came; 0: none is waiting; -EPIPE: connection closed; -EBADMSG, -EINVAL: not our protocol. */
int link_receive(int fd, enum wire_direction direction, struct wire_message *ret,
                 struct passed *ret_came);

/* Returns the environment for a new daemon: ours without LD_PRELOAD, because the daemon is no CUDA
 * program and may outlive this one. The caller frees the array. NULL: no memory. */
char **link_environment(void);
