/* descriptors.c: owns the layout of SCM_RIGHTS. Must never make a system call, nor be a
 * cancellation point, because the preload library calls these functions. */
#include "base/descriptors.h"

#include <string.h>

#include "base/macros.h"

void descriptors_attach(struct msghdr *h, union descriptors *room, const int *fds, unsigned n)
{
        if (n == 0)
                return;
        memset(room, 0, sizeof(*room));
        room->header.cmsg_level = SOL_SOCKET;
        room->header.cmsg_type = SCM_RIGHTS;
        room->header.cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(&room->header), fds, n * sizeof(int));
        h->msg_control = room;
        h->msg_controllen = CMSG_SPACE(n * sizeof(int));
}

void descriptors_expect(struct msghdr *h, union descriptors *room)
{
        h->msg_control = room;
        h->msg_controllen = sizeof(*room);
}

unsigned descriptors_take(struct msghdr *h, unsigned most, int *ret_fds)
{
        unsigned n = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                n = MIN((unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)), most);
                memcpy(ret_fds, CMSG_DATA(c), n * sizeof(int));
        }
        return n;
}
