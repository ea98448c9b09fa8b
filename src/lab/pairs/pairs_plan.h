/* pairs_plan.h: which pairs sublet bench pairs measures, in which way and order. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job/ways.h"

#define PAIRS_JOBS_MAX  1024
#define PAIRS_NAME_MAX  64
#define PAIRS_LOOPS_MAX 48

/* How fast a job is alone, in steps a second. It is measured again during the run. */
struct pairs_alone {
        double rate;    /* the last one; 0: not measured in this run */
        uint64_t at_ns; /* when it was measured */
        double least, most, sum;
        unsigned n; /* how often it was measured, by earlier runs as well */
};

struct pairs_job {
        char name[PAIRS_NAME_MAX], family[24];
        bool torch;    /* a model; else a synthetic kernel */
        bool recorded; /* the data file has it */
        bool eager;    /* a model whose steps are no CUDA graph */
        /* What makes the job as long as its name says, in the words of its worker: loops of a
         * kernel, microseconds between a server's requests. "": not known yet */
        char loops[PAIRS_LOOPS_MAX];
        struct pairs_alone alone[2]; /* 1: under MPS, with its half of the SMs */
        unsigned failures;
};

struct pairs_item {
        unsigned a, b; /* places in the list of jobs */
        enum way way;
        bool done; /* measured, or given up */
};

/* Returns the place of the job of this name; -1: there is no such job. */
int pairs_find_job(const struct pairs_job *jobs, size_t n, const char *name);

struct pairs_choice {
        bool ways[WAYS]; /* the ways that are available */
        uint64_t seed;
        unsigned partners; /* partners of each job, among its kind, in the way with most pairs; 0:
                              all */
        bool within;       /* all pairs of all jobs in each way */
};

/* Makes the list of pairs. WAY_SHARED has most of the pairs, and without it WAY_SLICED. The
 * partners of a job are of different families, as far as there are so many. Any beginning of the
 * list has each job about equally often, and each kind of pairs in proportion. The caller frees
 * *ret_items. 0 or -ENOMEM. */
int pairs_plan(const struct pairs_job *jobs, size_t n_jobs, const struct pairs_choice *choice,
               struct pairs_item **ret_items, size_t *ret_n);
/* Puts n of the jobs, chosen evenly from all families, at the beginning of the list. */
void pairs_choose(struct pairs_job *jobs, size_t n_jobs, size_t n, uint64_t seed);
