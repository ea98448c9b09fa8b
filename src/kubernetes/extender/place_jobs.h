/* place_jobs.h: whether a pod finds a GPU on a node, alone or beside a job that runs there, so that
 * both bounds are kept.
 *
 * At most two measured jobs share a GPU. The extender does not know which GPU each pod has, and
 * pods that run do not move. If the node has fewer jobs than GPUs, the new one finds a free GPU.
 * Otherwise it goes beside one of them, and a matching must place the others on the other GPUs.
 * Pods whose job is not measured, and those with several GPUs, have their GPUs for themselves. Not
 * thread-safe. */
#pragma once

#include <stddef.h>

#include "kubernetes/extender/extender_jobs.h"

#define PLACE_GPUS_MAX 64u
#define PLACE_WHY_MAX  512

struct place_pod {
        int job; /* place in jobs; negative: not measured */
        double bound;
        unsigned gpus;
};

enum place_how { PLACE_NOT, PLACE_ALONE, PLACE_BESIDE };

struct place {
        enum place_how how;
        double gain;             /* how much more progress all jobs of the node make with the pod */
        char why[PLACE_WHY_MAX]; /* PLACE_NOT: a sentence */
};

/* one: a pod whose job is measured. 0 or -ENOMEM. */
int place_try(struct jobs *jobs, unsigned gpus, const struct place_pod *running, size_t n,
              const struct place_pod *one, struct place *ret);
