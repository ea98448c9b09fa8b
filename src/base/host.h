/* host.h: how much host memory there is for evicted memory: of the machine or of the cgroup of the
 * calling process, whichever is less. Reads /proc and /sys only; keeps nothing. */
#pragma once

#include <stdint.h>

struct host_memory {
        uint64_t total_bytes;     /* of the machine or of our cgroup, whichever is smaller */
        uint64_t available_bytes; /* now, likewise; memory that the kernel can drop from caches
                                     counts */
};

/* 0 or -errno. */
int host_memory_read(struct host_memory *ret);

/* For the daemon: half of the memory, but without the margin that keeps the machine's out-of-memory
 * killer away. before: what an earlier daemon had promised to clients that may come back, or 0.
 * Their evicted memory is in use already and must not be subtracted twice. Pure. */
uint64_t host_memory_budget(const struct host_memory *m, uint64_t before);

/* For a client that is about to take promised memory: how much it may take now. May use half of
 * that margin, because its cgroup may be smaller than the machine that made the promise. Pure. */
uint64_t host_memory_room(const struct host_memory *m);
