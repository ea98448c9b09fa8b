/* fit.h: trains a model on measured pairs, and says how far it is off for families of jobs that it
 * has not seen.
 *
 * The families are dealt into folds. Trees for each fold are trained on the pairs that have no job
 * of the fold, and stop by the pairs that have one; the target with the smallest error is kept.
 * Then, for each two folds, trees that saw neither predict the pairs between the two. So each pair
 * is predicted by trees that know neither family. These predictions are blended with the formulae
 * of roof.h, in the parts that err least. The errors, the interval, delta and the margins are of
 * the blend. The trees that are kept are trained on all pairs. Random numbers have a fixed seed. */
#pragma once

#include "pairing/data.h"
#include "pairing/model.h"

#define FIT_FOLDS_MAX 8
#define FIT_PAIRS_MIN 20 /* fewest pairs of a way; with fewer it is left out */

struct fit_options {
        unsigned threads, folds;
        const char
                *left_out; /* families that must not be seen: one byte for each job; NULL: none */
        void (*tell)(const char *line, void *userdata); /* how far training is; NULL: not told */
        void *userdata;
        /* Room for each pair of data: what trees that saw neither family predict for its jobs, or
         * NAN. NULL: not wanted */
        double (*ret_unseen)[2];
};

/* Trains a model for each way that has enough pairs. 0; or -errno after a sentence. */
int fit_model(const struct data *data, const struct fit_options *options, struct model *ret,
              char error[static MODEL_ERROR_MAX]);
