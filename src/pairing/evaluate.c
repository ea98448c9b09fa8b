/* evaluate.c: owns the comparison of ways to pair jobs. Must never show a model a pair before it
 * has predicted it. */
#include "pairing/evaluate.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "pairing/calibrate.h"
#include "pairing/match.h"
#include "pairing/pairs.h"

#define BATCH   24
#define BATCHES 200

#define DENSE_PART  0.9 /* of the pairs among jobs of batches is measured … */
#define DENSE_LEAST 12  /* … if there are at least so many such jobs */

const double evaluate_bounds[EVALUATE_BOUNDS] = {0.5, 0.7, 0.8};

const char *const evaluate_names[EVALUATE_POLICIES] = {
        [EVALUATE_RANDOM] = "random",
        [EVALUATE_OCCUPANCY] = "sum of occupancy",
        [EVALUATE_BANDWIDTH] = "highest with lowest bandwidth",
        [EVALUATE_OPPOSITE] = "compute with memory (Orion)",
        [EVALUATE_ROOFLINE] = "roofline",
        [EVALUATE_DELTA] = "sublet, delta",
        [EVALUATE_MARGIN] = "sublet, margins",
        [EVALUATE_ORACLE] = "oracle",
};

/* Jobs, and the pairs among them that were measured and predicted. */
struct field {
        size_t n;
        unsigned *jobs;            /* in data */
        struct features *features; /* of all jobs of data */
        /* n × n: progress of the row's job beside the column's; NAN: not measured */
        float *measured, *predicted;
        const struct model_way *way;
};

static uint64_t next_random(uint64_t *state)
{
        /* xorshift64* (S. Vigna, 2016) */
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        return *state * UINT64_C(2685821657736338717);
}

static int no_memory(char error[static MODEL_ERROR_MAX])
{
        (void)snprintf(error, MODEL_ERROR_MAX, "no memory for the evaluation");
        return -ENOMEM;
}

/* ---- predictions of all pairs of a way ---- */

/* Writes two predictions for each pair of data of this way. */
static int predict_all(const struct data *data, const struct model *m, enum way way,
                       const struct features *features, double (*ret)[2],
                       char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ float *rows = calloc(2 * data->n_pairs + 1, FEATURES * sizeof(*rows));
        _cleanup_free_ double *out = calloc(2 * data->n_pairs + 1, sizeof(*out));
        size_t n = 0;
        int r;

        if (!rows || !out)
                return no_memory(error);
        for (size_t i = 0; i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];

                if (p->way != way)
                        continue;
                features_rows(&features[p->jobs[0]], &features[p->jobs[1]], rows + n * FEATURES);
                n += 2;
        }
        r = model_predict(m, way, rows, n, 0, out, error);
        n = 0;
        for (size_t i = 0; r == 0 && i < data->n_pairs; i++)
                for (unsigned side = 0; side < 2 && data->pairs[i].way == way; side++)
                        ret[i][side] = out[n++];
        return r;
}

static struct features *all_features(const struct data *data)
{
        struct features *f = calloc(data->n_jobs + 1, sizeof(*f));

        for (size_t j = 0; f && j < data->n_jobs; j++)
                features_of(&data->jobs[j].job, &f[j]);
        return f;
}

/* ---- the field ---- */

static void field_clear(struct field *f)
{
        free(f->jobs);
        free(f->features);
        free(f->measured);
        free(f->predicted);
}

static int field_open(const struct data *data, const struct model *m, enum way way,
                      const char *unseen, double (*predicted)[2], struct features *features,
                      struct field *ret)
{
        struct field f = {.way = &m->ways[way], .features = features};
        _cleanup_free_ unsigned *place = calloc(data->n_jobs + 1, sizeof(*place));

        f.jobs = calloc(data->n_jobs + 1, sizeof(*f.jobs));
        for (size_t j = 0; f.jobs && place && j < data->n_jobs; j++)
                if (unseen[j]) {
                        place[j] = (unsigned)f.n;
                        f.jobs[f.n++] = (unsigned)j;
                }
        f.measured = calloc(f.n * f.n + 1, sizeof(*f.measured));
        f.predicted = calloc(f.n * f.n + 1, sizeof(*f.predicted));
        *ret = f;
        if (!f.jobs || !place || !f.measured || !f.predicted)
                return -ENOMEM;
        for (size_t i = 0; i < f.n * f.n; i++)
                f.measured[i] = NAN;
        for (size_t i = 0; i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];

                if (p->way != way || !unseen[p->jobs[0]] || !unseen[p->jobs[1]])
                        continue;
                for (unsigned side = 0; side < 2; side++) {
                        const size_t at = place[p->jobs[side]] * f.n + place[p->jobs[!side]];

                        f.measured[at] = (float)p->progress[side];
                        f.predicted[at] = (float)predicted[i][side];
                }
        }
        return 0;
}

/* ---- policies ---- */

static double known(double n)
{
        return isfinite(n) ? n : 0;
}

static const double *job_at(const struct field *f, unsigned i)
{
        return f->features[f->jobs[i]].job;
}

/* Whether the job's compute units are busier than its memory. */
static bool is_compute_bound(const double *j)
{
        const double compute = MAX(MAX(known(j[JOB_FEATURE_tensor]), known(j[JOB_FEATURE_fp32])),
                                   MAX(known(j[JOB_FEATURE_fp64]), known(j[JOB_FEATURE_fp16])));

        return MAX(compute, known(j[JOB_FEATURE_integer])) > known(j[JOB_FEATURE_dram]);
}

static bool is_measured(const struct field *f, unsigned i, unsigned k)
{
        return i != k && isfinite(f->measured[i * f->n + k]) && isfinite(f->measured[k * f->n + i]);
}

/* Whether two jobs may share by this policy, and how good that seems: the greater the better. */
static bool is_edge(const struct field *f, enum evaluate_policy policy, double bound, unsigned i,
                    unsigned k, double *ret_weight)
{
        const double *a = job_at(f, i), *b = job_at(f, k);
        const float *known_by = policy == EVALUATE_ORACLE ? f->measured : f->predicted;
        const double least = policy == EVALUATE_ORACLE  ? bound
                             : policy == EVALUATE_DELTA ? bound * (1 + f->way->delta)
                                                        : model_threshold(f->way, bound);
        const double one = (double)known_by[i * f->n + k], other = (double)known_by[k * f->n + i];
        const struct roof_job roof[2] = {f->features[f->jobs[i]].roof,
                                         f->features[f->jobs[k]].roof};
        double sum;

        if (!is_measured(f, i, k))
                return false;
        switch (policy) {
        case EVALUATE_OCCUPANCY:
                sum = known(a[JOB_FEATURE_occupancy]) + known(b[JOB_FEATURE_occupancy]);
                break;
        case EVALUATE_OPPOSITE:
                sum = known(a[JOB_FEATURE_filled]) + known(b[JOB_FEATURE_filled]);
                if (is_compute_bound(a) == is_compute_bound(b))
                        return false;
                break;
        case EVALUATE_ROOFLINE:
                sum = roof_fullest(roof);
                break;
        default:
                *ret_weight = one + other;
                return one >= least && other >= least;
        }
        *ret_weight = 2 - sum;
        return sum <= 1;
}

struct by_bandwidth {
        double dram;
        unsigned at;
};

static int compare_bandwidth(const void *a, const void *b)
{
        const struct by_bandwidth *x = a, *y = b;

        if (x->dram != y->dram)
                return x->dram < y->dram ? -1 : 1;
        return (x->at > y->at) - (x->at < y->at);
}

/* Each from the first takes the last that is free and was measured beside it. */
static void pair_ends(const struct field *f, const unsigned *batch, const unsigned *order, size_t n,
                      unsigned *ret_partners)
{
        for (size_t i = 0; i < n; i++)
                ret_partners[i] = MATCH_NONE;
        for (size_t i = 0; i < n; i++)
                for (size_t k = n; k-- > i + 1 && ret_partners[order[i]] == MATCH_NONE;) {
                        const unsigned a = order[i], b = order[k];

                        if (ret_partners[b] != MATCH_NONE || !is_measured(f, batch[a], batch[b]))
                                continue;
                        ret_partners[a] = b;
                        ret_partners[b] = a;
                }
}

/* Writes the partners in a batch, whose jobs are places in the field. */
static int pair_batch(const struct field *f, enum evaluate_policy policy, double bound,
                      const unsigned *batch, size_t n, unsigned *ret_partners)
{
        struct match_edge edges[BATCH * BATCH];
        struct by_bandwidth sorted[BATCH];
        unsigned order[BATCH];
        size_t n_edges = 0;

        for (unsigned i = 0; i < n; i++) {
                sorted[i] = (struct by_bandwidth){known(job_at(f, batch[i])[JOB_FEATURE_dram]), i};
                order[i] = i; /* a batch is in random order */
        }
        if (policy == EVALUATE_BANDWIDTH) {
                qsort(sorted, n, sizeof(*sorted), compare_bandwidth);
                for (unsigned i = 0; i < n; i++)
                        order[i] = sorted[i].at;
        }
        if (policy == EVALUATE_BANDWIDTH || policy == EVALUATE_RANDOM) {
                pair_ends(f, batch, order, n, ret_partners);
                return 0;
        }
        for (unsigned i = 0; i < n; i++)
                for (unsigned k = i + 1; k < n; k++) {
                        double weight;

                        if (is_edge(f, policy, bound, batch[i], batch[k], &weight))
                                edges[n_edges++] = (struct match_edge){i, k, weight};
                }
        return match_run((unsigned)n, edges, n_edges, MATCH_CARDINALITY, ret_partners);
}

/* Adds what a batch does with these partners. */
static void add_batch(const struct field *f, const unsigned *batch, size_t n, double bound,
                      const unsigned *partners, struct evaluate_sums *ret)
{
        for (unsigned i = 0; i < n; i++) {
                double progress;

                if (partners[i] == MATCH_NONE) {
                        ret->gpus += 1;
                        ret->progress += 1;
                        continue;
                }
                progress = (double)f->measured[batch[i] * f->n + batch[partners[i]]];
                ret->gpus += 0.5;
                ret->pairs += 0.5;
                ret->paired += 1;
                ret->kept += progress >= bound;
                ret->progress += progress;
        }
}

static int try_batch(const struct field *f, const unsigned *batch, size_t n, struct evaluate *ret)
{
        unsigned partners[BATCH];

        for (unsigned b = 0; b < EVALUATE_BOUNDS; b++) {
                struct evaluate_sums batch_sums[EVALUATE_POLICIES] = {0};
                const struct evaluate_sums *oracle = &batch_sums[EVALUATE_ORACLE];

                for (unsigned p = 0; p < EVALUATE_POLICIES; p++) {
                        int r = pair_batch(f, (enum evaluate_policy)p, evaluate_bounds[b], batch, n,
                                           partners);

                        if (r < 0)
                                return r;
                        add_batch(f, batch, n, evaluate_bounds[b], partners, &batch_sums[p]);
                }
                for (unsigned p = 0; p < EVALUATE_POLICIES; p++) {
                        const struct evaluate_sums *one = &batch_sums[p];
                        struct evaluate_sums *to = &ret->sums[b][p];

                        to->pairs += one->pairs;
                        to->kept += one->kept;
                        to->paired += one->paired;
                        to->progress += one->progress;
                        to->gpus += one->gpus;
                        to->of_progress +=
                                (one->progress / one->gpus) / (oracle->progress / oracle->gpus);
                }
        }
        ret->batches++;
        return 0;
}

/* Leaves those jobs of the list of which nearly all pairs among them were measured: only measured
 * pairs can be made. If such jobs are too few, all stay. Returns how many stay. */
static size_t leave_dense(const struct field *f, unsigned *jobs, size_t n)
{
        _cleanup_free_ unsigned *known = calloc(n + 1, sizeof(*known));
        _cleanup_free_ unsigned *left = calloc(n + 1, sizeof(*left));
        size_t n_left = n;

        if (!known || !left)
                return n;
        for (size_t i = 0; i < n; i++) {
                left[i] = jobs[i];
                for (size_t k = 0; k < n; k++)
                        known[i] += is_measured(f, jobs[i], jobs[k]);
        }
        while (n_left >= DENSE_LEAST) {
                size_t worst = 0;
                unsigned gone;

                for (size_t i = 1; i < n_left; i++)
                        if (known[i] < known[worst])
                                worst = i;
                if (known[worst] >= DENSE_PART * (double)(n_left - 1)) {
                        memcpy(jobs, left, n_left * sizeof(*jobs));
                        return n_left;
                }
                gone = left[worst];
                left[worst] = left[--n_left];
                known[worst] = known[n_left];
                for (size_t i = 0; i < n_left; i++)
                        known[i] -= is_measured(f, left[i], gone);
        }
        return n;
}

static int try_batches(const struct field *f, struct evaluate *ret)
{
        _cleanup_free_ unsigned *order = calloc(f->n + 1, sizeof(*order));
        uint64_t state = 42;
        size_t n_jobs, n;

        if (!order)
                return -ENOMEM;
        for (unsigned i = 0; i < f->n; i++)
                order[i] = i;
        n_jobs = leave_dense(f, order, f->n);
        /* Of few jobs a part, so that batches differ. */
        n = MIN(n_jobs > BATCH ? n_jobs : n_jobs * 3 / 4, (size_t)BATCH);
        ret->jobs += n_jobs;
        ret->possible += n_jobs * (n_jobs - MIN(n_jobs, (size_t)1)) / 2;
        for (size_t i = 0; i < n_jobs; i++)
                for (size_t k = 0; k < i; k++)
                        ret->pairs += is_measured(f, order[i], order[k]);
        if (n < 4)
                return 0;
        ret->batch = MAX(ret->batch, n);
        for (unsigned batch = 0; batch < BATCHES; batch++) {
                int r;

                for (size_t i = 0; i < n; i++) { /* the first n of a random order */
                        const size_t k = i + next_random(&state) % MAX(n_jobs - i, (size_t)1);
                        const unsigned taken = order[k];

                        order[k] = order[i];
                        order[i] = taken;
                }
                r = try_batch(f, order, n, ret);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- errors ---- */

static int add_predictions(const struct data *data, enum way way, const char *unseen,
                           double (*predicted)[2], const struct features *features,
                           struct evaluate *ret)
{
        for (unsigned u = 0; u < EVALUATE_UNSEEN; u++) {
                struct evaluate_prediction *list = realloc(
                        ret->of[u].list, (ret->of[u].n + 2 * data->n_pairs + 1) * sizeof(*list));

                if (!list)
                        return -ENOMEM;
                ret->of[u].list = list;
        }
        for (size_t i = 0; i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];
                const struct roof_job roof[2] = {features[p->jobs[0]].roof,
                                                 features[p->jobs[1]].roof};
                const int n = unseen[p->jobs[0]] + unseen[p->jobs[1]];
                struct evaluate_list *to = &ret->of[n == 2 ? EVALUATE_BOTH : EVALUATE_ONE];
                double formula[2];

                if (p->way != way || n == 0)
                        continue;
                roof_progress(roof, way == WAY_SHARED, formula);
                for (unsigned side = 0; side < 2; side++)
                        to->list[to->n++] = (struct evaluate_prediction){
                                predicted[i][side], formula[side], p->progress[side]};
        }
        return 0;
}

int evaluate_errors(const struct evaluate_list *l, double least, bool formula,
                    struct evaluate_errors *ret)
{
        _cleanup_free_ double *errors = calloc(l->n + 1, sizeof(*errors));
        struct evaluate_errors e = {0};

        if (!errors)
                return -ENOMEM;
        for (size_t i = 0; i < l->n; i++) {
                const struct evaluate_prediction *p = &l->list[i];
                const double off = fabs((formula ? p->formula : p->predicted) - p->measured);

                if (p->measured < least)
                        continue;
                errors[e.n++] = off / p->measured;
                e.mean += off / p->measured;
                e.points += off;
        }
        if (e.n > 0) {
                e.mean /= (double)e.n;
                e.points /= (double)e.n;
                e.median = calibrate_quantile(errors, e.n, 0.5);
                e.p90 = calibrate_quantile(errors, e.n, 0.9);
        }
        *ret = e;
        return 0;
}

int evaluate_add(const struct data *data, const struct model *m, enum way way, const char *unseen,
                 struct evaluate *ret, char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ double(*predicted)[2] = calloc(data->n_pairs + 1, sizeof(*predicted));
        struct features *features = all_features(data);
        struct field f = {.features = features};
        int r = predicted && features ? 0 : -ENOMEM;

        if (r == 0)
                r = predict_all(data, m, way, features, predicted, error);
        if (r == 0)
                r = add_predictions(data, way, unseen, predicted, features, ret);
        if (r == 0)
                r = field_open(data, m, way, unseen, predicted, features, &f);
        if (r == 0)
                r = try_batches(&f, ret);
        field_clear(&f);
        return r == -ENOMEM ? no_memory(error) : r;
}

void evaluate_free(struct evaluate *e)
{
        for (unsigned u = 0; u < EVALUATE_UNSEEN; u++)
                free(e->of[u].list);
        *e = (struct evaluate){0};
}

/* ---- the way that is chosen ---- */

/* Finds the pair of the same two jobs under another way. Returns its place, or -1. */
static long find_pair(const struct data *data, size_t from, enum way way)
{
        const unsigned *jobs = data->pairs[from].jobs;

        for (size_t i = 0; i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];

                if (p->way == way && p->jobs[0] == jobs[0] && p->jobs[1] == jobs[1])
                        return (long)i;
        }
        return -1;
}

/* Chooses among the ways as pairs_choose() does; returns the measured sum of the chosen one. */
static double chosen_sum(const struct data *data, const struct model *m, size_t sliced,
                         double (*predicted[WAYS])[2])
{
        double best = 0, measured = 0;

        for (unsigned way = 0; way < WAYS; way++) {
                const long at = m->ways[way].trees ? find_pair(data, sliced, (enum way)way) : -1;
                double sum;

                if (at < 0)
                        continue;
                sum = predicted[way][at][0] + predicted[way][at][1];
                if (way == WAY_SLICED)
                        sum *= PAIRS_GAIN;
                if (sum > best) {
                        best = sum;
                        measured = data->pairs[at].progress[0] + data->pairs[at].progress[1];
                }
        }
        return measured;
}

int evaluate_add_ways(const struct data *data, const struct model *m, const char *unseen,
                      struct evaluate_ways *ret, char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ struct features *features = all_features(data);
        double(*predicted[WAYS])[2] = {0};
        int r = features ? 0 : -ENOMEM;

        for (unsigned way = 0; r == 0 && way < WAYS; way++) {
                predicted[way] = calloc(data->n_pairs + 1, sizeof(**predicted));
                r = !predicted[way] ? -ENOMEM
                    : m->ways[way].trees
                            ? predict_all(data, m, (enum way)way, features, predicted[way], error)
                            : 0;
        }
        for (size_t i = 0; r == 0 && i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];
                double ratio;

                if (p->way != WAY_SLICED || !m->ways[WAY_SLICED].trees || !unseen[p->jobs[0]] ||
                    !unseen[p->jobs[1]])
                        continue;
                if (find_pair(data, i, WAY_SHARED) < 0 && find_pair(data, i, WAY_TURNS) < 0)
                        continue;
                ratio = chosen_sum(data, m, i, predicted) / (p->progress[0] + p->progress[1]);
                ret->least = ret->pairs ? MIN(ret->least, ratio) : ratio;
                ret->pairs++;
                ret->worse += ratio < 0.98;
                ret->sum += ratio;
        }
        for (unsigned way = 0; way < WAYS; way++)
                free(predicted[way]);
        return r == -ENOMEM ? no_memory(error) : r;
}
