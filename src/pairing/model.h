/* model.h: what was learned of pairs on one card: trees for each way that was measured, and how far
 * they were off for jobs that they had not seen. Written as one JSON file with xgboost's own
 * inside.
 *
 * A model of other features is refused. A model file is trusted as a program is: libxgboost reads
 * the trees. Not thread-safe. */
#pragma once

#include <stddef.h>

#include "pairing/features.h"
#include "pairing/trees.h"
#include "job/ways.h"

#define MODEL_ERROR_MAX 1024
#define MODEL_VERSION   1
#define MODEL_MARGINS   19 /* bounds 0.05, 0.10, …, 0.95 */

/* What the trees learn: the progress, its logarithm, or the logarithm of its ratio to the estimate
 * without a model (roof.h). Training keeps the one with the smallest error. */
enum model_target { MODEL_PROGRESS, MODEL_LOG, MODEL_RATIO, MODEL_TARGETS };
extern const char *const model_target_names[MODEL_TARGETS];

/* How far predictions were off, for pairs neither of whose families the trees had seen. */
struct model_errors {
        double mean, p90; /* of |predicted - measured| / measured */
        double median;
};

struct model_way {
        struct trees *trees; /* NULL: this way was not measured */
        enum model_target target;
        int with_signs;
        double part; /* weight of the trees beside the formulae: 0 to 1 */
        size_t pairs, jobs, families;
        struct model_errors errors;
        /* Nine of ten measured values are within predicted × low to predicted × high. */
        double low, high, sum_low, sum_high;
        double delta; /* 99 % of predictions are at most 1 + delta times too high */
        /* A pair passes if both predictions are above the bound × its margin. 97 % of the jobs in
         * pairs that pass keep the bound. */
        double margins[MODEL_MARGINS];
};

struct model {
        char gpu[96], driver[32], sublet[32], xgboost[32], time[32];
        double idle_w; /* the card's power while programs have it and do nothing; 0: not known */
        struct model_way ways[WAYS];
};

/* Convert a row's progress to the value that trees of this target learn, and such a value to
 * progress. */
double model_to_target(enum model_target target, enum way way, const float *row, double progress);
double model_from_target(enum model_target target, enum way way, const float *row, double value);

/* Returns the weighted geometric mean of the trees' prediction and the estimate without trees. */
double model_blend(enum way way, const float *row, double predicted, double part);

/* Predicts the progress of each of n rows. threads 0: one for each CPU. */
int model_predict(const struct model *m, enum way way, const float *rows, size_t n,
                  unsigned threads, double *ret, char error[static MODEL_ERROR_MAX]);
/* Returns what a prediction has to exceed for the bound to be kept: the bound × its margin. */
double model_threshold(const struct model_way *w, double bound);

/* Writes the sentence into error; returns r. */
int model_fail(char error[static MODEL_ERROR_MAX], int r, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

int model_read(const char *path, struct model *ret, char error[static MODEL_ERROR_MAX]);
int model_write(const struct model *m, const char *path, char error[static MODEL_ERROR_MAX]);
void model_free(struct model *m);
#define _cleanup_model_ __attribute__((cleanup(model_free)))

/* Finds the model of a card: the user's own before the installed one. 0; -ENOENT after a sentence.
 */
int model_find(const char *gpu, char *ret, size_t size, char error[static MODEL_ERROR_MAX]);
/* Writes the path of the user's own model of a card, and makes its folder. */
int model_own_path(const char *gpu, char *ret, size_t size, char error[static MODEL_ERROR_MAX]);
