/* passed.h: physical memory on its way between two processes of one user, as descriptors.
 *
 * The driver clears memory that is given back. It does so with the copy engine, which restores
 * need, too (docs/measurements/README.md). Handed-over memory is not given back; the restore
 * overwrites it. It is handed over only once: the driver exports no imported memory. No descriptor
 * is kept after the import: while one is open, NVML names no process for that memory. No driver
 * call is made; the caller holds core_lock, except for passed_close(). */
#pragma once

#include <stdint.h>

#define PASSED_MAX 64u

struct passed {
        unsigned count;
        int fds[PASSED_MAX]; /* descriptors, each for the memory of one whole extent */
};

/* Take over a descriptor, or close it if the array is full. */
void passed_add(struct passed *p, int fd);
/* Returns a descriptor, which the caller imports and closes; -EBADF: none is left. */
int passed_take(struct passed *p);
/* Move all but `keep` descriptors into *ret. The caller closes them without the lock, because
 * closing the last descriptor of memory gives it back to the driver, which is slow. */
void passed_shed(struct passed *p, unsigned keep, struct passed *ret);
void passed_close(struct passed *p);
