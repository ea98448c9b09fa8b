/* pass.h: memory that one client evicts and the next one restores into, handed over as descriptors.
 *
 * A USAGE that reports memory as released may bring descriptors that still hold it. If these bytes
 * raise the limit of another client of the same tenant, the descriptors go along with that LIMIT;
 * otherwise they are closed before any client is told that the bytes are free. The daemon keeps no
 * descriptor beyond the event. The ledger does not depend on any of this. */
#pragma once

#include <stdint.h>

#include "base/descriptors.h"
#include "wire/wire.h"

_Static_assert(WIRE_PASS_MAX == DESCRIPTORS_MAX, "as many as one message brings");

struct client;
struct server;

struct pass {
        struct client *from, *to; /* NULL: no client */
        unsigned gpu;
        uint64_t bytes; /* bytes behind each descriptor, as `from` reports */
        unsigned n;
        int fds[WIRE_PASS_MAX];
};

/* Call it before handling an event that this client caused for this GPU, with descriptors in
 * s->pass. */
void pass_begin(struct server *s, struct client *from, unsigned gpu, uint64_t bytes);
/* Call it when the event's actions are known: chooses the client that gets the descriptors, and
 * closes the others. */
void pass_match(struct server *s);
void pass_end(struct server *s);
