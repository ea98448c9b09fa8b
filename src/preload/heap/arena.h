/* arena.h: the pinned host memory that holds evicted contents; private to the process.
 *
 * The arena consists of segments of transparent huge pages. Several threads touch a new segment;
 * then it is registered with the driver and kept. The contents of one extent may lie in several
 * pieces. Only the agent's thread takes room, adds to the arena and trims it; any thread may give
 * room back. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct arena_piece {
        char *host;
        uint64_t bytes;
};

/* The pieces of the arena that hold the contents of one extent. */
struct arena_room {
        unsigned count;
        struct arena_piece *pieces;
};

/* segment_bytes: a multiple of 2 MiB. NULL: no memory. */
struct arena *arena_new(uint64_t segment_bytes);

/* Take room for this many bytes, a multiple of 2 MiB. New segments are added if needed. A context
 * of the GPU must be current. Returns 0; or -ENOMEM if host memory is short, and takes no room. */
int arena_take(struct arena *a, uint64_t bytes, struct arena_room *ret);
/* Say how many bytes are about to be taken: memory for the next segment is then touched while the
 * driver pins the last one. */
void arena_expect(struct arena *a, uint64_t bytes);
/* Touch and pin some of the missing bytes ahead of an eviction, as arena_take() would. False: none
 * are missing, they are more than three quarters of what the host has free, or the driver does not
 * pin them. */
bool arena_add(struct arena *a, uint64_t missing);
/* Give room back and empty *room. The memory stays registered for the next eviction. */
void arena_give(struct arena *a, struct arena_room *room);

/* Give whole free segments back to the system until the arena holds at most this many bytes. */
void arena_trim(struct arena *a, uint64_t bytes);
uint64_t
arena_bytes(const struct arena *a); /* bytes that the arena holds, used or not; any thread */
