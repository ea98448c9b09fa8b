/* fit.c: owns training. Must never let trees see a family that they are to be judged by. */
#include "pairing/fit.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"
#include "pairing/calibrate.h"

#define ROWS_PER_LEAF 20.0 /* with few rows, leaves are smaller */
#define FOLDS_MIN     3    /* fewest folds: two are left out at a time */

static const struct trees_options usual = {
        .rounds = 800,
        .patience = 40,
        .depth = 4,
        .rate = 0.03,
        .rows_part = 0.5,
        .columns_part = 0.2,
        .least_weight = 40,
        .lambda = 10,
};

/* The candidates; the one with the smallest error is kept. Signs do not hold for a ratio. */
static const struct candidate {
        enum model_target target;
        bool with_signs;
} candidates[] = {
        {MODEL_PROGRESS, false}, {MODEL_LOG, false}, {MODEL_LOG, true}, {MODEL_RATIO, false}};

/* Weights of the trees beside the formulae. The one that errs least for unseen jobs is kept. */
static const double parts[] = {1, 0.75, 0.5, 0.25, 0};

/* Errors are divided by the measured progress, but at least by this: below it, nobody pairs. */
#define ERROR_LEAST 0.2

/* The rows of one way: two for each pair. */
struct fit {
        const struct data *data;
        const struct fit_options *options;
        char *error;
        enum way way;
        size_t n; /* rows */
        float *x;
        double *progress;
        unsigned *pair;                /* the pair of each row, as an index in data */
        unsigned char (*fold)[2];      /* the folds of its job and of the job beside it */
        const unsigned char *job_fold; /* the fold of each job of data */
        unsigned folds;
        float *part_x, *part_y, *check_x, *check_y, *out; /* scratch memory */
};

static void tell_fit(const struct fit *f, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static void tell_fit(const struct fit *f, const char *format, ...)
{
        char line[256];
        va_list args;

        if (!f->options->tell)
                return;
        va_start(args, format);
        (void)vsnprintf(line, sizeof(line), format, args);
        va_end(args);
        f->options->tell(line, f->options->userdata);
}

static int no_memory(char error[static MODEL_ERROR_MAX])
{
        return model_fail(error, -ENOMEM, "no memory for the training");
}

/* ---- folds ---- */

struct family {
        const char *name;
        size_t jobs;
        unsigned fold;
};

static int larger_first(const void *a, const void *b)
{
        const struct family *x = a, *y = b;

        if (x->jobs != y->jobs)
                return x->jobs < y->jobs ? 1 : -1;
        return strcmp(x->name, y->name);
}

static size_t find_family(struct family *families, size_t *n, const char *name)
{
        for (size_t i = 0; i < *n; i++)
                if (strcmp(families[i].name, name) == 0)
                        return i;
        families[*n] = (struct family){.name = name};
        return (*n)++;
}

/* Deals the families into folds, the largest first, each into the fold with the fewest jobs. With
 * too few families, each job counts as a family. */
static int deal(const struct data *data, const char *left_out, unsigned most, unsigned char *ret,
                unsigned *ret_folds, size_t *ret_families)
{
        _cleanup_free_ struct family *families = calloc(data->n_jobs + 1, sizeof(*families));
        size_t n = 0, filled[FIT_FOLDS_MAX] = {0};
        bool by_job;

        if (!families)
                return -ENOMEM;
        for (size_t j = 0; j < data->n_jobs; j++)
                if (!left_out || !left_out[j])
                        families[find_family(families, &n, data->jobs[j].family)].jobs++;
        *ret_families = n;
        by_job = n < FOLDS_MIN;
        if (by_job) {
                n = 0;
                for (size_t j = 0; j < data->n_jobs; j++)
                        families[find_family(families, &n, data->jobs[j].job.name)].jobs = 1;
        }
        *ret_folds = (unsigned)MIN(MIN((size_t)most, n), (size_t)FIT_FOLDS_MAX);
        if (*ret_folds < FOLDS_MIN)
                return -ENODATA;
        qsort(families, n, sizeof(*families), larger_first);
        for (size_t i = 0; i < n; i++) {
                unsigned least = 0;

                for (unsigned k = 1; k < *ret_folds; k++)
                        if (filled[k] < filled[least])
                                least = k;
                families[i].fold = least;
                filled[least] += families[i].jobs;
        }
        for (size_t j = 0; j < data->n_jobs; j++)
                for (size_t i = 0; i < n; i++)
                        if (strcmp(families[i].name,
                                   by_job ? data->jobs[j].job.name : data->jobs[j].family) == 0)
                                ret[j] = (unsigned char)families[i].fold;
        return 0;
}

/* ---- rows ---- */

static bool is_used(const struct fit *f, const struct data_pair *p)
{
        const char *out = f->options->left_out;

        return p->way == f->way && !(out && (out[p->jobs[0]] || out[p->jobs[1]]));
}

static void add_rows(struct fit *f, const struct features *jobs, size_t pair)
{
        const struct data_pair *p = &f->data->pairs[pair];

        features_rows(&jobs[p->jobs[0]], &jobs[p->jobs[1]], f->x + f->n * FEATURES);
        for (unsigned side = 0; side < 2; side++, f->n++) {
                f->progress[f->n] = p->progress[side];
                f->pair[f->n] = (unsigned)pair;
                f->fold[f->n][0] = f->job_fold[p->jobs[side]];
                f->fold[f->n][1] = f->job_fold[p->jobs[!side]];
        }
}

static void fit_clear(struct fit *f)
{
        free(f->x);
        free(f->progress);
        free(f->pair);
        free(f->fold);
        free(f->part_x);
        free(f->part_y);
        free(f->check_x);
        free(f->check_y);
        free(f->out);
}

static int gather(struct fit *f, const struct features *jobs)
{
        size_t rows = 0;

        for (size_t i = 0; i < f->data->n_pairs; i++)
                rows += 2 * is_used(f, &f->data->pairs[i]);
        f->x = calloc(rows + 1, FEATURES * sizeof(*f->x));
        f->progress = calloc(rows + 1, sizeof(*f->progress));
        f->pair = calloc(rows + 1, sizeof(*f->pair));
        f->fold = calloc(rows + 1, sizeof(*f->fold));
        f->part_x = calloc(rows + 1, FEATURES * sizeof(*f->part_x));
        f->part_y = calloc(rows + 1, sizeof(*f->part_y));
        f->check_x = calloc(rows + 1, FEATURES * sizeof(*f->check_x));
        f->check_y = calloc(rows + 1, sizeof(*f->check_y));
        f->out = calloc(rows + 1, sizeof(*f->out));
        if (!f->x || !f->progress || !f->pair || !f->fold || !f->part_x || !f->part_y ||
            !f->check_x || !f->check_y || !f->out)
                return no_memory(f->error);
        for (size_t i = 0; i < f->data->n_pairs; i++)
                if (is_used(f, &f->data->pairs[i]))
                        add_rows(f, jobs, i);
        return 0;
}

enum choice {
        WITHOUT,  /* rows that have no job of either fold */
        TOUCHING, /* rows that have a job of the first fold */
        BETWEEN,  /* rows with one job of each fold */
};

static bool is_chosen(const struct fit *f, size_t row, enum choice choice, unsigned i, unsigned j)
{
        const unsigned a = f->fold[row][0], b = f->fold[row][1];

        if (choice == WITHOUT)
                return a != i && a != j && b != i && b != j;
        if (choice == TOUCHING)
                return a == i || b == i;
        return (a == i && b == j) || (a == j && b == i);
}

/* Copies the chosen rows. Returns how many there are. */
static size_t choose(const struct fit *f, enum choice choice, unsigned i, unsigned j,
                     enum model_target target, float *x, float *y)
{
        size_t n = 0;

        for (size_t row = 0; row < f->n; row++) {
                const float *from = f->x + row * FEATURES;

                if (!is_chosen(f, row, choice, i, j))
                        continue;
                memcpy(x + n * FEATURES, from, FEATURES * sizeof(*x));
                y[n++] = (float)model_to_target(target, f->way, from, f->progress[row]);
        }
        return n;
}

/* ---- trees ---- */

/* Trains without the rows of folds i and j. check: stops when the rows of fold i gain nothing more.
 * Returns 1; or 0: there are too few rows. */
static int train(struct fit *f, const struct candidate *c, unsigned i, unsigned j, bool check,
                 unsigned rounds, struct trees **ret)
{
        struct trees_options o = usual;
        struct trees_rows rows = {.x = f->part_x, .y = f->part_y, .columns = FEATURES};
        struct trees_rows checked = {.x = f->check_x, .y = f->check_y, .columns = FEATURES};
        char why[TREES_ERROR_MAX];
        int r;

        o.threads = f->options->threads;
        o.least_weight = MIN(o.least_weight, (double)f->n / ROWS_PER_LEAF);
        o.signs = c->with_signs ? feature_signs : NULL;
        o.rounds = rounds ? rounds : o.rounds;
        rows.rows = choose(f, WITHOUT, i, j, c->target, f->part_x, f->part_y);
        if (check)
                checked.rows = choose(f, TOUCHING, i, j, c->target, f->check_x, f->check_y);
        if (rows.rows < 2 || (check && checked.rows == 0))
                return 0;
        r = trees_train(&rows, check ? &checked : NULL, &o, ret, why);
        if (r < 0)
                return model_fail(f->error, r, "%s", why);
        return 1;
}

/* Predicts the chosen rows. ret_predicted has a place for each row; the others stay as they are. */
static int predict(struct fit *f, struct trees *trees, const struct candidate *c,
                   enum choice choice, unsigned i, unsigned j, double *ret_predicted)
{
        struct trees_rows rows = {.x = f->check_x, .columns = FEATURES};
        char why[TREES_ERROR_MAX];
        size_t n = 0;
        int r;

        rows.rows = choose(f, choice, i, j, c->target, f->check_x, f->check_y);
        r = trees_predict(trees, &rows, f->options->threads, f->out, why);
        if (r < 0)
                return model_fail(f->error, r, "%s", why);
        for (size_t row = 0; row < f->n; row++)
                if (is_chosen(f, row, choice, i, j))
                        ret_predicted[row] = model_from_target(
                                c->target, f->way, f->x + row * FEATURES, (double)f->out[n++]);
        return 0;
}

static int compare_counts(const void *a, const void *b)
{
        return (*(const unsigned *)a > *(const unsigned *)b) -
               (*(const unsigned *)a < *(const unsigned *)b);
}

/* Tries one candidate on every fold. Writes its mean error, and how many trees it takes. */
static int try_candidate(struct fit *f, const struct candidate *c, double *predicted,
                         double *ret_error, unsigned *ret_rounds)
{
        unsigned rounds[FIT_FOLDS_MAX], tried = 0;
        double sum = 0;
        size_t n = 0;

        for (unsigned k = 0; k < f->folds; k++) {
                struct trees *trees = NULL;
                int r = train(f, c, k, k, true, 0, &trees);

                if (r == 0)
                        continue;
                if (r > 0)
                        r = predict(f, trees, c, TOUCHING, k, k, predicted);
                if (r == 0)
                        rounds[tried++] = trees_rounds(trees);
                trees_free(trees);
                if (r < 0)
                        return r;
                for (size_t row = 0; row < f->n; row++)
                        if (is_chosen(f, row, TOUCHING, k, k)) {
                                sum += fabs(predicted[row] - f->progress[row]) /
                                       MAX(f->progress[row], ERROR_LEAST);
                                n++;
                        }
        }
        if (tried == 0)
                return -ENODATA;
        qsort(rounds, tried, sizeof(*rounds), compare_counts);
        *ret_rounds = rounds[tried / 2];
        *ret_error = sum / (double)n;
        return 0;
}

static int try_all(struct fit *f, double *predicted, const struct candidate **ret,
                   unsigned *ret_rounds)
{
        double least = INFINITY;

        for (size_t i = 0; i < ARRAY_SIZE(candidates); i++) {
                const struct candidate *c = &candidates[i];
                unsigned rounds;
                double error;
                int r = try_candidate(f, c, predicted, &error, &rounds);

                if (r < 0)
                        return r;
                tell_fit(f, "%s: target %s%s: mean error %.2f %% with one family unseen, %u trees",
                         way_names[f->way], model_target_names[c->target],
                         c->with_signs ? " with signs" : "", error * 100, rounds);
                if (error < least) {
                        least = error;
                        *ret = c;
                        *ret_rounds = rounds;
                }
        }
        return 0;
}

/* Predicts each row by trees that saw the family of neither job. */
static int predict_unseen(struct fit *f, const struct candidate *c, unsigned rounds,
                          double *predicted)
{
        for (size_t row = 0; row < f->n; row++)
                predicted[row] = NAN;
        for (unsigned i = 0; i < f->folds; i++)
                for (unsigned j = i; j < f->folds; j++) {
                        struct trees *trees = NULL;
                        int r = train(f, c, i, j, false, rounds, &trees);

                        if (r > 0)
                                r = predict(f, trees, c, BETWEEN, i, j, predicted);
                        trees_free(trees);
                        if (r < 0)
                                return r;
                }
        return 0;
}

/* Blends the formulae with the predictions of trees that saw neither family. Returns the weight of
 * the trees that gives the least error. */
static double blend(const struct fit *f, double *predicted)
{
        double best = 1, least = INFINITY;

        for (size_t p = 0; p < ARRAY_SIZE(parts); p++) {
                double sum = 0;

                for (size_t row = 0; row < f->n; row++)
                        if (isfinite(predicted[row]))
                                sum += fabs(model_blend(f->way, f->x + row * FEATURES,
                                                        predicted[row], parts[p]) -
                                            f->progress[row]) /
                                       MAX(f->progress[row], ERROR_LEAST);
                if (sum < least) {
                        least = sum;
                        best = parts[p];
                }
        }
        for (size_t row = 0; row < f->n; row++)
                predicted[row] = model_blend(f->way, f->x + row * FEATURES, predicted[row], best);
        return best;
}

/* Calibrates by the rows that were predicted; the two rows of a pair are next to each other. */
static int calibrate_way(const struct fit *f, const double *predicted, struct model_way *w)
{
        _cleanup_free_ struct calibrate_pair *pairs = calloc(f->n, sizeof(*pairs));
        size_t n = 0;

        if (!pairs)
                return no_memory(f->error);
        for (size_t row = 0; row + 1 < f->n; row += 2) {
                if (!isfinite(predicted[row]) || !isfinite(predicted[row + 1]))
                        continue;
                for (unsigned side = 0; side < 2; side++) {
                        pairs[n].predicted[side] = predicted[row + side];
                        pairs[n].measured[side] = f->progress[row + side];
                }
                n++;
        }
        return n == 0 ? -ENODATA : calibrate(pairs, n, w);
}

static size_t count_jobs(const struct fit *f)
{
        _cleanup_free_ char *seen = calloc(f->data->n_jobs + 1, 1);
        size_t n = 0;

        for (size_t row = 0; seen && row < f->n; row++)
                for (unsigned side = 0; side < 2; side++) {
                        char *s = &seen[f->data->pairs[f->pair[row]].jobs[side]];

                        n += !*s;
                        *s = 1;
                }
        return n;
}

static int fit_way(struct fit *f, struct model_way *ret)
{
        _cleanup_free_ double *predicted = calloc(f->n + 1, sizeof(*predicted));
        const struct candidate *best = NULL;
        struct model_way w = {.pairs = f->n / 2, .jobs = count_jobs(f)};
        unsigned rounds = 0;
        int r;

        if (!predicted)
                return no_memory(f->error);
        r = try_all(f, predicted, &best, &rounds);
        if (r == 0)
                r = predict_unseen(f, best, rounds, predicted);
        if (r == 0)
                w.part = blend(f, predicted);
        for (size_t row = 0; r == 0 && f->options->ret_unseen && row < f->n; row++)
                f->options->ret_unseen[f->pair[row]][row % 2] = predicted[row];
        if (r == 0)
                r = calibrate_way(f, predicted, &w);
        if (r == 0) /* no fold has this number, so all rows are trained on */
                r = train(f, best, FIT_FOLDS_MAX, FIT_FOLDS_MAX, false, rounds, &w.trees);
        if (r < 0)
                return r;
        w.target = best->target;
        w.with_signs = best->with_signs;
        *ret = w;
        return 0;
}

/* ---- a model ---- */

static void name_model(const struct data *data, struct model *m)
{
        (void)snprintf(m->gpu, sizeof(m->gpu), "%s", data->gpu);
        (void)snprintf(m->driver, sizeof(m->driver), "%s", data->driver);
        m->idle_w = data->idle_w;
        (void)snprintf(m->sublet, sizeof(m->sublet), "%s", SUBLET_VERSION);
        (void)snprintf(m->xgboost, sizeof(m->xgboost), "%s", trees_version());
        (void)units_format_utc(time(NULL), m->time);
}

/* Fits each way that has enough pairs. Returns how many. */
static int fit_ways(struct fit *f, const struct features *jobs, size_t families, struct model *m)
{
        int fitted = 0;

        for (unsigned way = 0; way < WAYS; way++) {
                struct fit one = *f;
                int r;

                one.way = (enum way)way;
                r = gather(&one, jobs);
                if (r == 0 && one.n >= 2 * FIT_PAIRS_MIN) {
                        r = fit_way(&one, &m->ways[way]);
                        m->ways[way].families = families;
                        fitted += r == 0;
                        if (r == -ENODATA) { /* all pairs of the way are of one fold */
                                tell_fit(&one, "%s: too few families; it is left out",
                                         way_names[way]);
                                r = 0;
                        }
                } else if (r == 0 && one.n > 0) {
                        tell_fit(&one, "%s: %zu pairs, and %d are the least; it is left out",
                                 way_names[way], one.n / 2, FIT_PAIRS_MIN);
                }
                fit_clear(&one);
                if (r < 0)
                        return r;
        }
        return fitted;
}

int fit_model(const struct data *data, const struct fit_options *options, struct model *ret,
              char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ struct features *jobs = calloc(data->n_jobs + 1, sizeof(*jobs));
        _cleanup_free_ unsigned char *job_fold = calloc(data->n_jobs + 1, 1);
        struct fit f = {.data = data, .options = options, .error = error, .job_fold = job_fold};
        _cleanup_model_ struct model m = {0};
        size_t families;
        int r;

        if (!jobs || !job_fold)
                return no_memory(error);
        for (size_t j = 0; j < data->n_jobs; j++)
                features_of(&data->jobs[j].job, &jobs[j]);
        for (size_t i = 0; options->ret_unseen && i < data->n_pairs; i++)
                options->ret_unseen[i][0] = options->ret_unseen[i][1] = NAN;
        r = deal(data, options->left_out, options->folds, job_fold, &f.folds, &families);
        if (r == -ENODATA)
                return model_fail(error, r, "the pairs are of fewer than %d jobs", FOLDS_MIN);
        if (r == -ENOMEM)
                return no_memory(error);
        if (r < 0)
                return r;
        name_model(data, &m);
        r = fit_ways(&f, jobs, families, &m);
        if (r == 0)
                r = model_fail(error, -ENODATA,
                               "no way has the %d measured pairs that training takes",
                               FIT_PAIRS_MIN);
        if (r < 0)
                return r;
        *ret = m;
        m = (struct model){0};
        return 0;
}
