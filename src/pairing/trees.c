/* trees.c: owns the talk with libxgboost. Must never let the library print. */
#include "pairing/trees.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xgboost/c_api.h>

#include "base/cleanup.h"
#include "base/macros.h"

struct trees {
        BoosterHandle booster;
        unsigned rounds;
};

static void cleanup_matrix(DMatrixHandle *m)
{
        if (*m)
                (void)XGDMatrixFree(*m);
}
#define _cleanup_matrix_ _cleanup_(cleanup_matrix)

static void cleanup_trees(struct trees **t)
{
        trees_free(*t);
}
#define _cleanup_trees_ _cleanup_(cleanup_trees)

/* Writes the library's reason, without its stack. */
static int fail_trees(char error[static TREES_ERROR_MAX])
{
        const char *why = XGBGetLastError();
        const char *text = strrchr(why, ']') ? strrchr(why, ']') : why;

        (void)snprintf(error, TREES_ERROR_MAX, "xgboost: %.*s",
                       (int)MIN(strcspn(text, "\n"), (size_t)300), text);
        return -EINVAL;
}

static void print_nothing(const char *text)
{
}

const char *trees_version(void)
{
        static char version[32];
        int major, minor, patch;

        XGBoostVersion(&major, &minor, &patch);
        (void)snprintf(version, sizeof(version), "%d.%d.%d", major, minor, patch);
        return version;
}

void trees_free(struct trees *t)
{
        if (!t)
                return;
        if (t->booster)
                (void)XGBoosterFree(t->booster);
        free(t);
}

unsigned trees_rounds(const struct trees *t)
{
        return t->rounds;
}

static int set(struct trees *t, const char *name, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static int set(struct trees *t, const char *name, const char *format, ...)
{
        char value[64];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(value, sizeof(value), format, args);
        va_end(args);
        return XGBoosterSetParam(t->booster, name, value);
}

/* The library takes the signs as the text of a tuple. */
static int set_signs(struct trees *t, const signed char *signs, size_t columns)
{
        _cleanup_free_ char *text = malloc(columns * 3 + 3);
        char *at = text;

        if (!text)
                return -1;
        *at++ = '(';
        for (size_t c = 0; c < columns; c++)
                at += sprintf(at, "%s%d", c ? "," : "", signs[c]);
        (void)strcpy(at, ")");
        return XGBoosterSetParam(t->booster, "monotone_constraints", text);
}

static int set_all(struct trees *t, const struct trees_options *o, size_t columns)
{
        return set(t, "objective", "reg:squarederror") || set(t, "tree_method", "hist") ||
               set(t, "seed", "1") || set(t, "verbosity", "0") ||
               set(t, "nthread", "%u", o->threads) || set(t, "max_depth", "%u", o->depth) ||
               set(t, "eta", "%g", o->rate) || set(t, "subsample", "%g", o->rows_part) ||
               set(t, "colsample_bytree", "%g", o->columns_part) ||
               set(t, "min_child_weight", "%g", o->least_weight) ||
               set(t, "lambda", "%g", o->lambda) || set(t, "eval_metric", "mae") ||
               set(t, "base_score", "0") || (o->signs && set_signs(t, o->signs, columns));
}

static int make_matrix(const struct trees_rows *rows, DMatrixHandle *ret)
{
        if (XGDMatrixCreateFromMat(rows->x, rows->rows, rows->columns, NAN, ret) != 0)
                return -1;
        if (XGDMatrixSetFloatInfo(*ret, "label", rows->y, rows->rows) != 0)
                return -1;
        return rows->weight ? XGDMatrixSetFloatInfo(*ret, "weight", rows->weight, rows->rows) : 0;
}

/* Trains until the check rows gain nothing, or all rounds are done. */
static int train(struct trees *t, DMatrixHandle rows, DMatrixHandle check,
                 const struct trees_options *o)
{
        const char *name = "check";
        double best = INFINITY;

        for (unsigned round = 0; round < o->rounds; round++) {
                const char *figures;
                double error;

                if (XGBoosterUpdateOneIter(t->booster, (int)round, rows) != 0)
                        return -1;
                if (!check) {
                        t->rounds = round + 1;
                        continue;
                }
                if (XGBoosterEvalOneIter(t->booster, (int)round, &check, &name, 1, &figures) != 0)
                        return -1;
                error = strtod(strrchr(figures, ':') + 1, NULL);
                if (error < best) {
                        best = error;
                        t->rounds = round + 1;
                }
                if (round + 1 >= t->rounds + o->patience)
                        break;
        }
        return 0;
}

int trees_train(const struct trees_rows *rows, const struct trees_rows *check,
                const struct trees_options *o, struct trees **ret,
                char error[static TREES_ERROR_MAX])
{
        _cleanup_matrix_ DMatrixHandle matrix = NULL;
        _cleanup_matrix_ DMatrixHandle check_matrix = NULL;
        _cleanup_trees_ struct trees *t = calloc(1, sizeof(*t));
        DMatrixHandle all[2];

        if (!t) {
                (void)snprintf(error, TREES_ERROR_MAX, "no memory for the trees");
                return -ENOMEM;
        }
        (void)XGBRegisterLogCallback(print_nothing);
        if (make_matrix(rows, &matrix) != 0 || (check && make_matrix(check, &check_matrix) != 0))
                return fail_trees(error);
        all[0] = matrix;
        all[1] = check_matrix;
        if (XGBoosterCreate(all, check ? 2 : 1, &t->booster) != 0 ||
            set_all(t, o, rows->columns) != 0 || train(t, matrix, check_matrix, o) != 0)
                return fail_trees(error);
        *ret = TAKE_PTR(t);
        return 0;
}

int trees_predict(struct trees *t, const struct trees_rows *rows, unsigned threads, float *ret,
                  char error[static TREES_ERROR_MAX])
{
        char values[160], config[192];
        const bst_ulong *shape;
        bst_ulong dimensions;
        const float *out;

        if (rows->rows == 0)
                return 0;
        (void)snprintf(values, sizeof(values),
                       "{\"data\": [%ju, true], \"shape\": [%zu, %zu], \"typestr\": \"<f4\", "
                       "\"version\": 3}",
                       (uintmax_t)(uintptr_t)rows->x, rows->rows, rows->columns);
        (void)snprintf(config, sizeof(config),
                       "{\"type\": 0, \"training\": false, \"iteration_begin\": 0, "
                       "\"iteration_end\": %u, \"strict_shape\": false, \"cache_id\": 0, "
                       "\"missing\": NaN}",
                       t->rounds);
        if (set(t, "nthread", "%u", threads) != 0 ||
            XGBoosterPredictFromDense(t->booster, values, config, NULL, &shape, &dimensions,
                                      &out) != 0)
                return fail_trees(error);
        memcpy(ret, out, rows->rows * sizeof(*ret));
        return 0;
}

int trees_write(struct trees *t, char **ret, size_t *ret_length, char error[static TREES_ERROR_MAX])
{
        bst_ulong length;
        const char *text;
        char *copy;

        if (XGBoosterSaveModelToBuffer(t->booster, "{\"format\": \"json\"}", &length, &text) != 0)
                return fail_trees(error);
        copy = malloc(length + 1);
        if (!copy) {
                (void)snprintf(error, TREES_ERROR_MAX, "no memory for the trees");
                return -ENOMEM;
        }
        memcpy(copy, text, length);
        copy[length] = 0;
        *ret = copy;
        *ret_length = length;
        return 0;
}

int trees_read(const char *text, size_t length, size_t columns, struct trees **ret,
               char error[static TREES_ERROR_MAX])
{
        _cleanup_trees_ struct trees *t = calloc(1, sizeof(*t));
        bst_ulong features = 0;
        int rounds = 0;

        if (!t) {
                (void)snprintf(error, TREES_ERROR_MAX, "no memory for the trees");
                return -ENOMEM;
        }
        (void)XGBRegisterLogCallback(print_nothing);
        if (XGBoosterCreate(NULL, 0, &t->booster) != 0 || set(t, "verbosity", "0") != 0 ||
            XGBoosterLoadModelFromBuffer(t->booster, text, length) != 0 ||
            XGBoosterGetNumFeature(t->booster, &features) != 0 ||
            XGBoosterBoostedRounds(t->booster, &rounds) != 0)
                return fail_trees(error);
        if (features != columns || rounds <= 0) {
                (void)snprintf(error, TREES_ERROR_MAX, "its trees are of %zu columns, not of %zu",
                               (size_t)features, columns);
                return -EINVAL;
        }
        t->rounds = (unsigned)rounds;
        *ret = TAKE_PTR(t);
        return 0;
}
