/* passed.h: physical memory on its way between two processes of one user, as descriptors.
 *
 * The driver clears memory that is given back to it, with the copy engine that restores need
 * (docs/measurements/README.md). Memory that goes straight from the one who evicts to the one who
 * restores is never given back: the restore overwrites all of it. It goes one way once: the driver
 * does not export what was imported, and while a descriptor of memory is open NVML names nobody
 * who holds it, so none is kept beyond the import. Books only, no driver call; the
 * caller holds core_lock but for passed_close(). */
#pragma once

#include <stdint.h>

#define PASSED_MAX 64u

struct passed {
        unsigned count;
        int fds[PASSED_MAX]; /* descriptors, each of one whole extent */
};

/* Takes the descriptor over, or closes it if there is no room for it. */
void passed_add(struct passed *p, int fd);
/* A descriptor for the caller to import and close, or -EBADF: none is left. */
int passed_take(struct passed *p);
/* Move what is held beyond `keep` into *ret, for passed_close() without the lock: closing the last
 * descriptor gives the memory back to the driver, which is slow. */
void passed_shed(struct passed *p, unsigned keep, struct passed *ret);
void passed_close(struct passed *p);
