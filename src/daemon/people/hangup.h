/* hangup.h: the end of a connection, and descriptors that came uninvited.
 *
 * Any process that may write to a socket can attach descriptors. Closing one can take for ever, if
 * it is a TCP socket that lingers or a file of the sender's own file system. From Linux 6.16 on the
 * kernel refuses to send them (peer_pass_descriptors). Older kernels deliver them, and the last
 * process that closes one has to wait. So the daemon receives all descriptors of other users'
 * messages, and a process made for this purpose closes them by ending. Its end does not wait for a
 * socket that lingers, and nobody waits for that process. For the daemon's one thread. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/clock.h"

#define HANGUP_BRINGS_MAX 253 /* descriptors of one message: the kernel's limit */
/* The loop's time that a user is charged for the making of a closing process. */
#define HANGUP_NS (NSEC_PER_SEC / 100)

/* Room for the control data of a message: the sender's credentials, if asked for, and
 * descriptors. */
union hangup_room {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(HANGUP_BRINGS_MAX * sizeof(int))];
};

/* Call hangup_expect() before the recvmsg() of another user's message, and hangup_take() after it.
 * True: the message brought descriptors, and a process closes them. */
void hangup_expect(struct msghdr *h, union hangup_room *room);
bool hangup_take(struct msghdr *h);

/* Closes a connection. Reads what is unread first: otherwise the kernel would report a reset to the
 * other end before that end has read our last message. True: a process was made that closes it. */
bool hangup_close(int fd);

/* True if too many closing processes exist: take no new connection. */
bool hangup_is_busy(void);
/* Call it when a closing process has ended. */
void hangup_reaped(void);
