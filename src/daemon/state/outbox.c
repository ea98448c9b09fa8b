/* outbox.c: owns what is still to be sent. Must never wait for the reader. */
#include "daemon/state/outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool outbox_put(struct outbox *o, const char *bytes, size_t n, size_t most)
{
        char *bigger;

        if (o->size - o->done + n > most)
                return false;
        if (o->done > o->size / 2) {
                o->size -= o->done;
                memmove(o->bytes, o->bytes + o->done, o->size);
                o->done = 0;
        }
        bigger = realloc(o->bytes, o->size + n + 1);
        if (!bigger)
                return false;
        o->bytes = bigger;
        memcpy(o->bytes + o->size, bytes, n);
        o->size += n;
        return true;
}

int outbox_flush(struct outbox *o, int fd)
{
        while (o->done < o->size) {
                const ssize_t n = send(fd, o->bytes + o->done, o->size - o->done,
                                       MSG_DONTWAIT | MSG_NOSIGNAL);

                if (n < 0)
                        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
                o->done += (size_t)n;
        }
        free(o->bytes);
        *o = (struct outbox){0};
        return 1;
}
