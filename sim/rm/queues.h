/* queues.h: libcuda's requests to the resource manager: it makes and frees the objects of the
 * process, of a card and of each context. The requests are like NVIDIA's. A preloaded library may
 * see, delay or refuse them, so the caller must hold no lock of the simulator. */
#pragma once

#include "sim/rm/channel.h"

#define QUEUES_GROUPS 3

/* The groups of channels of one context. All zero: the context has none. */
struct queues {
        uint32_t client, device, group[QUEUES_GROUPS];
        unsigned groups;
        struct channels_of channels;
};

/* Makes the client object of the process, at cuInit. Returns 0, -errno. */
int queues_setup(void);
/* Makes the groups of a context. A green context gets channels for kernels only. Its copies run on
 * the channels of the primary context. */
CUresult queues_new(unsigned device, bool green, struct queues *ret);
/* Frees the groups with their channels, and sets *q to zero. */
void queues_free(struct queues *q);
