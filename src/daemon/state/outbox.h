/* outbox.h: bytes that wait until the reader at the other end of a socket takes them. All zero: an
 * empty one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct outbox {
        char *bytes; /* NULL: nothing waits */
        size_t size, done;
};

/* False: the reader has left more than `most` bytes unread, or there is no memory. */
bool outbox_put(struct outbox *o, const char *bytes, size_t n, size_t most);
/* Sends what the socket takes now. 1: that was all; 0: there is more; or -errno. */
int outbox_flush(struct outbox *o, int fd);
