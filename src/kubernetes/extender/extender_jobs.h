/* extender_jobs.h: the measured jobs of a folder, and what is predicted of each two of them.
 *
 * NAME.json is the job NAME. Predictions are remembered until the files change. A model is of one
 * kind of card, so jobs that were measured on another kind are left out. Not thread-safe. */
#pragma once

#include <stddef.h>

#define JOBS_MAX       1000u
#define JOBS_ERROR_MAX 1024
#define JOBS_WHY_MAX   400

struct jobs;

/* model_path "": only jobs that do not fit the card together are predicted. The string `folder`
 * must live as long as *ret. 0; or -errno after a sentence. */
int jobs_open(const char *folder, const char *model_path, struct jobs **ret,
              char error[static JOBS_ERROR_MAX]);
void jobs_free(struct jobs *j); /* NULL is a no-op */

/* Reads the folder if it has changed. A file that cannot be used is told in the log, and the last
 * good one of its name stays. */
void jobs_refresh(struct jobs *j);

/* The card that the jobs were measured on; "": not known. */
const char *jobs_gpu(const struct jobs *j);
/* Returns the job's place, which holds until the next refresh, or -ENOENT. */
int jobs_find(const struct jobs *j, const char *name);

/* Two jobs side by side, and the least progress that each is to keep. */
struct jobs_pair {
        unsigned jobs[2];
        double bounds[2];
};

/* Writes the sum of the progress that is predicted for both. 0; -ERANGE: a bound is not kept;
 * -ENOENT: nothing predicts the two. */
int jobs_predict(struct jobs *j, const struct jobs_pair *pair, double *ret_sum);
/* Returns the worse job's predicted progress, divided by the progress that the job's bound
 * requires. Less than 1: the bound is not kept; 0: nothing predicts the two. */
double jobs_slack(struct jobs *j, const struct jobs_pair *pair);
/* Writes why the two cannot be beside each other, as the scheduler shows it behind a number of
 * nodes. */
void jobs_why(struct jobs *j, const struct jobs_pair *pair, char ret[static JOBS_WHY_MAX]);

/* Predicts for one more job. Returns 1 while there is more to do, or 0. */
int jobs_warm(struct jobs *j);
