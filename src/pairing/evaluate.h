/* evaluate.h: what a model is worth for jobs that it has not seen: errors, and batches of jobs that
 * are paired by it, by simple rules, and by an oracle that has measured all pairs.
 *
 * Batches are drawn from jobs of unseen families. Each policy, the oracle too, may make only pairs
 * that were measured, in the ways that were measured. Sublet and the oracle choose the way of each
 * pair; the simple rules know no ways, and get `shared`, or else the first way that was measured.
 * Random numbers have a fixed seed. */
#pragma once

#include <stdbool.h>

#include "pairing/data.h"
#include "pairing/model.h"

#define EVALUATE_BOUNDS 3
extern const double evaluate_bounds[EVALUATE_BOUNDS];

/* Who pairs the jobs of a batch. */
enum evaluate_policy {
        EVALUATE_RANDOM,    /* pairs any two jobs */
        EVALUATE_OCCUPANCY, /* occupancies add up to at most 1 */
        EVALUATE_BANDWIDTH, /* pairs the job of the highest bandwidth with that of the lowest */
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
        double pairs, kept, paired; /* pairs: those made; kept: jobs in them that kept the bound;
                                       paired: all jobs in them */
        double progress, gpus;      /* of all jobs of the batches; jobs without a partner count 1 */
        double of_progress; /* work per GPU, divided by that of the oracle, summed over batches */
};

/* Which jobs of a pair training has not seen. */
enum evaluate_unseen { EVALUATE_BOTH, EVALUATE_ONE, EVALUATE_UNSEEN };

struct evaluate_prediction {
        double predicted, formula, measured; /* formula: without trees (roof.h) */
};

struct evaluate_list {
        struct evaluate_prediction *list; /* n of them */
        size_t n;
};

/* How far predictions are off. */
struct evaluate_errors {
        size_t n;
        double mean, median, p90; /* of |predicted - measured| / measured */
        double points;            /* mean of |predicted - measured| */
};

/* Below this progress nobody pairs a job, and relative errors grow without end. */
#define EVALUATE_LEAST 0.2

/* Pairs that were measured in several ways. For each, the way with the best prediction is chosen,
 * and its measured sum is divided by that of the driver's slices. */
struct evaluate_ways {
        size_t pairs, worse; /* worse: pairs whose chosen way gave over 2 % less than slicing */
        double sum, least;
};

struct evaluate {
        struct evaluate_list of[WAYS][EVALUATE_UNSEEN];
        size_t jobs, batches, batch; /* batch: jobs in one batch */
        size_t pairs, possible;      /* pairs of these jobs that were measured; all pairs of them */
        struct evaluate_sums sums[EVALUATE_BOUNDS][EVALUATE_POLICIES];
        struct evaluate_ways ways;
};

/* Writes what the model predicts for both jobs of each pair of data that has an unseen job, and NAN
 * for the others. unseen: one byte for each job of data. 0; or -errno after a sentence. */
int evaluate_predict(const struct data *data, const struct model *m, const char *unseen,
                     double (*ret)[2], char error[static MODEL_ERROR_MAX]);
/* Compares the predictions of unseen jobs with what was measured. m gives the margins. 0; -ENOMEM;
 * -EINVAL after a sentence. The caller frees ret. */
int evaluate_run(const struct data *data, const struct model *m, const char *unseen,
                 const double (*predicted)[2], struct evaluate *ret,
                 char error[static MODEL_ERROR_MAX]);
void evaluate_free(struct evaluate *e);
/* Sums up the predictions of pairs whose measured progress is at least this. formula: the errors of
 * the estimate without trees. 0 or -ENOMEM. */
int evaluate_errors(const struct evaluate_list *l, double least, bool formula,
                    struct evaluate_errors *ret);
