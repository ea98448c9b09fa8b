/* rm.h: the simulated kernel driver's resource manager (RM): the objects of a process, and the
 * controls that take channels off a card.
 *
 * Objects are known to the process that made them. The channels, clients and devices of all
 * processes are in the session's table (shared_rm.h). A control reaches the channels of any
 * process.
 *
 * The simulated libcuda.so.1 exports an ioctl() that answers RM requests on the control descriptor,
 * and passes all others to the kernel. The simulator's own requests (queues.h) are plain calls of
 * ioctl(), so that a preloaded library sees them as it sees NVIDIA's. Thread-safe. */
#pragma once

#include "sim/rm/channel.h"
#include "sim/rm/rm_layout.h"

#define RM_VERSION_MAX 64

/* Reads the driver's version (SIMCUDA_DRIVER). Returns 0, -EINVAL after a message. */
int rm_version_setup(void);
/* Opens the control descriptor of libcuda, at cuInit. Returns 0, -EINVAL after a message about a
 * malformed version, -errno. */
int rm_setup(void);
const char *rm_version(void);
/* True if the driver is not older than this release. */
bool rm_since(unsigned major, unsigned minor, unsigned patch);
/* Makes RM unreachable in a child after fork. */
void rm_abandon(void);

/* The size of an allocation request in one of its two forms, and the offsets of two fields; 0: the
 * form lacks the field. */
struct rm_alloc_form {
        size_t bytes, params_size, status;
};
struct rm_alloc_form rm_alloc_form(bool is_long);

/* Returns the control descriptor; -1: it was closed. */
int rm_descriptor(void);
/* Returns the argument of this thread's last request that arrived at RM. */
const void *rm_seen(void);
/* Answers a request of libcuda on its control descriptor. Returns 0, -errno. */
int rm_call(unsigned escape, void *argument, size_t bytes);

/* Where a request comes from. */
struct rm_caller {
        uint64_t
                file; /* the open control descriptor, which alone can use the clients it has made */
        uint32_t cards; /* mask of the session's cards whose nodes the process has open */
};
/* Answers a request of type 'F' on a control descriptor. Returns 0, -errno. */
int rm_answer(const struct rm_caller *from, unsigned escape, void *argument, size_t bytes);
/* Frees all clients that this descriptor has made. */
void rm_close(uint64_t file);

/* Returns the channel of a handle; NULL: there is none. */
struct channel *rm_channel(uint32_t client, uint32_t channel);
