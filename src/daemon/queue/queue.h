/* queue.h: which submitted job starts on which GPU, beside which other one, and in which way.
 *
 * A pure state machine: no descriptor, no clock, no allocation after queue_new(). The caller passes
 * the time in and performs what comes out. Not thread-safe: the daemon's loop owns it.
 *
 * The rules. A job waits until a GPU is free for it, or until it may join a job that runs alone. A
 * pair is made only if both jobs are predicted to keep their bounds. sublet-pairing proposes such
 * pairs (queue_offer); the queue checks each one again. Jobs do not move between GPUs, so pairs
 * that run stay as they are. A program cannot enter or leave MPS, nor its half of the SMs there,
 * while it runs. So a job that starts alone has the whole card, outside of MPS, unless its owner
 * allows it no other way than MPS. A job that has waited for QUEUE_OLD_NS keeps one GPU closed for
 * newcomers, and gets it alone. What is observed corrects what was predicted: of each two jobs, and
 * of each job, the queue keeps the mean of observed / predicted. A pair that misses a bound for
 * QUEUE_BELOW_NS goes over to turns; if turns are worse, it goes back.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "job/ways.h"

#define QUEUE_JOBS_MAX 512u
#define QUEUE_OF_USER  64u
#define QUEUE_GPUS_MAX 16u
#define QUEUE_NAME_MAX 64u
#define QUEUE_KNOWN    256u /* ratios that are remembered */

#define QUEUE_OLD_NS   (10 * 60 * NSEC_PER_SEC)
#define QUEUE_BELOW_NS (10 * NSEC_PER_SEC)
#define QUEUE_TRIAL_NS (30 * NSEC_PER_SEC) /* turns are judged after so long */
#define QUEUE_WARM_NS  (10 * NSEC_PER_SEC) /* a pair runs for so long before its ratios count */
#define QUEUE_STALE_NS (5 * NSEC_PER_SEC)  /* an observation holds for so long */

#define QUEUE_ALL_WAYS ((1u << WAYS) - 1)

/* What a job asks for. */
struct queue_wish {
        char name[QUEUE_NAME_MAX];
        uint64_t user; /* a number for each user; shared pairs are of one user */
        double bound;  /* the least progress beside another job, in (0, 1) */
        unsigned ways; /* mask of enum way */
        bool measured; /* its job file is known: without one it runs alone */
};

struct queue_job {
        uint32_t id; /* 0: the record is free */
        struct queue_wish wish;
        uint64_t came_ns, began_ns; /* began: 0 while it waits */
        uint64_t order;             /* number in the order of arrival */
        int gpu;                    /* -1 while it waits */
        int reserved;               /* the GPU that it keeps closed, -1: none */
        bool shared;                /* it has half of the SMs, under MPS, for as long as it runs */
        /* Progress that the model predicts. 1: the job has the whole card. NAN: not known, as alone
         * in half of the SMs, or after a restart of the daemon. */
        double model;
        double predicted; /* `model`, corrected by queue_ratio() */
        double observed;  /* smoothed; NAN: not known */
        uint64_t observed_ns;
        uint64_t below_ns; /* since when it is below its bound; 0: it is not */
};

/* A GPU, as status shows it. */
struct queue_gpu {
        bool present;
        bool taken; /* programs that were not submitted use it */
        uint32_t jobs[2];
        uint64_t placed_ns; /* when a job started here last */
        enum way way;
        /* The following members are for a pair only. */
        double host_bytes; /* what it may take of the host's memory */
        enum { QUEUE_AS_STARTED, QUEUE_TRIES_TURNS, QUEUE_KEEPS } turns;
        uint64_t turned_ns;
        double before; /* lesser observed / bound of both jobs, when the pair went over to turns */
};

struct queue;

/* Makes an empty queue. NULL: no memory. */
struct queue *queue_new(void);
void queue_free(struct queue *q); /* NULL is a no-op */

void queue_gpu_set(struct queue *q, unsigned gpu, bool present, bool taken);
/* Sets how much host memory all pairs that exceed their cards may take together. */
void queue_host_set(struct queue *q, double bytes);

/* Adds a job, which waits. 0; -EUSERS: its user has too many; -ENOSPC: there are too many in
 * all. */
int queue_come(struct queue *q, const struct queue_wish *wish, uint64_t now_ns, uint32_t *ret_id);
/* Adds a job that an earlier daemon has started. -ENODEV: its GPU is not here; -EBUSY: two jobs
 * have it already. */
int queue_return(struct queue *q, const struct queue_wish *wish, unsigned gpu, enum way way,
                 uint64_t now_ns, uint32_t *ret_id);
/* Removes a job that has ended or given up. */
void queue_leave(struct queue *q, uint32_t id);
/* Notes that the job's file cannot be used, so that it runs alone. */
void queue_unmeasured(struct queue *q, uint32_t id);
/* Notes the job's progress now: its rate over its rate alone. */
void queue_observe(struct queue *q, uint32_t id, double progress, uint64_t now_ns);

/* A pair that sublet-pairing proposes; a waits, b waits or runs alone. */
struct queue_offer {
        uint32_t a, b;
        enum way way;
        double progress[2]; /* of a and b, as the model predicts it */
        double host_bytes;
};
struct queue_start {
        uint32_t id, beside; /* beside 0: alone */
        unsigned gpu;
        enum way way;
        double progress; /* predicted; NAN: not known */
};
/* True if jobs wait, not all can have a GPU alone, and pairs are possible: get offers. */
bool queue_wants_offers(const struct queue *q);
/* Starts jobs as these offers say, if they still hold. Then starts jobs alone on free GPUs, in the
 * order of arrival. offers_follow: offers were asked for and come later, so that jobs start alone
 * only if there is a free GPU for each. Writes at most QUEUE_JOBS_MAX starts; returns how many. */
unsigned queue_decide(struct queue *q, const struct queue_offer *offers, unsigned n,
                      bool offers_follow, uint64_t now_ns, struct queue_start *ret);

/* A pair goes over to turns, or back from them. */
struct queue_turn {
        unsigned gpu;
        bool on;
};
/* Judges the pairs; call it each second. Returns how many changes it has written. */
unsigned queue_tick(struct queue *q, uint64_t now_ns, struct queue_turn ret[QUEUE_GPUS_MAX]);
/* True if the jobs of this GPU are to run in turns now. */
bool queue_takes_turns(const struct queue *q, unsigned gpu);

/* Returns observed / predicted of a beside b; if that is not known, of a beside any job; or else
 * 1. */
double queue_ratio(const struct queue *q, const struct queue_job *a, const struct queue_job *b,
                   enum way way);
/* Reads row i, below QUEUE_KNOWN, of the remembered ratios. False: the row is free. */
struct queue_ratio_row {
        uint64_t job, beside; /* queue_key(); beside 0: any */
        enum way way;
        double ratio;
};
bool queue_known(const struct queue *q, unsigned i, struct queue_ratio_row *ret);
uint64_t queue_key(const struct queue_job *j);
/* Returns the ways in which this job can get a partner now. A job that runs in its half of the SMs
 * can only be shared, because the model predicts the other ways for a job that may use all SMs. */
unsigned queue_ways(const struct queue_job *job);
/* Returns the ways in which both could run beside each other. */
unsigned queue_common_ways(const struct queue_job *a, const struct queue_job *b);
/* True if a newcomer may join the job: it runs alone on a GPU that nobody keeps closed. */
bool queue_is_open(const struct queue *q, const struct queue_job *job);
unsigned queue_free_gpus(const struct queue *q);
double queue_host_left(const struct queue *q);

const struct queue_job *queue_find(const struct queue *q, uint32_t id);
/* Iterates in the order of arrival: NULL first, then the previous result. NULL at the end. */
const struct queue_job *queue_next(const struct queue *q, const struct queue_job *after);
const struct queue_gpu *queue_gpu(const struct queue *q, unsigned gpu);
/* Returns the job's place among those that wait, from 1. */
unsigned queue_place(const struct queue *q, const struct queue_job *job);

/* Checks the invariants, for tests. NULL, or a sentence that names the broken one. */
const char *queue_check(const struct queue *q);
