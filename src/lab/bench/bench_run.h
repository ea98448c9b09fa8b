/* bench_run.h: runs some programs at once, or one after the other, and says what became of them. */
#pragma once

#include <stdbool.h>

#include "base/daemon_paths.h"
#include "lab/bench/bench_plan.h"
#include "lab/common/lab_card.h"

/* What is the same for all runs. */
struct bench_stage {
        bool simulated;
        char session[LAB_SESSION_MAX]; /* names the simulated card */
        char folder[PATHS_DIR_MAX];    /* contains the daemons' directories; removed at the end */
        const char *python; /* the interpreter with PyTorch; NULL: the driver-API program */
        uint64_t capacity;
};

struct bench_job {
        /* The request. */
        const struct bench_role *role;
        uint64_t bytes, seed, rounds; /* rounds 0: as many as fit the time */
        double cpu, pause, seconds;
        unsigned phases;
        bool managed;
        /* The answer. */
        enum bench_outcome {
                BENCH_NOT_RUN,
                BENCH_COMPLETED,
                BENCH_NO_MEMORY,
                BENCH_BROKEN,
                BENCH_TOO_LONG
        } outcome;
        char trouble[64], digest[24];
        uint64_t mismatches;
        double took; /* seconds, from its start, or from the moment when all had filled their memory
                      */
        double *delays; /* delays of its phases; freed by bench_run_clear() */
        unsigned n_delays;
        double waiting; /* part of its time since its start that it waited for memory or its turn;
                           below 0: unknown */
};

struct bench_run {
        const struct bench_stage *stage;
        bool shared;         /* the programs run under sublet */
        bool serial;         /* the programs run one after the other */
        bool meet;           /* the clock starts when all have filled their memory */
        const char *quantum; /* NULL: the daemon's default */
        double limit;        /* seconds; a program that is not done by then has failed */
        unsigned n;
        struct bench_job jobs[BENCH_JOBS_MAX];
        /* The answer. */
        double took;
        uint64_t moved_out, moved_in, handoffs; /* BENCH_UNKNOWN: nobody counted */
};

/* CLI_OK, or an exit status after a message, if the programs could not be run. A program that fails
 * is no error of the run. Leaves no process behind. */
int bench_run(struct bench_run *run);
void bench_run_clear(struct bench_run *run);
