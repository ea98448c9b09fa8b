/* queues.h: libcuda's side of the resource manager: what it makes there for the process, for a card
 * and for each context, and frees again. By requests like NVIDIA's, which a library in front may
 * see, delay or refuse: none of this may be called with a lock of the simulator's held. */
#pragma once

#include "sim/rm/channel.h"

#define QUEUES_GROUPS 3

/* The groups of channels of one context. All zero: it has none. */
struct queues {
        uint32_t client, device, group[QUEUES_GROUPS];
        unsigned groups;
        struct channels_of channels;
};

/* At cuInit. -errno. */
int queues_setup(void);
/* A green context computes on channels of its own, and copies by the primary one's. */
CUresult queues_new(unsigned device, bool green, struct queues *ret);
/* The channels go with their groups. Zero afterwards. */
void queues_free(struct queues *q);
