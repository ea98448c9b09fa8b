/* tally.h: what clients have used so far, ended ones too: per GPU, and per class and GPU.
 *
 * Figures of living clients are added when somebody asks, when a client ends, and before its class
 * changes. So the totals never fall while the daemon runs. The totals of a class end with the
 * class. For the daemon's one thread. */
#pragma once

#include <stdint.h>

#include "daemon/metrics/exposition.h"
#include "daemon/state/server.h"

struct client;

struct tally_totals {
        uint64_t lease_ns, waited_ns, billed_ns, handoffs, moved_out, moved_in;
};

struct tally_gpu {
        uint8_t uuid[16]; /* the card whose figures these are */
        struct tally_totals totals;
        uint64_t refused;
        uint64_t handoffs_timed; /* number of hand-offs in the histogram */
        struct histogram handoff, wait, drain, eviction, restore;
};

struct tally_class {
        uint32_t number; /* 0: clients in no class */
        struct tally_totals gpus[SCHED_GPUS_MAX];
};

struct tally {
        uint64_t began_unix_ns; /* when the daemon started */
        struct tally_gpu gpus[SCHED_GPUS_MAX];
        struct tally_class *classes;
        unsigned n_classes;
};

/* Returns NULL if there is no memory. */
struct tally *tally_new(void);
void tally_free(struct tally *t); /* NULL is a no-op */

/* Returns the tally of the card that has this number now; another card before it had its own. */
struct tally_gpu *tally_of_gpu(struct server *s, unsigned gpu);

/* Adds what this client, or all clients, have used since the last call. */
void tally_settle(struct client *c);
void tally_settle_all(struct server *s);
/* Forgets the classes that are no longer configured. Call tally_settle_all() before they change. */
void tally_keep_classes(struct server *s);

/* ---- what happens to a client; none of these changes anything but the tally ---- */

/* Call it for each USAGE: what the process moved before the first one of a connection does not
 * count. */
void tally_usage(struct client *c, unsigned gpu, uint64_t moved_out, uint64_t moved_in);
void tally_granted(struct client *c);
/* Call it before the scheduler learns that the client has drained. */
void tally_drained(struct client *c, uint64_t lease);
void tally_refused(struct client *c, unsigned ordinal);
/* Call it when the client has ended. */
void tally_ended(struct client *c);
