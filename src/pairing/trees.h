/* trees.h: gradient-boosted trees for numbers. The only place that knows libxgboost.
 *
 * The same rows, targets and options give the same trees. Not thread-safe. */
#pragma once

#include <stddef.h>

#define TREES_ERROR_MAX 512

struct trees;

/* Rows of numbers, one after the other; NAN: not known. */
struct trees_rows {
        const float *x;
        const float *y;      /* a target for each row; NULL to predict */
        const float *weight; /* NULL: all alike */
        size_t rows, columns;
};

struct trees_options {
        unsigned rounds;   /* most trees */
        unsigned patience; /* with check rows: rounds without gain after which training stops */
        unsigned depth, threads;
        double rate, rows_part, columns_part, least_weight, lambda;
        const signed char *signs; /* for each column, as in features.def; NULL: none */
};

/* Trains. With check rows it stops where their mean absolute error no longer falls, and the trees
 * after the best are not used. 0; or -EINVAL or -ENOMEM after a sentence. */
int trees_train(const struct trees_rows *rows, const struct trees_rows *check,
                const struct trees_options *options, struct trees **ret,
                char error[static TREES_ERROR_MAX]);
/* Returns how many trees are used. */
unsigned trees_rounds(const struct trees *t);
/* Predicts, with this many threads; 0: one for each CPU. */
int trees_predict(struct trees *t, const struct trees_rows *rows, unsigned threads, float *ret,
                  char error[static TREES_ERROR_MAX]);
/* Writes the trees as xgboost's JSON, which the caller frees. */
int trees_write(struct trees *t, char **ret, size_t *ret_length,
                char error[static TREES_ERROR_MAX]);
int trees_read(const char *text, size_t length, size_t columns, struct trees **ret,
               char error[static TREES_ERROR_MAX]);
void trees_free(struct trees *t); /* NULL is a no-op */

/* Returns the library's version: "1.7.4". */
const char *trees_version(void);
