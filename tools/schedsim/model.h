/* model.h: a simulated card, a bus and programs, which the scheduler cannot tell from real ones.
 *
 * A discrete-event simulation around the daemon's own scheduler (src/sched). A copy takes its bytes
 * divided by the rate of the bus, one copy at a time in each direction. Programs that compute at
 * the same time share the GPU without loss. Messages take no time. So it shows the effects of the
 * scheduler's decisions, and nothing about the speed of a GPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "workload.h"

#define NOT_YET UINT64_MAX

/* One GPU phase: when the program wanted to compute, first computed, and was done. */
struct burst {
        uint64_t wanted_ns, begun_ns, ended_ns; /* NOT_YET: not before the end of the run */
        uint64_t alone_ns;                      /* how long it takes alone */
};

struct model_client {
        const struct job *job;
        uint64_t arrived_ns, ended_ns; /* ended_ns 0: it has not ended */
        bool refused;                  /* there was no room for its context or its memory */
        uint64_t gpu_ns;  /* GPU phases that are done, each as long as it takes alone */
        uint64_t paid_ns; /* the time that it was billed for, hand-offs included */
        uint64_t in_bytes, out_bytes, handoffs;
        uint64_t *waits; /* in ns: each time that it had work and no lease */
        unsigned n_waits, size_waits;
        struct burst *bursts;
        unsigned n_bursts, size_bursts;
};

struct model_result {
        const char *system;       /* what decided, in words */
        uint64_t end_ns, busy_ns; /* busy_ns: time in which a program computed */
        uint64_t lost_ns;         /* time in which a program waited and none computed */
        uint64_t wasted_ns;       /* the part of it in which nothing moved */
        uint64_t handoffs, in_bytes, out_bytes, events;
        struct model_client *clients;
        unsigned n_clients;
        const char *broken; /* the broken invariant of the scheduler, or NULL */
};

/* Runs the workload. check: checks every invariant after every event, which is slow. Returns 0 or
 * -ENOMEM. */
int model_run(const struct workload *w, bool check, struct model_result *ret);
void model_free(struct model_result *r);

/* ---- baseline.c ---- */
enum baseline { BASELINE_FCFS, BASELINE_TURNS };

/* Runs the workload without the scheduler, by a simple rule. Returns 0 or -ENOMEM. */
int baseline_run(const struct workload *w, enum baseline rule, struct model_result *ret);

/* ---- result.c: what happens to a client; out of memory ends the program ---- */
void result_wanted(struct model_client *c, uint64_t now_ns, uint64_t alone_ns);
void result_begun(struct model_client *c, uint64_t now_ns); /* counts once in a burst */
void result_ended(struct model_client *c, uint64_t now_ns);
void result_waited(struct model_client *c, uint64_t ns);

/* ---- fair.c ---- */
/* Returns the largest shortfall of a user, 0 to 1, and in *ret_uid whose it is. Or -ENOMEM. */
int fair_error(const struct workload *w, const struct model_result *r, double *ret_error,
               uint32_t *ret_uid);

/* ---- report.c ---- */
/* Returns a quantile of a client's waits: so many thousandths of them are at most this long. 0: it
 * never waited. Sorts the waits. */
uint64_t model_wait(struct model_client *c, unsigned permille);
void report_jobs(FILE *f, const struct workload *w, struct model_result *r);
void report_clients(FILE *f, struct model_result *r);      /* prints a table, one line a client */
void report_bursts(FILE *f, const struct model_result *r); /* prints a line of CSV for each burst */
