/* evaluate.h: what a model is worth for jobs that it has not seen: errors, and batches of jobs that
 * are paired by it, by simple rules, and by an oracle that has measured all pairs.
 *
 * Batches are drawn from jobs of unseen families whose pairs were all measured. Random numbers have
 * a fixed seed. */
#pragma once

#include "pairing/data.h"
#include "pairing/model.h"

#define EVALUATE_BOUNDS 3
extern const double evaluate_bounds[EVALUATE_BOUNDS];

/* Who pairs the jobs of a batch. */
enum evaluate_policy {
        EVALUATE_RANDOM,    /* any two */
        EVALUATE_OCCUPANCY, /* occupancies add up to at most 1 */
        EVALUATE_BANDWIDTH, /* the job with the highest bandwidth with that of the lowest */
        EVALUATE_OPPOSITE,  /* compute-bound with memory-bound, blocks fit the SMs together (Orion)
                             */
        EVALUATE_ROOFLINE,  /* no resource's uses add up to more than 1 */
        EVALUATE_DELTA,     /* sublet: predictions above the bound × (1 + delta) */
        EVALUATE_MARGIN,    /* sublet: predictions above the bound × its margin */
        EVALUATE_ORACLE,    /* knows what was measured */
        EVALUATE_POLICIES
};
extern const char *const evaluate_names[EVALUATE_POLICIES];

struct evaluate_sums {
        double pairs, kept,
                paired;        /* pairs made; jobs in pairs that kept the bound; jobs in pairs */
        double progress, gpus; /* of all jobs of the batches; those without a partner count 1 */
        double of_pairs, of_progress; /* of the oracle's, for each batch; means are by batches */
};

struct evaluate {
        /* Errors of unseen pairs, in one list: room, count; both of unseen families, or one. */
        double *both, *one;
        size_t n_both, n_one;
        size_t jobs, batches, batch; /* batch: jobs in one */
        struct evaluate_sums sums[EVALUATE_BOUNDS][EVALUATE_POLICIES];
};

/* Adds what the model does for one way with jobs that it has not seen: one byte of unseen for each
 * job of data. 0; -ENOMEM; -EINVAL after a sentence. The caller frees ret. */
int evaluate_add(const struct data *data, const struct model *m, enum way way, const char *unseen,
                 struct evaluate *ret, char error[static MODEL_ERROR_MAX]);
void evaluate_free(struct evaluate *e);

/* What the ways that were measured for one pair would have given, if the best predicted had been
 * taken: the measured sum of that way divided by that of the driver's slices. */
struct evaluate_ways {
        size_t pairs, worse; /* worse: less than slicing by more than 2 % */
        double sum, least;
};
int evaluate_add_ways(const struct data *data, const struct model *m, const char *unseen,
                      struct evaluate_ways *ret, char error[static MODEL_ERROR_MAX]);
