/* host.h: how much host memory there is for what does not fit the card: of the machine and of the
 * cgroup that the calling process is in, whichever is less. Reads /proc and /sys only; keeps
 * nothing. */
#pragma once

#include <stdint.h>

struct host_memory {
        uint64_t total_bytes;     /* of the machine or of our cgroup, whichever is smaller */
        uint64_t available_bytes; /* now, likewise; what the kernel can drop from caches counts */
};

/* 0 or -errno. */
int host_memory_read(struct host_memory *ret);

/* For the daemon: half of what there is, but never into the margin that keeps the machine's
 * out-of-memory killer away. before: what a daemon had promised to clients that may be back, or 0:
 * what they have moved out is in use by now, and is not to be taken off twice. Pure. */
uint64_t host_memory_budget(const struct host_memory *m, uint64_t before);

/* For a client about to take memory that was promised: what may be taken now. Goes into half of
 * that margin, because its cgroup may be smaller than the machine that made the promise. Pure. */
uint64_t host_memory_room(const struct host_memory *m);
