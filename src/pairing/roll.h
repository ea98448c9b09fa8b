/* roll.h: which jobs that wait start beside others, while some run already.
 *
 * A job that waits may join one that runs alone, or another that waits, on a free GPU. Jobs do not
 * move, so pairs that run are not looked at. As many jobs as possible start: each pair starts one
 * more job than the free GPUs can. Of such choices, one with the greatest sum of progress; between
 * equals, jobs that came first. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pairing/pairs.h"

struct roll_job {
        bool runs; /* it runs alone; false: it waits. Waiting jobs come in the order of arrival */
        double bound;
        unsigned ways; /* mask of enum way */
        uint64_t user; /* two jobs share by MPS only if they are of one user */
};

struct roll_options {
        unsigned free_gpus;
        unsigned waiting;  /* all jobs that wait, also those that are not in the list */
        double host_bytes; /* host memory for new pairs that do not fit the card */
        /* Returns observed / predicted progress of job a beside job b. Both are places in jobs. */
        double (*ratio)(unsigned a, unsigned b, enum way way, void *userdata);
        void *userdata;
};

struct roll_pair {
        unsigned a, b; /* places in jobs; a waits */
        enum way way;
        double progress[2]; /* as the model says, not corrected by the ratio */
        struct pairs_pair pair;
};

/* jobs: one for each job of p. ret: room for p->n pairs. Writes *ret_n of them. 0, or -errno after
 * a sentence. */
int roll_choose(const struct pairs *p, const struct roll_job *jobs,
                const struct roll_options *options, struct roll_pair *ret, size_t *ret_n,
                char error[static PAIRS_ERROR_MAX]);
