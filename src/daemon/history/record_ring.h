/* record_ring.h: the memory that holds the last records of what happened, always on.
 *
 * The ring has a fixed size, about 4 MiB, and takes memory only as it fills. Children of the
 * process that makes it share it: a private daemon's worker finds what the worker before it has
 * written. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/people/peer.h"
#include "wire/wire_history.h"

struct ring;

/* Returns an empty ring; NULL: no memory. */
struct ring *ring_new(void);
void ring_free(struct ring *r); /* r may be NULL */

/* Ends the programs of an earlier worker, which may have crashed. Later children of this process
 * do not get the ring. */
void ring_take(struct ring *r, uint64_t now_ns);

/* Returns the number of a row for the program: the one that was free for longest;
 * HISTORY_NO_PROGRAM: none is free. */
uint16_t ring_enter(struct ring *r, const struct peer *peer, const char *name, uint64_t now_ns);
/* Returns the peer whose program has the row, to decide what a viewer may know. Its pid and its
 * descriptor may belong to another process by now. */
struct peer ring_peer(const struct ring *r, size_t program);
void ring_leave(struct ring *r, uint16_t program, uint64_t now_ns);

/* Keeps the record, in place of the oldest one if the ring is full. */
void ring_append(struct ring *r, const struct history_record *record);
/* Returns how many records were ever appended. */
uint64_t ring_count(const struct ring *r);

/* Copies the programs up to the last used row, and the records, the oldest first. The caller frees
 * the copy. NULL: no memory. */
struct ring_copy {
        size_t programs, records, bytes;
};
void *ring_copy(const struct ring *r, struct ring_copy *ret);
