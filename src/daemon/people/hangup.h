/* hangup.h: the end of a connection, and descriptors that came uninvited.
 *
 * Whoever may write to a socket can attach descriptors, and to close one can take for ever: a TCP
 * socket that lingers, a file of his own file system. Linux 6.16 refuses them at the sender's end
 * (peer_pass_descriptors). Before, they arrive, and whoever closes them last has to wait. So
 * strangers' messages are read with room for all that one can bring, and what came is left to a
 * process that is made for it and ends: who ends does not linger, and where it has to wait all the
 * same nobody waits with it. For the daemon's one thread. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/clock.h"

#define HANGUP_BRINGS_MAX 253 /* descriptors of one message: the kernel's bound */
/* What a process made for them costs a user of the loop's time. */
#define HANGUP_NS (NSEC_PER_SEC / 100)

/* Room for what a message brings: the sender's credentials, where they were asked for, and
 * descriptors. */
union hangup_room {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(HANGUP_BRINGS_MAX * sizeof(int))];
};

/* Before and after the recvmsg of a stranger's message. True: descriptors came; they are gone. */
void hangup_expect(struct msghdr *h, union hangup_room *room);
bool hangup_take(struct msghdr *h);

/* Close a connection. What is unread is read first: the kernel would report a reset to the other
 * end before it has read our last words. True: a process was made for it. */
bool hangup_close(int fd);

/* As many processes are closing as there may be: take no new connection. */
bool hangup_is_busy(void);
/* One of them has ended. */
void hangup_reaped(void);
