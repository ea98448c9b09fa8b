/* slurm_jobs.h: the classes of jobs in the daemon's directory conf.d: a file for each job, for as
 * long as one of its steps runs on this machine.
 *
 * Each step holds a lock while it runs (its descriptor is closed by exec, and by the kernel if the
 * step is killed). A job whose lock nobody holds has ended. One lock over the directory keeps steps
 * that begin and end from each other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tenant.h"
#include "slurm/job_bounds.h"

#define JOBS_SENTENCE_MAX 512
#define JOBS_TEXT_MAX     512

struct job {
        uint32_t id;
        uint32_t uid;
        const char *sluid;   /* how its cgroup names it; NULL: by its number */
        const char *account; /* NULL: not known */
        struct granted granted;
};

/* How a daemon is told to read its files again. 0; -EPERM: it refuses, with its reason; or another
 * -errno: it does not answer. */
typedef int jobs_reload(const char *dir, char reason[static JOBS_SENTENCE_MAX]);
int jobs_reload_daemon(const char *dir, char reason[static JOBS_SENTENCE_MAX]);

/* Finds the job's SLUID in what /proc/self/cgroup says about slurmstepd. False: it is not there. */
bool jobs_sluid(const char *cgroups, char ret[static TENANT_ID_MAX + 1]);
/* Writes the text of the job's file; with_minimum: with the minimum. Returns its length. */
size_t jobs_text(const struct job *job, bool with_minimum, char ret[static JOBS_TEXT_MAX]);

/* Begins a step: writes the job's file, and removes those of jobs that have ended. 0 and the step's
 * lock, for jobs_leave(); or -errno: the daemon's directory cannot be used. The sentence says what
 * the user should know; "": all is well. */
int jobs_enter(const char *dir, const struct job *job, jobs_reload *reload, int *ret_lock,
               char sentence[static JOBS_SENTENCE_MAX]);
/* Ends a step: removes the job's file if no other step of the job runs here. Closes the lock. */
void jobs_leave(const char *dir, uint32_t id, jobs_reload *reload, int lock);
/* Removes the files of jobs that have ended. */
void jobs_sweep(const char *dir, jobs_reload *reload);
