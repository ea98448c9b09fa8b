/* arena.h: the pinned host memory that holds evicted contents; private to the process.
 *
 * It consists of segments of transparent huge pages, touched by several threads, registered with
 * the driver once and kept. An extent's contents may be spread over several pieces. Only the
 * agent's thread takes room; any thread may give it back. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct arena_piece {
        char *host;
        uint64_t bytes;
};

/* Where an extent's contents are: pieces that add up to its size. */
struct arena_room {
        unsigned count;
        struct arena_piece *pieces;
};

/* segment_bytes: a multiple of 2 MiB. NULL: no memory. */
struct arena *arena_new(uint64_t segment_bytes);

/* Room for so many bytes (a multiple of 2 MiB), in new segments where the old ones are full. A
 * context of the GPU must be current. 0, or -ENOMEM: the host has none, and nothing was taken. */
int arena_take(struct arena *a, uint64_t bytes, struct arena_room *ret);
/* Give room back and empty *room. The memory stays registered for the next eviction. */
void arena_give(struct arena *a, struct arena_room *room);

/* Give whole free segments back to the system until at most so many bytes are held. */
void arena_trim(struct arena *a, uint64_t bytes);
uint64_t arena_bytes(const struct arena *a); /* bytes held, used or not; any thread */
