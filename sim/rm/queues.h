/* queues.h: libcuda's side of the resource manager: the objects that it makes there for the
 * process, for a card and for each context, and frees again. Its requests are like NVIDIA's; a
 * library in front may see, delay or refuse them, so no lock of the simulator may be held. */
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
/* A green context computes on channels of its own, and copies on the primary one's. */
CUresult queues_new(unsigned device, bool green, struct queues *ret);
/* Frees the groups with their channels. Zero afterwards. */
void queues_free(struct queues *q);
