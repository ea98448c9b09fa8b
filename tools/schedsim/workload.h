/* workload.h: what a workload file says: a card, its settings, and jobs made of phases.
 *
 * One thing a line: a word and its value; '#' begins a comment. Before the first `job` the card and
 * the scheduler are described, after it the job. docs/scheduler.md has the list of words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sched/sched.h"

#define WORKLOAD_NAME_MAX    32
#define WORKLOAD_CLIENTS_MAX 100000U

enum phase_kind { PHASE_GPU, PHASE_THINK, PHASE_MEMORY };

struct phase {
        enum phase_kind kind;
        uint64_t ns;    /* GPU, THINK: how long it takes alone */
        uint64_t bytes; /* MEMORY: what it holds from here on */
        bool random;    /* GPU, THINK: exponential with that mean */
};

/* A kind of program: `count` of them, all alike. */
struct job {
        char name[WORKLOAD_NAME_MAX];
        unsigned line, count, repeat; /* repeat: of the phases; 0: until the end */
        uint64_t at_ns, every_ns;     /* the first one's arrival; from one to the next */
        bool every_random;
        uint64_t memory; /* at the start */
        uint64_t kernel_ns;
        unsigned busy_permille; /* how much of the GPU it uses while it runs alone */
        uint32_t uid;
        int priority;
        struct phase *phases;
        unsigned n_phases;
};

struct workload {
        uint64_t card, in_rate, out_rate; /* bytes/s of the bus, both ways at once */
        uint64_t extent, context;         /* bytes moved at a time; unevictable bytes of a client */
        uint64_t until_ns, seed;
        struct sched_config config;
        struct job *jobs;
        unsigned n_jobs, clients;
};

/* 0, or -EINVAL with a sentence in error that names the line; -ENOMEM. */
int workload_read(FILE *f, struct workload *ret, char *error, size_t size);
void workload_free(struct workload *w);
