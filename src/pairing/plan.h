/* plan.h: which jobs share a GPU, which have one alone, and which wait.
 *
 * Two jobs may share where both are predicted to keep the bound with its margin. With as many GPUs
 * as needed, or `fewest`, as many pairs are made as possible, and of all such choices one with the
 * greatest weight. With too few GPUs for all jobs alone, just as many pairs are made as place all
 * jobs. If no choice places all, the one with the greatest throughput is made, and jobs wait. Pairs
 * past memory share the host's memory and the bus: pairs with the most bytes are given up until the
 * sums fit, and the rest is matched again. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "pairing/pairs.h"

struct plan_options {
        unsigned gpus; /* 0: as many as needed */
        double bound;
        bool fewest;
        double idle_w; /* weigh by energy, with this power of an idle card; 0: no */
        double host_bytes, bus_bytes_s; /* limits for all pairs past memory together; 0: none */
};

struct plan_pair {
        const struct pairs_pair *pair;
        enum way way;
        double weight;
};

struct plan {
        struct plan_pair *pairs;
        unsigned *alone, *waiting; /* places in jobs */
        size_t n_pairs, n_alone, n_waiting;
        double host_bytes, bus_bytes_s; /* what the pairs past memory take together */
        size_t edges;                   /* how many pairs keep the bound */
};

/* Makes a plan. list: the pairs that were predicted; must outlive ret. 0; -ENOMEM; -E2BIG: too many
 * jobs. */
int plan_make(const struct pairs *p, const struct pairs_pair *list, size_t n_list,
              const struct plan_options *options, struct plan *ret);
void plan_free(struct plan *p);
#define _cleanup_plan_ __attribute__((cleanup(plan_free)))
