/* rm.h: the simulated kernel driver's resource manager (RM): the objects of a process there, and
 * the controls that take channels off a card.
 *
 * libcuda.so.1 exports ioctl() here: it answers RM's requests on the control descriptor, and passes
 * all others to the kernel. The simulator's own requests (queues.h) are plain calls of ioctl(), so
 * that a library in front sees them as it sees NVIDIA's. Thread-safe. */
#pragma once

#include "sim/rm/channel.h"
#include "sim/rm/rm_layout.h"

#define RM_VERSION_MAX 64

/* At cuInit: the control descriptor, and the driver's version (SIMCUDA_DRIVER). 0, -EINVAL:
 * malformed, which was printed, -errno. */
int rm_setup(void);
const char *rm_version(void);
/* Not older than this release. */
bool rm_since(unsigned major, unsigned minor, unsigned patch);
/* In a child after fork: RM is out of reach. */
void rm_abandon(void);

/* Where the fields of an allocation lie in the two forms of this driver; 0: there is no such field.
 */
struct rm_alloc_form {
        size_t bytes, params_size, status;
};
struct rm_alloc_form rm_alloc_form(bool is_long);

/* The control descriptor; -1: it was closed. */
int rm_descriptor(void);
/* The argument of this thread's last request that arrived here. */
const void *rm_seen(void);
/* Answers a request of type 'F' on the control descriptor: 0, -errno. */
int rm_answer(unsigned escape, void *argument, size_t bytes);

/* The channel of a handle; NULL: there is none. */
struct channel *rm_channel(uint32_t client, uint32_t channel);
