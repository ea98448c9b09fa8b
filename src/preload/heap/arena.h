/* arena.h: the pinned host memory that holds evicted contents; private to the process.
 *
 * The arena consists of segments. A segment is memory that the daemon lends (lent.h), or else
 * transparent huge pages. Several threads make segments: each thread touches its memory and
 * registers it with the driver. Segments are kept. The contents of one extent may lie in several
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

/* Take room for this many bytes, a multiple of 2 MiB. If needed, this waits until new segments are
 * made. A context of the GPU must be current. Returns 0; -EAGAIN: the daemon is about to lend
 * memory; or -ENOMEM: host memory is short. On an error no room is taken. */
int arena_take(struct arena *a, uint64_t bytes, struct arena_room *ret);
/* Announces that `bytes` are about to be taken, and `ahead` more perhaps later. Missing memory is
 * made: all of `bytes` if the host has room, and `ahead`, too, if half of the host's memory stays
 * free. */
void arena_expect(struct arena *a, uint64_t bytes, uint64_t ahead);
/* Begin to make some of the missing bytes ahead of an eviction, unless makers do so already. A
 * context of the GPU must be current. False: none are missing, half of the host's memory would not
 * stay free, or the driver does not pin them. */
bool arena_add(struct arena *a, uint64_t missing);
/* Wait until no thread makes memory any more, because the context or the process ends. Any thread
 * may call it. */
void arena_rest(struct arena *a);
/* Give room back and empty *room. The memory stays registered for the next eviction. */
void arena_give(struct arena *a, struct arena_room *room);

/* True if the host has this many bytes free. */
bool arena_host_has(uint64_t bytes);
/* Give whole free segments back to the system until the arena holds at most this many bytes. */
void arena_trim(struct arena *a, uint64_t bytes);
/* Return the bytes that the daemon lends to the arena, and all bytes of the arena, used or not. Any
 * thread may call them. */
uint64_t arena_lent(const struct arena *a);
uint64_t arena_bytes(const struct arena *a);
