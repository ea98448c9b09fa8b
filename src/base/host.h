/* host.h: how much host memory there is for evicted memory. The machine and the caller's cgroup
 * each have a figure; the smaller one counts. Reads /proc and /sys only; caches nothing. */
#pragma once

#include <stdint.h>

#define HOST_TAKERS      32u
#define HOST_SHARE_LEAST (UINT64_C(2) << 20) /* a huge page */

struct host_memory {
        uint64_t total_bytes;     /* the machine's memory or our cgroup's limit, the smaller */
        uint64_t available_bytes; /* unused memory of the machine or of our cgroup, the smaller;
                                     caches that the kernel can drop count as unused */
};

/* Reads the figures. 0 or -errno. */
int host_memory_read(struct host_memory *ret);

/* Returns how much memory the daemon may promise to clients: at most half of the total, and not the
 * margin that keeps the machine's out-of-memory killer away. before: bytes that an earlier daemon
 * promised to clients that may come back; 0: none. These clients already use their memory, so it is
 * missing from the available bytes and must not be subtracted once more. Pure. */
uint64_t host_memory_budget(const struct host_memory *m, uint64_t before);

/* Returns how much memory a client may take now. A client asks this although the daemon has
 * promised memory, because the client's cgroup may be smaller than the daemon's. The margin that
 * is kept free is half of that of host_memory_budget(). Pure. */
uint64_t host_memory_room(const struct host_memory *m);

/* Returns how much a client may take before it reads the figures anew; 0: there is no room. Any
 * number of clients may read the same figures at the same moment, and none knows of the others. If
 * HOST_TAKERS of them take a share each, that fits into the margin. Pure. */
uint64_t host_memory_share(const struct host_memory *m);
