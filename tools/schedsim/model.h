/* model.h: a card, a bus and programs, as far as the scheduler can tell them from real ones.
 *
 * A discrete-event simulation around the very scheduler of the daemon (src/sched). Copies take
 * bytes over the rate of the bus, each direction one after the other; programs that compute at the
 * same time share the GPU without loss; messages take no time. So it says what follows from the
 * scheduler's decisions, and nothing about the speed of a GPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "workload.h"

struct model_client {
        const struct job *job;
        uint64_t arrived_ns, ended_ns; /* ended_ns 0: it has not */
        bool refused;                  /* its context or its memory found no place */
        uint64_t gpu_ns;               /* GPU phases done, as they last alone */
        uint64_t run_ns;               /* with a lease and not idle, as the scheduler counts it */
        uint64_t in_bytes, out_bytes, handoffs;
        uint64_t *waits; /* each time it had work and no lease, in nanoseconds */
        unsigned n_waits, size_waits;
};

struct model_result {
        uint64_t end_ns, busy_ns; /* busy_ns: somebody computed */
        uint64_t handoffs, in_bytes, out_bytes, events;
        struct model_client *clients;
        unsigned n_clients;
        const char *broken; /* an invariant of the scheduler, where it was asked for */
};

/* check: every invariant after every event, which is slow. 0, -ENOMEM. */
int model_run(const struct workload *w, bool check, struct model_result *ret);
void model_free(struct model_result *r);

/* ---- report.c ---- */
/* The share-th of a client's waits in a thousand; sorts them. 0 where there are none. */
uint64_t model_wait(struct model_client *c, unsigned permille);
void report_jobs(FILE *f, const struct workload *w, struct model_result *r);
void report_clients(FILE *f, struct model_result *r); /* a table, one line a client */
