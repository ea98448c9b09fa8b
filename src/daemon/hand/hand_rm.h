/* hand_rm.h: a client of the kernel driver's resource manager (RM) with which the hand takes other
 * processes' channels off the GPUs.
 *
 * The objects are made with plain requests on /dev/nvidiactl, without libcuda, in about a
 * millisecond. RM lets a process name a GPU only while the process has the GPU's device file open.
 * A call of one client waits for the one before it, so each thread has its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/rm_abi.h"

#define HAND_GPUS 16

struct hand_rm {
        int ctl; /* /dev/nvidiactl */
        uint32_t client;
        uint32_t subdevices[HAND_GPUS]; /* by device instance; 0: no such GPU */
};

/* Opens the device files of all GPUs, which stay open until the process ends. 0; -EPROTO: this
 * release does not know the driver; or -errno: /dev/nvidiactl cannot be opened. */
int hand_rm_setup(void);
/* Makes a client with a subdevice of each GPU. 0, -errno, or -EIO: RM refuses. */
int hand_rm_new(struct hand_rm *ret);
/* The requests that the functions below make, for a filter of system calls. */
extern const unsigned long hand_rm_requests[2];

/* Names of channels on one GPU, for one call of RM's control. */
struct hand_call {
        uint32_t device; /* device instance */
        uint32_t count;
        uint32_t clients[RM_DISABLE_CHANNELS_MAX], channels[RM_DISABLE_CHANNELS_MAX];
};

/* Disables or enables the channels. Returns RM's status; 0: when the call returns, none of the
 * channels runs, or nothing of the hand's holds them. RM_NO_CHANNEL: one does not exist, and the
 * call counts for those before it. */
uint32_t hand_rm_switch(const struct hand_rm *r, const struct hand_call *c, bool disable);
/* True if the foreign client has an object with this handle. */
bool hand_rm_sees(const struct hand_rm *r, uint32_t client, uint32_t object);
/* True if the driver answers hand_rm_sees() rightly, for two objects of `other`: proofs rest on it.
 */
bool hand_rm_is_right(const struct hand_rm *r, const struct hand_rm *other);
