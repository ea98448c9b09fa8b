/* host.h: how much host memory may be promised to clients. Reads /proc and /sys only. */
#pragma once

#include <stdint.h>

struct host_memory {
        uint64_t total_bytes;     /* of the machine or of our cgroup, whichever is smaller */
        uint64_t available_bytes; /* now, likewise */
};

/* 0 or -errno. */
int host_memory_read(struct host_memory *ret);

/* Half of what there is, but never into the margin that keeps the machine's out-of-memory killer
 * away. Pure. */
uint64_t host_memory_budget(const struct host_memory *m);
