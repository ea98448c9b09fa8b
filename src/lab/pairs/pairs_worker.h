/* pairs_worker.h: one of the programs that run the jobs of sublet bench pairs. It stays, and runs
 * one job after the other. pairs_job.c has its orders. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lab/common/lab.h"

#define PAIRS_ANSWER_MAX 256
#define PAIRS_NO_JOB     UINT32_MAX

struct pairs_worker {
        /* The request. */
        const struct lab_daemon *daemon;
        bool preload;            /* it runs under sublet */
        const char *mps_dir;     /* CUDA_MPS_PIPE_DIRECTORY; NULL: no MPS */
        const char *gpu;         /* CUDA_VISIBLE_DEVICES; NULL: as it is */
        const char *measure_dir; /* SUBLET_MEASURE; NULL: it is not measured */
        const char *python;      /* NULL: the program of synthetic kernels */
        const char *log;         /* gets what it writes to stderr */
        uint64_t budget;         /* bytes for models */
        char name[32];           /* SUBLET_NAME */
        /* The state. */
        struct lab_program run;
        bool answered;
        char answer[PAIRS_ANSWER_MAX]; /* "": it has ended without an answer */
        uint32_t job;                  /* the job that it was told last */
        unsigned starts;
};

#define PAIRS_WORKER_NONE ((struct pairs_worker){.run = LAB_PROGRAM_NONE, .job = PAIRS_NO_JOB})

bool pairs_worker_runs(const struct pairs_worker *w);
/* Starts the worker. The answer "ready" comes later. 0, or -1 after a message. */
int pairs_worker_start(struct pairs_worker *w);
/* Gives an order, a line without its end. A worker that has ended has then answered with "". */
void pairs_worker_order(struct pairs_worker *w, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* Waits until all have answered, or ended. Kills those that have not after so many seconds, and
 * all of them after Ctrl-C. NULLs are left out. True: all have answered. */
bool pairs_workers_wait(struct pairs_worker *const *workers, unsigned n, double seconds);
/* Returns the processor time that the worker has used, in seconds; NAN: not known. */
double pairs_worker_cpu_s(const struct pairs_worker *w);
/* Kills it if it runs, and waits for its end. */
void pairs_worker_end(struct pairs_worker *w);
