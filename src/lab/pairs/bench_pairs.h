/* bench_pairs.h: the parts of sublet bench pairs: the setting, the data file, the table. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "base/daemon_paths.h"
#include "client/common/cli.h"
#include "lab/measure/card.h"
#include "lab/pairs/pairs_plan.h"
#include "job/job.h"

struct pairs_setting {
        const char *output, *python, *jobs;
        char folder[PATHS_DIR_MAX]; /* contains what belongs to this run; removed at the end */
        const char *simulator;      /* its folder; NULL: a GPU */
        const char *within; /* a number of jobs, or a file of their names; NULL: not asked for */
        bool torch;
        unsigned kernels; /* so many drawn kernels instead of the table; 0: the table */
        struct pairs_choice choice;
        double seconds, limit; /* length of a pair's window; limit of the whole run, 0: none */
};

/* A pair that was measured, now or by an earlier run into the same file. */
struct pairs_result {
        unsigned a, b;
        enum way way;
        double progress[2];
        double rates[2], alone[2]; /* steps a second beside the other, and alone before that */
};

struct pairs_results {
        struct pairs_result *items;
        size_t n, room;
};

/* Adds a result. 0 or -ENOMEM. */
int pairs_results_add(struct pairs_results *r, const struct pairs_result *result);

/* ---- the data file: JSON lines, each written at once ---- */

struct pairs_data {
        FILE *file;
        const char *path;
        bool begun; /* it has its first line */
};

/* Opens the file, and reads what an earlier run wrote: which jobs it has, with their loops, and the
 * pairs among these jobs. A last line that was cut off is removed. A file of another GPU is
 * refused. CLI_OK, or an exit status after a message. */
int pairs_data_open(struct pairs_data *d, const char *path, const struct job *card,
                    struct pairs_job *jobs, size_t n_jobs, struct pairs_results *results);
/* These functions write lines. If they cannot, they print a message and return an exit status.
 * pairs_data_begin() writes the first line, unless the file has it. */
int pairs_data_begin(struct pairs_data *d, const struct job *card, double idle_w);
int pairs_data_job(struct pairs_data *d, const struct pairs_job *job, const struct job *measured);
/* Writes a measured rate of the job alone, which this run uses from now on. */
int pairs_data_alone(struct pairs_data *d, struct pairs_job *job, bool shared, double rate);
/* handoffs: turns that sublet gave although the way was WAY_SLICED. */
int pairs_data_pair(struct pairs_data *d, const struct pairs_job *jobs,
                    const struct pairs_result *result, double seconds, json_int_t handoffs);
void pairs_data_close(struct pairs_data *d);

/* ---- what one job is, alone ---- */

/* Reads into ret->measured what a worker wrote about the card. 0 or -EINVAL. */
int pairs_card_read(const char *path, struct job *ret, uint8_t ret_uuid[static 16]);
/* Adds to the job what its worker wrote about its kernels, NVML's figures (NULL: none), and its
 * speed. rates: one for each of n windows; step: seconds of a step alone. 0 or -EINVAL: the
 * worker's file is no good. */
int pairs_describe(struct job *job, const char *path, const struct card_figures *figures,
                   const double *rates, unsigned n, double step, double window_s);

/* ---- the run ---- */

/* Measures all jobs alone, then the pairs, as far as the time goes. CLI_OK, or an exit status after
 * a message. Leaves no process behind. */
int pairs_run(const struct pairs_setting *setting, struct pairs_job *jobs, size_t n_jobs,
              struct pairs_results *results);

/* ---- the table; pure ---- */

void pairs_print_table(FILE *out, const struct pairs_job *jobs,
                       const struct pairs_results *results);
/* Prints how far the rates alone of each job are from each other. */
void pairs_print_steadiness(FILE *out, const struct pairs_job *jobs, size_t n_jobs);

/* Runs `sublet bench pairs`; argv[0] is "pairs". */
int pairs_main(int argc, char **argv);
