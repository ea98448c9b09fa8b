/* message_room.c: owns the bound on the memory of a caller's message. Must never exceed it. */
#include "kubernetes/plugin/message_room.h"

#include <stdlib.h>

#define OVERHEAD 32u /* bytes that malloc adds to each piece */

static void *take_room(void *userdata, size_t n)
{
        struct room *r = userdata;

        if (r->left < OVERHEAD || n > r->left - OVERHEAD)
                return NULL;
        r->left -= n + OVERHEAD;
        return malloc(n);
}

static void give(void *userdata, void *piece)
{
        free(piece);
}

ProtobufCAllocator *room_begin(struct room *r)
{
        *r = (struct room){{take_room, give, r}, ROOM_BYTES};
        return &r->allocator;
}
