/* link.h: the connection to the daemon: find it, start a private one, send and receive packets.
 * Never blocks for long. */
#pragma once

#include <stdbool.h>

#include "preload/process/passed.h"
#include "wire/wire.h"

/* Connect to the daemon's client socket; start a private daemon where that is allowed. The
 * descriptor is non-blocking and closed on exec. 0, or -ENOENT, -ECONNREFUSED: no daemon, and none
 * can be started; -ENAMETOOLONG; -EPERM, -EACCES: the directory is not trusted; another -errno.
 * where: the directory, for messages. */
int link_connect(char where[static 128], int *ret_fd);

/* At most WIRE_PASS_MAX descriptors go along and stay the caller's. 0; -EAGAIN; -EPIPE and others:
 * the connection is lost. */
int link_send(int fd, const struct wire_message *m, const int *fds, unsigned n_fds);
/* 1: a message that is valid in this direction; its descriptors in *ret_came are the caller's to
 * close; 0: none waiting; -EPIPE: closed; -EBADMSG, -EINVAL: not our protocol. */
int link_receive(int fd, enum wire_direction direction, struct wire_message *ret,
                 struct passed *ret_came);

/* The environment for a daemon that is started: without the preload variables, because it is no
 * CUDA program and may outlive this one. The caller frees the array. NULL: no memory. */
char **link_environment(void);
