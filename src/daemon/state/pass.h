/* pass.h: memory that one client evicts and the next one restores into, as descriptors.
 *
 * A USAGE that reports memory as released may bring descriptors that still hold it. Where the very
 * bytes that it reports raise the limit of another client of the same tenant, the descriptors go
 * along with that LIMIT; otherwise they are closed before anybody is told that the bytes are free.
 * The daemon keeps none beyond the event. Nothing in the ledger depends on any of this. */
#pragma once

#include <stdint.h>

#include "base/descriptors.h"
#include "wire/wire.h"

_Static_assert(WIRE_PASS_MAX == DESCRIPTORS_MAX, "as many as one message brings");

struct client;
struct server;

struct pass {
        struct client *from, *to; /* NULL: nobody */
        unsigned gpu;
        uint64_t bytes; /* bytes behind each descriptor, as `from` reports */
        unsigned n;
        int fds[WIRE_PASS_MAX];
};

/* The event about to be handled came from c for this GPU, with s->pass's descriptors. */
void pass_begin(struct server *s, struct client *from, unsigned gpu, uint64_t bytes);
/* The event's actions are known: choose who gets the descriptors, and close the others. */
void pass_match(struct server *s);
void pass_end(struct server *s);
