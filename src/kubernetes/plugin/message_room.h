/* message_room.h: memory for one message of a caller. Unpacked, a message can take a hundred times
 * the bytes that came, as with millions of empty members. */
#pragma once

#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

#define ROOM_BYTES (12u << 20)

/* Must stay where it is until what was unpacked with it has been freed. */
struct room {
        ProtobufCAllocator allocator;
        size_t left;
};

/* Returns an allocator of at most ROOM_BYTES, for unpacking one message and for freeing it. */
ProtobufCAllocator *room_begin(struct room *r);
