/* pairs_running.h: a run of sublet bench pairs, with its processes: what pairs_start.c starts, and
 * pairs_run.c measures with. */
#pragma once

#include "lab/measure/report.h"
#include "lab/pairs/bench_pairs.h"
#include "lab/pairs/pairs_worker.h"
#include "mps/mps.h"

#define PAIRS_ANSWER_S   30 /* a worker may take so long to answer, beyond what it was asked */
#define PAIRS_STARTS_MAX 20 /* most starts of a worker */

enum pairs_kind { PAIRS_KIND_KERNELS, PAIRS_KIND_MODELS, PAIRS_KINDS };
/* PAIRS_PLACE_MEASURED has one worker of a kind, in which the library measures. That slows it a
 * little. */
enum pairs_place { PAIRS_PLACE_SUBLET, PAIRS_PLACE_MPS, PAIRS_PLACE_MEASURED, PAIRS_PLACES };

struct pairs_running {
        const struct pairs_setting *setting;
        struct pairs_job *jobs;
        size_t n_jobs;
        struct pairs_results *results;
        struct lab_daemon daemon;
        struct mps_options mps;
        pid_t mps_pid;
        char mps_dir[MPS_DIR_MAX], measure_dir[PATHS_DIR_MAX + 16], gpu[48],
                log[PATHS_DIR_MAX + 16], file[PATHS_DIR_MAX + 16];
        struct pairs_worker workers[PAIRS_KINDS][PAIRS_PLACES][2];
        bool ways[WAYS], kinds[PAIRS_KINDS];
        struct pairs_data data;
        struct job card_job; /* what is true of all jobs: the card */
        struct card *card;
        double idle_w; /* the card's power while programs have it and do nothing; NAN: not known */
        const char *mode; /* mode of the daemon */
        uint64_t begun_ns, told_ns;
        /* How the time of the pairs was spent. */
        struct {
                double preparing, again, warming, windows;
        } spent;
        size_t measured, failed;
};

/* Starts the daemon, MPS and all workers. A place or kind whose workers do not start is left out.
 * CLI_OK, or an exit status after a message. */
int pairs_start(struct pairs_running *r);
/* Ends all that pairs_start() started, also if that failed. */
void pairs_end(struct pairs_running *r);
/* Returns the worker for this job's kind. */
struct pairs_worker *pairs_worker_at(struct pairs_running *r, const struct pairs_job *job,
                                     enum pairs_place place, unsigned which);
/* Returns how many workers of a kind there are. */
unsigned pairs_workers_at(enum pairs_place place);
bool pairs_has_place(const struct pairs_running *r, enum pairs_place place);
/* Starts the workers that do not run, and waits until all n are ready. */
bool pairs_make_ready(struct pairs_worker *const *workers, unsigned n);
/* Sets the daemon's mode to the one that this way needs. True: the daemon is in that mode. */
bool pairs_set_mode(struct pairs_running *r, enum way way);
/* Returns how often the GPU went from one program to another, by turns. */
json_int_t pairs_count_handoffs(const struct pairs_running *r);
