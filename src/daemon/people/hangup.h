/* hangup.h: the end of a connection, and descriptors that came uninvited.
 *
 * Any process that may write to a socket can attach descriptors, and closing one can take for ever:
 * a TCP socket that lingers, a file of the sender's own file system. From Linux 6.16 on the kernel
 * refuses them at the sender's end (peer_pass_descriptors). Before, they arrive, and the last
 * process that closes them has to wait. So other users' messages are read with room for all
 * descriptors, and a process made for that closes them by ending: its end does not wait for a
 * socket that lingers, and if it waits for anything else, nobody waits with it. For the daemon's
 * one thread. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/clock.h"

#define HANGUP_BRINGS_MAX 253 /* descriptors of one message: the kernel's limit */
/* What making a closing process costs its user of the loop's time. */
#define HANGUP_NS (NSEC_PER_SEC / 100)

/* Room for the control data of a message: the sender's credentials, if asked for, and
 * descriptors. */
union hangup_room {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(HANGUP_BRINGS_MAX * sizeof(int))];
};

/* Call these before and after the recvmsg of another user's message. True: the message brought
 * descriptors; a process closes them. */
void hangup_expect(struct msghdr *h, union hangup_room *room);
bool hangup_take(struct msghdr *h);

/* Closes a connection. Reads what is unread first: otherwise the kernel would report a reset to the
 * other end before that end has read our last message. True: a process was made for it. */
bool hangup_close(int fd);

/* True if too many closing processes exist: take no new connection. */
bool hangup_is_busy(void);
/* Call it when a closing process has ended. */
void hangup_reaped(void);
