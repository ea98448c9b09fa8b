/* command_train.c: sublet train: a model of measured pairs, and what it is worth. Must never judge
 * a model by families that it was trained on. */
#include <errno.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "pairing/commands.h"
#include "pairing/evaluate.h"
#include "pairing/fit.h"

#define OPTIONAL true
#define REQUIRED false
#define NONE     false
#define FOLDS    6
#define UNSTEADY 0.1 /* a rate alone that changes by more than this part is not steady */

struct training {
        const char *output, *held_out;
        bool evaluate, json;
        unsigned threads;
        struct data data;
        char *unseen;           /* one byte for each job: its family is held out */
        double (*predicted)[2]; /* progress of each pair, by trees that have not seen the jobs'
                                   families */
};

#define AT(field)    offsetof(struct training, field)
#define SET_OUTPUT   options_set_text, AT(output)
#define SET_EVALUATE options_set_true, AT(evaluate)
#define SET_HELD_OUT options_set_text, AT(held_out)
#define SET_THREADS  options_set_count, AT(threads), .parameter = 256
#define SET_JSON     options_set_true, AT(json)

static const struct option_row options[] = {
#define TRAIN(id, name_, argument_, placeholder, help_, letter_) \
        {name_, placeholder, help_, SET_##id, .letter = letter_, .optional = argument_},
#include "pairing/options.def"
        {0}};

static void tell_line(const char *line, void *userdata)
{
        (void)fprintf(stderr, "%s\n", line);
}

static int fit(const struct training *t, const char *left_out, struct model *ret)
{
        const struct fit_options o = {.threads = t->threads,
                                      .folds = FOLDS,
                                      .left_out = left_out,
                                      .tell = left_out ? NULL : tell_line,
                                      .ret_unseen = left_out ? NULL : t->predicted};
        char error[MODEL_ERROR_MAX];

        if (fit_model(&t->data, &o, ret, error) < 0)
                return command_fail(STATUS_FAILED, "%s", error);
        return STATUS_OK;
}

/* ---- which families are held out ---- */

static bool is_named(const char *list, const char *family)
{
        const size_t n = strlen(family);

        for (const char *at = list; *at;) {
                const size_t length = strcspn(at, ",");

                if (length == n && strncmp(at, family, n) == 0)
                        return true;
                at += length + (at[length] == ',');
        }
        return false;
}

/* Marks the jobs whose families are held out. Returns how many. */
static size_t hold_out(struct training *t)
{
        size_t n = 0;

        for (size_t j = 0; j < t->data.n_jobs; j++) {
                t->unseen[j] = is_named(t->held_out, t->data.jobs[j].family);
                n += (size_t)t->unseen[j];
        }
        return n;
}

/* ---- what it is worth ---- */

static const struct {
        enum evaluate_unseen unseen;
        bool formula;
        double least;
        const char *name, *key;
} errors_of[] = {
        {EVALUATE_BOTH, false, 0, "both jobs unseen", "both_unseen"},
        {EVALUATE_BOTH, false, EVALUATE_LEAST, "  progress of 0.2 or more", "both_unseen_above"},
        {EVALUATE_BOTH, true, 0, "  formulae without trees", "both_unseen_formulae"},
        {EVALUATE_BOTH, true, EVALUATE_LEAST, "  … progress of 0.2 or more",
         "both_unseen_formulae_above"},
        {EVALUATE_ONE, false, 0, "one job unseen", "one_unseen"},
        {EVALUATE_ONE, false, EVALUATE_LEAST, "  progress of 0.2 or more", "one_unseen_above"},
};

static void print_errors(const struct evaluate_list of[static EVALUATE_UNSEEN])
{
        (void)printf("  %-26s  predictions    mean  median     p90  points of progress\n", "error");
        for (size_t i = 0; i < ARRAY_SIZE(errors_of); i++) {
                struct evaluate_errors sum;

                if (evaluate_errors(&of[errors_of[i].unseen], errors_of[i].least,
                                    errors_of[i].formula, &sum) == 0 &&
                    sum.n > 0)
                        (void)printf("  %-26s  %11zu  %4.1f %%  %4.1f %%  %4.1f %%  %18.3f\n",
                                     errors_of[i].name, sum.n, sum.mean * 100, sum.median * 100,
                                     sum.p90 * 100, sum.points);
        }
}

static void print_table(const struct evaluate *e)
{
        if (e->batches == 0) {
                (void)printf("  too few jobs for batches\n");
                return;
        }
        (void)printf(
                "\n  %zu batches of %zu of %zu jobs; %zu of their %zu pairs were measured, and "
                "only these are made\n\n",
                e->batches, e->batch, e->jobs, e->pairs, e->possible);
        (void)printf("  %-30s  bound  pairs  of the oracle's  jobs in pairs  all jobs  work a GPU  "
                     "of the oracle's\n",
                     "");
        for (unsigned b = 0; b < EVALUATE_BOUNDS; b++)
                for (unsigned p = 0; p < EVALUATE_POLICIES; p++) {
                        const struct evaluate_sums *s = &e->sums[b][p];
                        const struct evaluate_sums *oracle = &e->sums[b][EVALUATE_ORACLE];
                        const double n = (double)e->batches;
                        const double jobs = s->gpus + s->pairs; /* each pair has two */

                        (void)printf("  %-30s  %5.2f  %5.2f", evaluate_names[p], evaluate_bounds[b],
                                     s->pairs / n);
                        if (oracle->pairs > 0)
                                (void)printf("  %13.1f %%", s->pairs / oracle->pairs * 100);
                        else
                                (void)printf("  %15s", "N/A");
                        if (s->paired > 0)
                                (void)printf("  %11.1f %%", s->kept / s->paired * 100);
                        else
                                (void)printf("  %13s", "N/A");
                        (void)printf("  %6.1f %%  %10.3f  %13.1f %%\n",
                                     (jobs - s->paired + s->kept) / jobs * 100,
                                     s->progress / s->gpus, s->of_progress / n * 100);
                }
        (void)printf("\n  jobs in pairs, all jobs: the part that kept the bound\n");
}

static json_t *table_to_json(const struct evaluate *e)
{
        json_t *rows = json_array();

        for (unsigned b = 0; b < EVALUATE_BOUNDS && e->batches; b++)
                for (unsigned p = 0; p < EVALUATE_POLICIES; p++) {
                        const struct evaluate_sums *s = &e->sums[b][p];
                        const struct evaluate_sums *oracle = &e->sums[b][EVALUATE_ORACLE];
                        const double n = (double)e->batches, jobs = s->gpus + s->pairs;
                        json_t *row = json_pack("{sf ss sf sf sf sf}", "bound", evaluate_bounds[b],
                                                "policy", evaluate_names[p], "pairs", s->pairs / n,
                                                "kept_of_all", (jobs - s->paired + s->kept) / jobs,
                                                "work_per_gpu", s->progress / s->gpus,
                                                "of_oracle_work", s->of_progress / n);

                        if (oracle->pairs > 0)
                                (void)json_object_set_new(row, "of_oracle_pairs",
                                                          json_real(s->pairs / oracle->pairs));
                        if (s->paired > 0)
                                (void)json_object_set_new(row, "kept",
                                                          json_real(s->kept / s->paired));
                        (void)json_array_append_new(rows, row);
                }
        return rows;
}

static void add_errors(const struct evaluate_list of[static EVALUATE_UNSEEN], json_t *json)
{
        for (size_t i = 0; i < ARRAY_SIZE(errors_of); i++) {
                struct evaluate_errors sum;

                if (evaluate_errors(&of[errors_of[i].unseen], errors_of[i].least,
                                    errors_of[i].formula, &sum) < 0)
                        continue;
                (void)json_object_set_new(
                        json, errors_of[i].key,
                        sum.n == 0 ? json_null()
                                   : json_pack("{sf sf sf sf sI}", "mean", sum.mean, "median",
                                               sum.median, "p90", sum.p90, "points", sum.points,
                                               "n", (json_int_t)sum.n));
        }
}

static void print_ways(const struct evaluate_ways *w)
{
        if (w->pairs == 0)
                return;
        (void)printf(
                "\nThe best predicted way of %zu unseen pairs that were measured in several: "
                "%.3f of the driver's slices on average, %.3f at least; %zu pairs below 0.98\n",
                w->pairs, w->sum / (double)w->pairs, w->least, w->worse);
}

static void report(const struct training *t, const struct evaluate *e, json_t *answer)
{
        json_t *json = json_object();

        for (unsigned w = 0; w < WAYS; w++) {
                json_t *one;

                if (e->of[w][EVALUATE_BOTH].n + e->of[w][EVALUATE_ONE].n == 0)
                        continue;
                if (!t->json) {
                        (void)printf("\n%s: families that training has not seen\n", way_names[w]);
                        print_errors(e->of[w]);
                }
                one = json_object();
                add_errors(e->of[w], one);
                (void)json_object_set_new(json, way_names[w], one);
        }
        if (!t->json) {
                print_table(e);
                print_ways(&e->ways);
        }
        (void)json_object_set_new(json, "batches",
                                  json_pack("{sI sI sI sI so}", "n", (json_int_t)e->batches, "jobs",
                                            (json_int_t)e->batch, "pairs_measured",
                                            (json_int_t)e->pairs, "pairs_possible",
                                            (json_int_t)e->possible, "table", table_to_json(e)));
        if (e->ways.pairs)
                (void)json_object_set_new(
                        json, "chosen_way",
                        json_pack("{sI sf sf sI}", "pairs", (json_int_t)e->ways.pairs, "mean",
                                  e->ways.sum / (double)e->ways.pairs, "least", e->ways.least,
                                  "worse", (json_int_t)e->ways.worse));
        (void)json_object_set_new(answer, "evaluation", json);
}

/* Without --held-out, judges the predictions that training has left, by trees that saw neither
 * job's family. With it, judges a model that is trained without the families. */
static int evaluate(struct training *t, const struct model *trained, json_t *answer)
{
        _cleanup_model_ struct model without = {0};
        struct evaluate e = {0};
        char error[MODEL_ERROR_MAX];
        int status = STATUS_OK;

        memset(t->unseen, 1, t->data.n_jobs);
        if (t->held_out && hold_out(t) == 0)
                return command_fail(STATUS_USAGE, "--held-out: no job is of the families %s",
                                    t->held_out);
        if (t->held_out)
                status = fit(t, t->unseen, &without);
        if (status == STATUS_OK && t->held_out &&
            evaluate_predict(&t->data, &without, t->unseen, t->predicted, error) < 0)
                status = command_fail(STATUS_FAILED, "%s", error);
        if (status == STATUS_OK &&
            evaluate_run(&t->data, t->held_out ? &without : trained, t->unseen,
                         (const double(*)[2])t->predicted, &e, error) < 0)
                status = command_fail(STATUS_FAILED, "%s", error);
        if (status == STATUS_OK)
                report(t, &e, answer);
        evaluate_free(&e);
        return status;
}

/* ---- training ---- */

static void print_way(enum way way, const struct model_way *w)
{
        (void)printf("%s: %zu pairs of %zu jobs in %zu families; target %s%s; trees count for %.0f "
                     "%%, formulae for the rest\n",
                     way_names[way], w->pairs, w->jobs, w->families, model_target_names[w->target],
                     w->with_signs ? " with signs" : "", w->part * 100);
        (void)printf("  error of families that the trees have not seen: mean %.1f %%, median %.1f "
                     "%%, p90 %.1f %%\n",
                     w->errors.mean * 100, w->errors.median * 100, w->errors.p90 * 100);
        (void)printf("  nine of ten are within %.2f to %.2f of what is predicted; delta %.2f; "
                     "margins at 0.5, 0.7, 0.8: %.2f, %.2f, %.2f\n",
                     w->low, w->high, w->delta, model_threshold(w, 0.5) / 0.5 - 1,
                     model_threshold(w, 0.7) / 0.7 - 1, model_threshold(w, 0.8) / 0.8 - 1);
}

static json_t *model_summary(const struct model *m)
{
        json_t *json = json_object();

        for (unsigned w = 0; w < WAYS; w++) {
                const struct model_way *one = &m->ways[w];

                if (one->trees)
                        (void)json_object_set_new(
                                json, way_names[w],
                                json_pack("{sI sI sI ss sb sf sf sf sf sf}", "pairs",
                                          (json_int_t)one->pairs, "jobs", (json_int_t)one->jobs,
                                          "families", (json_int_t)one->families, "target",
                                          model_target_names[one->target], "signs", one->with_signs,
                                          "part", one->part, "mean", one->errors.mean, "median",
                                          one->errors.median, "p90", one->errors.p90, "delta",
                                          one->delta));
        }
        return json;
}

static int train(struct training *t, struct model *ret, json_t *answer)
{
        char path[PATH_MAX], error[MODEL_ERROR_MAX];
        int status = fit(t, NULL, ret);

        if (status != STATUS_OK)
                return status;
        if (!t->output && model_own_path(ret->gpu, path, sizeof(path), error) < 0)
                return command_fail(STATUS_FAILED, "%s", error);
        if (model_write(ret, t->output ? t->output : path, error) < 0)
                return command_fail(STATUS_FAILED, "%s", error);
        (void)json_object_set_new(answer, "model", json_string(t->output ? t->output : path));
        (void)json_object_set_new(answer, "ways", model_summary(ret));
        if (t->json)
                return STATUS_OK;
        (void)printf("model of %s: %s\n", ret->gpu, t->output ? t->output : path);
        for (unsigned w = 0; w < WAYS; w++)
                if (ret->ways[w].trees)
                        print_way((enum way)w, &ret->ways[w]);
        return STATUS_OK;
}

/* Names the jobs whose rate alone has changed: their progress is less certain. Counts the pairs
 * whose progress cannot be true. */
static void report_doubts(const struct training *t, json_t *answer)
{
        json_t *list = json_array();
        size_t measured = 0;

        for (size_t j = 0; j < t->data.n_jobs; j++) {
                const struct data_job *job = &t->data.jobs[j];

                measured += job->moved > 0;
                if (job->moved > UNSTEADY)
                        (void)json_array_append_new(list, json_pack("{ss sf}", "job", job->job.name,
                                                                    "moved", job->moved));
        }
        if (!t->json && json_array_size(list) > 0) {
                (void)printf("%zu of %zu jobs were not steady: their rates alone moved by more "
                             "than %.0f %%\n",
                             json_array_size(list), measured, UNSTEADY * 100);
                for (size_t i = 0; i < json_array_size(list); i++) {
                        const json_t *one = json_array_get(list, i);

                        (void)printf("  %s: %.0f %%\n",
                                     json_string_value(json_object_get(one, "job")),
                                     json_number_value(json_object_get(one, "moved")) * 100);
                }
        }
        (void)json_object_set_new(answer, "unsteady", list);
        if (!t->json && t->data.n_wrong > 0)
                (void)printf("%zu pairs left out, in which a job ran more than %g times as fast as "
                             "alone\n",
                             t->data.n_wrong, DATA_PROGRESS_MAX);
        (void)json_object_set_new(answer, "left_out", json_integer((json_int_t)t->data.n_wrong));
}

int train_main(int argc, char **argv)
{
        struct training t = {.threads = 2};
        _cleanup_model_ struct model m = {0};
        json_t *answer = json_object();
        char error[DATA_ERROR_MAX];
        int words, status = command_options("train", argc, argv, options, &t, &words);

        if (status == STATUS_OK && words == 0)
                status = command_fail(STATUS_USAGE,
                                      "train needs data files, which sublet bench pairs writes");
        if (status == STATUS_OK && t.held_out && !t.evaluate)
                status = command_fail(STATUS_USAGE, "--held-out goes with --evaluate");
        for (int i = 0; status == STATUS_OK && i < words; i++)
                if (data_read(argv[i], &t.data, error) < 0)
                        status = command_fail(STATUS_FAILED, "%s", error);
        if (status == STATUS_OK) {
                t.unseen = calloc(t.data.n_jobs + 1, 1);
                t.predicted = calloc(t.data.n_pairs + 1, sizeof(*t.predicted));
                status = t.unseen && t.predicted ? train(&t, &m, answer)
                                                 : command_fail(STATUS_FAILED, "no memory");
        }
        if (status == STATUS_OK)
                report_doubts(&t, answer);
        if (status == STATUS_OK && t.evaluate)
                status = evaluate(&t, &m, answer);
        if (status == STATUS_OK && t.json)
                status = command_print_json(json_incref(answer));
        json_decref(answer);
        data_free(&t.data);
        free(t.unseen);
        free(t.predicted);
        return status;
}
