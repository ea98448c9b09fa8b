/* host.h: how much host memory there is for evicted memory. Of the machine's and the caller's
 * cgroup's figures the smaller one counts. Reads /proc and /sys only; keeps nothing. */
#pragma once

#include <stdint.h>

struct host_memory {
        uint64_t total_bytes;     /* memory of the machine or of our cgroup, the smaller */
        uint64_t available_bytes; /* unused memory of the two, the smaller; memory that the kernel
                                     can drop from caches counts as unused */
};

/* 0 or -errno. */
int host_memory_read(struct host_memory *ret);

/* Returns how much memory the daemon may promise: at most half, and without the margin that keeps
 * the machine's out-of-memory killer away. before: what an earlier daemon had promised to clients
 * that may come back, or 0. Their evicted memory is in use already and must not be subtracted
 * twice. Pure. */
uint64_t host_memory_budget(const struct host_memory *m, uint64_t before);

/* Returns how much of its promised memory a client may take now. It may use half of the margin of
 * host_memory_budget(), because its cgroup may be smaller than the daemon's. Pure. */
uint64_t host_memory_room(const struct host_memory *m);
