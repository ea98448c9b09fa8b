/* data.h: the data file of measured pairs, which `sublet bench pairs` writes: lines of JSON. The
 * first says what card it was; then comes a line for each job, one for each measured pair, and one
 * for each measure of a job alone. Progress is the rate beside the other job, divided by the rate
 * alone at that time, which is interpolated between the measures before and after. In the way
 * "shared" each job has half of the SMs, and is also measured alone on half of them. Of a pair that
 * was measured several times, the means are kept. A data file is foreign input, as a job file is.
 * Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "job/job.h"
#include "job/ways.h"

#define DATA_ERROR_MAX  JOB_ERROR_MAX
#define DATA_FAMILY_MAX 64
#define DATA_JOBS_MAX   10000
#define DATA_PAIRS_MAX  200000
#define DATA_ALONE_MAX  200000

#define DATA_PROGRESS_MAX 4.0 /* a larger one is a wrong measurement */

struct data_job {
        struct job job;
        char family[DATA_FAMILY_MAX]; /* jobs of one family are alike */
        bool synthetic;               /* a kernel written for the measurement, no real program */
        double moved; /* greatest rate alone / least rate alone - 1; 0: measured once */
};

/* A measure of a job alone. */
struct data_alone {
        unsigned job; /* place in data.jobs */
        bool half;    /* the job had half of the SMs, under MPS */
        double time;  /* seconds since 1970 */
        double rate;  /* steps a second */
};

struct data_pair {
        unsigned jobs[2]; /* places in data.jobs */
        enum way way;
        double progress[2]; /* rate beside the other / rate alone */
        double rates[2];    /* steps a second beside the other; 0: the file has progress only */
        double time;        /* seconds since 1970 */
};

struct data {
        char gpu[96], driver[32];
        double idle_w; /* the card's power while programs have it and do nothing; 0: not known */
        struct data_job *jobs;
        struct data_pair *pairs;
        struct data_alone *alone;
        size_t n_jobs, n_pairs, n_alone, room_jobs, room_pairs, room_alone;
        size_t n_wrong; /* pairs left out, because a progress is above DATA_PROGRESS_MAX */
};

/* Adds what the file at this path says to data, which begins as zeros. All files must be of one
 * card. 0; or -errno after a sentence was written to error. The caller frees data either way. */
int data_read(const char *path, struct data *data, char error[static DATA_ERROR_MAX]);
void data_free(struct data *data);
#define _cleanup_data_ __attribute__((cleanup(data_free)))
