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

#define DENSE_PART  0.8 /* of the pairs among jobs of batches is measured … */
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
        unsigned *jobs;                  /* places in data */
        const struct features *features; /* features of all jobs of data */
        /* n × n for each way: progress of the row's job beside the column's; NAN: not measured */
        float *measured[WAYS], *predicted[WAYS];
        const struct model *model;
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
        return model_fail(error, -ENOMEM, "no memory for the evaluation");
}

/* ---- predictions ---- */

static struct features *all_features(const struct data *data)
{
        struct features *f = calloc(data->n_jobs + 1, sizeof(*f));

        for (size_t j = 0; f && j < data->n_jobs; j++)
                features_of(&data->jobs[j].job, &f[j]);
        return f;
}

/* Writes two predictions for each pair of this way that has an unseen job. */
static int predict_way(const struct data *data, const struct model *m, enum way way,
                       const char *unseen, const struct features *features, double (*ret)[2],
                       char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ float *rows = calloc(2 * data->n_pairs + 1, FEATURES * sizeof(*rows));
        _cleanup_free_ double *out = calloc(2 * data->n_pairs + 1, sizeof(*out));
        _cleanup_free_ size_t *at = calloc(data->n_pairs + 1, sizeof(*at));
        size_t n = 0;
        int r;

        if (!rows || !out || !at)
                return no_memory(error);
        for (size_t i = 0; i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];

                if (p->way != way || !(unseen[p->jobs[0]] || unseen[p->jobs[1]]))
                        continue;
                features_rows(&features[p->jobs[0]], &features[p->jobs[1]],
                              rows + 2 * n * FEATURES);
                at[n++] = i;
        }
        r = model_predict(m, way, rows, 2 * n, 0, out, error);
        for (size_t i = 0; r == 0 && i < n; i++)
                for (unsigned side = 0; side < 2; side++)
                        ret[at[i]][side] = out[2 * i + side];
        return r;
}

int evaluate_predict(const struct data *data, const struct model *m, const char *unseen,
                     double (*ret)[2], char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ struct features *features = all_features(data);
        int r = features ? 0 : no_memory(error);

        for (size_t i = 0; i < data->n_pairs; i++)
                ret[i][0] = ret[i][1] = NAN;
        for (unsigned way = 0; r == 0 && way < WAYS; way++)
                if (m->ways[way].trees)
                        r = predict_way(data, m, (enum way)way, unseen, features, ret, error);
        return r;
}

/* ---- the field ---- */

static void field_clear(struct field *f)
{
        free(f->jobs);
        for (unsigned way = 0; way < WAYS; way++) {
                free(f->measured[way]);
                free(f->predicted[way]);
        }
}

static int field_make(struct field *f, const struct data *data, const char *unseen,
                      unsigned *ret_places)
{
        f->jobs = calloc(data->n_jobs + 1, sizeof(*f->jobs));
        for (size_t j = 0; f->jobs && j < data->n_jobs; j++)
                if (unseen[j]) {
                        ret_places[j] = (unsigned)f->n;
                        f->jobs[f->n++] = (unsigned)j;
                }
        for (unsigned way = 0; way < WAYS; way++) {
                f->measured[way] = calloc(f->n * f->n + 1, sizeof(**f->measured));
                f->predicted[way] = calloc(f->n * f->n + 1, sizeof(**f->predicted));
                if (!f->jobs || !f->measured[way] || !f->predicted[way])
                        return -ENOMEM;
                for (size_t i = 0; i < f->n * f->n; i++)
                        f->measured[way][i] = NAN;
        }
        return 0;
}

/* The caller clears the field, also if this fails. */
static int field_open(const struct data *data, const char *unseen, const double (*predicted)[2],
                      struct field *f)
{
        _cleanup_free_ unsigned *places = calloc(data->n_jobs + 1, sizeof(*places));
        int r = places ? field_make(f, data, unseen, places) : -ENOMEM;

        for (size_t i = 0; r == 0 && i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];

                if (!unseen[p->jobs[0]] || !unseen[p->jobs[1]] ||
                    !isfinite(predicted[i][0] + predicted[i][1]))
                        continue;
                for (unsigned side = 0; side < 2; side++) {
                        const size_t at = places[p->jobs[side]] * f->n + places[p->jobs[!side]];

                        f->measured[p->way][at] = (float)p->progress[side];
                        f->predicted[p->way][at] = (float)predicted[i][side];
                }
        }
        return r;
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

/* True if the job's compute units are busier than its memory. */
static bool is_compute_bound(const double *j)
{
        const double compute = MAX(MAX(known(j[JOB_FEATURE_tensor]), known(j[JOB_FEATURE_fp32])),
                                   MAX(known(j[JOB_FEATURE_fp64]), known(j[JOB_FEATURE_fp16])));

        return MAX(compute, known(j[JOB_FEATURE_integer])) > known(j[JOB_FEATURE_dram]);
}

static bool is_measured_in(const struct field *f, enum way way, unsigned i, unsigned k)
{
        return i != k && isfinite(f->measured[way][i * f->n + k]) &&
               isfinite(f->measured[way][k * f->n + i]);
}

/* Returns the first way in which the pair was measured; WAYS: none. */
static enum way plain_way(const struct field *f, unsigned i, unsigned k)
{
        static const enum way order[] = {WAY_SHARED, WAY_SLICED, WAY_TURNS};

        for (unsigned at = 0; at < ARRAY_SIZE(order); at++)
                if (is_measured_in(f, order[at], i, k))
                        return order[at];
        return WAYS;
}

static bool is_measured(const struct field *f, unsigned i, unsigned k)
{
        return plain_way(f, i, k) != WAYS;
}

/* True if two jobs may share by a simple rule. Also says how good that seems: the greater the
 * better. */
static bool is_simple_edge(const struct field *f, enum evaluate_policy policy, unsigned i,
                           unsigned k, double *ret_weight)
{
        const double *a = job_at(f, i), *b = job_at(f, k);
        const struct roof_job roof[2] = {f->features[f->jobs[i]].roof,
                                         f->features[f->jobs[k]].roof};
        double sum = roof_fullest(roof);

        if (policy == EVALUATE_OCCUPANCY)
                sum = known(a[JOB_FEATURE_occupancy]) + known(b[JOB_FEATURE_occupancy]);
        if (policy == EVALUATE_OPPOSITE)
                sum = known(a[JOB_FEATURE_filled]) + known(b[JOB_FEATURE_filled]);
        if (policy == EVALUATE_OPPOSITE && is_compute_bound(a) == is_compute_bound(b))
                return false;
        *ret_weight = 2 - sum;
        return sum <= 1;
}

/* Returns the least progress that each job of a pair must have: measured for the oracle, predicted
 * for the others. */
static double least_of(const struct field *f, enum evaluate_policy policy, enum way way,
                       double bound)
{
        const struct model_way *w = &f->model->ways[way];

        return policy == EVALUATE_ORACLE  ? bound
               : policy == EVALUATE_DELTA ? bound * (1 + w->delta)
                                          : model_threshold(w, bound);
}

/* Chooses the way in which two jobs are paired by this policy, as pairs_choose() does. WAYS: they
 * are not paired. */
static enum way choose_way(const struct field *f, enum evaluate_policy policy, double bound,
                           unsigned i, unsigned k, double *ret_weight)
{
        enum way best = WAYS;

        if (policy < EVALUATE_DELTA)
                return is_measured(f, i, k) && is_simple_edge(f, policy, i, k, ret_weight)
                               ? plain_way(f, i, k)
                               : WAYS;
        *ret_weight = 0;
        for (unsigned way = 0; way < WAYS; way++) {
                const float *by = policy == EVALUATE_ORACLE ? f->measured[way] : f->predicted[way];
                const double one = (double)by[i * f->n + k], other = (double)by[k * f->n + i];
                const double least = least_of(f, policy, (enum way)way, bound);
                double sum = one + other;

                if (!is_measured_in(f, (enum way)way, i, k) || one < least || other < least)
                        continue;
                if (way == WAY_SLICED && policy != EVALUATE_ORACLE)
                        sum *= PAIRS_GAIN;
                if (sum > *ret_weight) {
                        *ret_weight = sum;
                        best = (enum way)way;
                }
        }
        return best;
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

/* Takes the jobs in this order. Each free job gets the last free one that was measured beside
 * it. */
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

                        if (choose_way(f, policy, bound, batch[i], batch[k], &weight) != WAYS)
                                edges[n_edges++] = (struct match_edge){i, k, weight};
                }
        return match_run((unsigned)n, edges, n_edges, MATCH_CARDINALITY, ret_partners);
}

/* Adds what a batch does with these partners. */
static void add_batch(const struct field *f, enum evaluate_policy policy, const unsigned *batch,
                      size_t n, double bound, const unsigned *partners, struct evaluate_sums *ret)
{
        for (unsigned i = 0; i < n; i++) {
                double progress, weight;
                unsigned beside;
                enum way way;

                if (partners[i] == MATCH_NONE) {
                        ret->gpus += 1;
                        ret->progress += 1;
                        continue;
                }
                beside = batch[partners[i]];
                way = policy <= EVALUATE_BANDWIDTH && policy != EVALUATE_OCCUPANCY
                              ? plain_way(f, batch[i], beside)
                              : choose_way(f, policy, bound, batch[i], beside, &weight);
                progress = (double)f->measured[way][batch[i] * f->n + beside];
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
                        add_batch(f, (enum evaluate_policy)p, batch, n, evaluate_bounds[b],
                                  partners, &batch_sums[p]);
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

/* Keeps those jobs of the list that were measured with nearly all others that stay, because only
 * measured pairs can be made. If such jobs are too few, all stay. Returns how many stay. */
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
        /* A batch takes only a part of few jobs, so that batches differ. */
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

static int add_predictions(const struct data *data, const char *unseen,
                           const double (*predicted)[2], const struct features *features,
                           struct evaluate *ret)
{
        for (unsigned way = 0; way < WAYS; way++)
                for (unsigned u = 0; u < EVALUATE_UNSEEN; u++) {
                        struct evaluate_list *l = &ret->of[way][u];

                        l->list = calloc(2 * data->n_pairs + 1, sizeof(*l->list));
                        if (!l->list)
                                return -ENOMEM;
                }
        for (size_t i = 0; i < data->n_pairs; i++) {
                const struct data_pair *p = &data->pairs[i];
                const struct roof_job roof[2] = {features[p->jobs[0]].roof,
                                                 features[p->jobs[1]].roof};
                const int n = unseen[p->jobs[0]] + unseen[p->jobs[1]];
                struct evaluate_list *to = &ret->of[p->way][n == 2 ? EVALUATE_BOTH : EVALUATE_ONE];
                double formula[2];

                if (!isfinite(predicted[i][0] + predicted[i][1]) || n == 0)
                        continue;
                roof_progress(roof, p->way == WAY_SHARED, formula);
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

/* ---- the way that is chosen ---- */

/* For each pair that was measured in several ways, compares the way with the best prediction with
 * the driver's slices. */
static void add_ways(const struct field *f, struct evaluate_ways *ret)
{
        for (unsigned i = 0; i < f->n; i++)
                for (unsigned k = 0; k < i; k++) {
                        const size_t one = i * f->n + k, other = k * f->n + i;
                        double weight, ratio;
                        enum way way;

                        if (!is_measured_in(f, WAY_SLICED, i, k) ||
                            plain_way(f, i, k) == WAY_SLICED)
                                continue;
                        way = choose_way(f, EVALUATE_MARGIN, 0, i, k, &weight);
                        ratio = (double)(f->measured[way][one] + f->measured[way][other]) /
                                (double)(f->measured[WAY_SLICED][one] +
                                         f->measured[WAY_SLICED][other]);
                        ret->least = ret->pairs ? MIN(ret->least, ratio) : ratio;
                        ret->pairs++;
                        ret->worse += ratio < 0.98;
                        ret->sum += ratio;
                }
}

int evaluate_run(const struct data *data, const struct model *m, const char *unseen,
                 const double (*predicted)[2], struct evaluate *ret,
                 char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ struct features *features = all_features(data);
        struct field f = {.features = features, .model = m};
        int r = features ? 0 : -ENOMEM;

        if (r == 0)
                r = add_predictions(data, unseen, predicted, features, ret);
        if (r == 0)
                r = field_open(data, unseen, predicted, &f);
        if (r == 0)
                add_ways(&f, &ret->ways);
        if (r == 0)
                r = try_batches(&f, ret);
        field_clear(&f);
        return r == -ENOMEM ? no_memory(error) : r;
}

void evaluate_free(struct evaluate *e)
{
        for (unsigned way = 0; way < WAYS; way++)
                for (unsigned u = 0; u < EVALUATE_UNSEEN; u++)
                        free(e->of[way][u].list);
        *e = (struct evaluate){0};
}
