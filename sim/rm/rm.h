/* rm.h: the simulated kernel driver's resource manager (RM): the objects that a process has there,
 * and the controls that take channels off a card.
 *
 * libcuda.so.1 here exports ioctl(): RM's requests on the control descriptor are answered, all else
 * goes to the kernel. The simulator's own requests (queues.h) are plain calls of ioctl(), so that a
 * library in front sees them as it sees NVIDIA's. Thread-safe. */
#pragma once

#include "sim/rm/channel.h"
#include "sim/rm/rm_layout.h"

#define RM_VERSION_MAX 64

/* At cuInit: the control descriptor; which driver this is (SIMCUDA_DRIVER). 0, -EINVAL: malformed,
 * which has been said, -errno. */
int rm_setup(void);
const char *rm_version(void);
/* Not older than this release. */
bool rm_since(unsigned major, unsigned minor, unsigned patch);
/* In a child after fork: RM is out of reach. */
void rm_abandon(void);

/* Where the parts of an allocation lie in this driver's two forms; 0: there is no such field. */
struct rm_alloc_form {
        size_t bytes, params_size, status;
};
struct rm_alloc_form rm_alloc_form(bool is_long);

/* The control descriptor; -1: it is none any more. */
int rm_descriptor(void);
/* The argument of the last request that came in here, in this thread. */
const void *rm_seen(void);
/* What a request of type 'F' on the control descriptor comes to: 0, -errno. */
int rm_answer(unsigned escape, void *argument, size_t bytes);

/* What work runs on; NULL: there is no such channel. */
struct channel *rm_channel(uint32_t client, uint32_t channel);
