/* workload.h: the contents of a workload file: a card, its settings, and jobs made of phases.
 *
 * A line has a word and its value; '#' begins a comment. Lines before the first `job` describe the
 * card and the scheduler, lines after it the job. docs/scheduling.md has the list of words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sched/sched.h"

#define WORKLOAD_NAME_MAX    32
#define WORKLOAD_CLIENTS_MAX 100000U

enum phase_kind { PHASE_GPU, PHASE_THINK, PHASE_MEMORY };

/* How a time is distributed. */
enum distribution {
        FIXED,
        EXPONENTIAL, /* with the mean ns */
        LOGNORMAL,   /* 98 % lie between ns and high_ns; the others are these two */
        PARETO,      /* bounded by ns and high_ns, with the exponent 1 */
};

struct duration {
        enum distribution distribution;
        uint64_t ns, high_ns;
};

struct phase {
        enum phase_kind kind;
        struct duration time;   /* GPU, THINK: the time that the phase takes alone */
        uint64_t bytes;         /* MEMORY: the bytes that the program holds from here on */
        uint64_t not_before_ns; /* THINK: it ends no earlier than this */
};

/* A kind of program, of which there are `count` equal ones. */
struct job {
        char name[WORKLOAD_NAME_MAX];
        unsigned line, count, repeat; /* repeat: of the phases; 0: until the end */
        uint64_t at_ns;               /* arrival of the first */
        struct duration every;        /* from one arrival to the next; 0: all at once */
        uint64_t memory;              /* bytes at the start */
        uint64_t kernel_ns;
        unsigned busy_permille;     /* the part of the GPU that it uses while it runs alone */
        uint32_t uid, class_number; /* class_number: 0, or the job's own class with this share */
        struct sched_share share;
        int priority;
        struct phase *phases;
        unsigned n_phases;
};

struct workload {
        uint64_t card, in_rate, out_rate; /* rates: bytes/s of the bus, both ways at once */
        uint64_t extent, context;         /* bytes moved at a time; unevictable bytes of a client */
        uint64_t fault_rate;              /* bytes/s that page faults bring in, for the baselines */
        uint64_t until_ns, seed;
        struct sched_config config;
        struct job *jobs;
        unsigned n_jobs, clients;
};

/* Returns 0, -ENOMEM, or -EINVAL with a sentence in error that names the line. */
int workload_read(FILE *f, struct workload *ret, char *error, size_t size);
/* The same, for a file that need not have a job, because trace_read() adds jobs. */
int workload_read_card(FILE *f, struct workload *ret, char *error, size_t size);
/* Adds a job for each name in a trace. On an error the workload is left to workload_free(). */
int trace_read(FILE *f, struct workload *w, char *error, size_t size);
void workload_free(struct workload *w);
