/* filler.h: the process that puts memory into host pools and takes it out again.
 *
 * Both take a second for some GiB, and the daemon's loop must not stand still so long. It is a
 * process, not a thread: if the daemon's cgroup has no memory left, the kernel ends this process
 * and not the daemon. Memory is charged to the cgroup of the process that puts it there, so the
 * daemon's cgroup pays for it. The process carries out one order at a time. The daemon's loop owns
 * the filler and never waits for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

struct filler;

enum filler_order {
        FILLER_FILL,  /* put memory behind these bytes; none is put there if it fails */
        FILLER_PUNCH, /* take the memory behind these bytes away */
        FILLER_CLOSE, /* close the descriptor, which may give much memory back */
};

/* Called from the loop. result: 0 or -errno; -ENOMEM: there is no room for it, or the process has
 * died. next: after FILLER_PUNCH, the offset of the next memory after these bytes; UINT64_MAX:
 * there is none. */
typedef void (*filler_told)(void *userdata, int result, uint64_t next);

/* Makes a filler. 0 or -errno. */
int filler_new(sd_event *event, filler_told told, void *userdata, struct filler **ret);
void filler_free(struct filler *f); /* NULL is a no-op */

/* True while an order is carried out. */
bool filler_is_busy(const struct filler *f);
/* Gives an order, unless one is being carried out. The descriptor stays the caller's. 0: the
 * callback will get the result; or -errno: it will not. */
int filler_order(struct filler *f, enum filler_order order, int fd, uint64_t offset,
                 uint64_t bytes);
