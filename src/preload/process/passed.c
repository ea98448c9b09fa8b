/* passed.c: owns descriptors of memory that was handed over to us, until an extent takes them. Must
 * never keep a descriptor for whose memory the limit has no room, nor call a cancellation point
 * such as close(). */
#include "preload/process/passed.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

void passed_add(struct passed *p, int fd)
{
        if (p->count == PASSED_MAX)
                (void)syscall(SYS_close, fd);
        else
                p->fds[p->count++] = fd;
}

int passed_take(struct passed *p)
{
        return p->count ? p->fds[--p->count] : -EBADF;
}

void passed_shed(struct passed *p, unsigned keep, struct passed *ret)
{
        ret->count = 0;
        while (p->count > keep)
                ret->fds[ret->count++] = p->fds[--p->count];
}

void passed_close(struct passed *p)
{
        while (p->count)
                (void)syscall(SYS_close, p->fds[--p->count]);
}
