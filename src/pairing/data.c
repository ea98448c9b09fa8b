/* data.c: owns the reading of data files. Must never trust a file: each value is checked before it
 * is kept. */
#include "pairing/data.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_text.h"
#include "base/macros.h"
#include "base/text.h"

#define IDLE_W_MAX     1e5
#define PROGRESS_LEAST 0.01 /* a short measurement cannot tell less from nothing */

struct reading {
        const char *path;
        size_t line;
        char *error;
        size_t first_job; /* the first job of this file: its pairs name only its own jobs */
        bool headed;
};

static int fail_data(const struct reading *r, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static int fail_data(const struct reading *r, const char *format, ...)
{
        char what[DATA_ERROR_MAX / 2];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(what, sizeof(what), format, args);
        va_end(args);
        (void)snprintf(r->error, DATA_ERROR_MAX, "%s: line %zu: %s", r->path, r->line, what);
        return -EINVAL;
}

/* Makes room for one entry more. */
static int grow(void **list, size_t n, size_t *room, size_t size, size_t most)
{
        void *bigger;
        size_t wanted;

        if (n < *room)
                return 0;
        wanted = MIN(MAX(*room * 2, (size_t)64), most);
        if (n >= wanted)
                return -E2BIG;
        bigger = reallocarray(*list, wanted, size);
        if (!bigger)
                return -ENOMEM;
        *list = bigger;
        *room = wanted;
        return 0;
}

static int take_head(struct reading *r, const json_t *json, struct data *data)
{
        const json_t *version = json_object_get(json, "sublet_pairs");
        const double idle_w = json_number_value(json_object_get(json, "idle_w"));
        const char *gpu = text_at(json, "gpu");

        if (!json_is_integer(version))
                return fail_data(r,
                                 "this is no data file: its first line has no sublet_pairs; sublet "
                                 "bench pairs writes data files");
        if (json_integer_value(version) != 2)
                return fail_data(
                        r,
                        "the file has version %lld (sublet_pairs), and this sublet reads version 2",
                        (long long)json_integer_value(version));
        if (!*gpu || strlen(gpu) >= sizeof(data->gpu) || !text_is_clean(gpu))
                return fail_data(r, "the key gpu is missing, or names no card");
        if (*data->gpu && strcmp(data->gpu, gpu) != 0)
                return fail_data(r,
                                 "the pairs were measured on %s, and those of the earlier file on "
                                 "%s; train a model for each",
                                 gpu, data->gpu);
        (void)snprintf(data->gpu, sizeof(data->gpu), "%s", gpu);
        (void)text_copy(data->driver, sizeof(data->driver), text_at(json, "driver"));
        if (!(idle_w >= 0 && idle_w <= IDLE_W_MAX))
                return fail_data(r, "idle_w is not within 0 to %g", IDLE_W_MAX);
        if (idle_w > 0)
                data->idle_w = idle_w;
        r->headed = true;
        return 0;
}

static int find_job(const struct reading *r, const struct data *data, const char *name)
{
        for (size_t i = r->first_job; i < data->n_jobs; i++)
                if (strcmp(data->jobs[i].job.name, name) == 0)
                        return (int)i;
        return -ENOENT;
}

static int take_job(struct reading *r, const json_t *json, struct data *data)
{
        struct data_job job = {.synthetic = json_is_true(json_object_get(json, "synthetic"))};
        const char *family = text_at(json, "family");
        char from[256];
        int e;

        if (!*family || strlen(family) >= sizeof(job.family) || !text_is_clean(family))
                return fail_data(r, "the key family is missing, or names no family of jobs");
        (void)snprintf(job.family, sizeof(job.family), "%s", family);
        e = grow((void **)&data->jobs, data->n_jobs, &data->room_jobs, sizeof(*data->jobs),
                 DATA_JOBS_MAX);
        if (e < 0)
                return fail_data(r, "there are too many jobs");
        (void)snprintf(from, sizeof(from), "%.200s: line %zu", r->path, r->line);
        e = job_from_json(json_object_get(json, "job"), from, &job.job, r->error);
        if (e < 0)
                return e;
        if (find_job(r, data, job.job.name) >= 0) {
                e = fail_data(r, "there is a second job %s", job.job.name);
                job_free(&job.job);
                return e;
        }
        data->jobs[data->n_jobs++] = job;
        return 0;
}

static int take_pair(struct reading *r, const json_t *json, struct data *data)
{
        const json_t *names = json_object_get(json, "pair"),
                     *list = json_object_get(json, "progress");
        const json_t *rates = json_object_get(json, "rates");
        struct data_pair pair = {.time = json_number_value(json_object_get(json, "time"))};
        bool wrong = false;

        if (way_read(text_at(json, "way"), &pair.way) < 0)
                return fail_data(r, "way is none of sliced, shared, turns");
        if (json_array_size(names) != 2 || json_array_size(list) != 2)
                return fail_data(r, "pair and progress are no lists of two");
        for (unsigned k = 0; k < 2; k++) {
                const char *name = json_string_value(json_array_get(names, k));
                const int at = name ? find_job(r, data, name) : -ENOENT;
                const double progress = json_number_value(json_array_get(list, k));

                if (at < 0)
                        return fail_data(r, "no line before this one has the job %.100s",
                                         name && text_is_clean(name) ? name : "that pair names");
                if (!json_is_number(json_array_get(list, k)) || !(progress >= 0))
                        return fail_data(r, "progress is no number from 0");
                wrong = wrong || progress > DATA_PROGRESS_MAX;
                pair.jobs[k] = (unsigned)at;
                pair.progress[k] = MAX(progress, PROGRESS_LEAST);
                pair.rates[k] = json_number_value(json_array_get(rates, k));
        }
        if (wrong) {
                data->n_wrong++;
                return 0;
        }
        if (grow((void **)&data->pairs, data->n_pairs, &data->room_pairs, sizeof(*data->pairs),
                 DATA_PAIRS_MAX) < 0)
                return fail_data(r, "there are too many pairs");
        data->pairs[data->n_pairs++] = pair;
        return 0;
}

static int take_alone(struct reading *r, const json_t *json, struct data *data)
{
        const char *name = text_at(json, "alone");
        const int at = find_job(r, data, name);
        struct data_alone alone = {.job = (unsigned)at,
                                   .time = json_number_value(json_object_get(json, "time")),
                                   .rate = json_number_value(json_object_get(json, "rate"))};
        enum way way;

        if (at < 0)
                return fail_data(r, "no line before this one has the job %.100s",
                                 text_is_clean(name) ? name : "that alone names");
        if (way_read(text_at(json, "way"), &way) < 0)
                return fail_data(r, "way is none of sliced, shared, turns");
        if (!(alone.rate > 0))
                return fail_data(r, "rate is not above 0");
        alone.half = way == WAY_SHARED;
        if (grow((void **)&data->alone, data->n_alone, &data->room_alone, sizeof(*data->alone),
                 DATA_ALONE_MAX) < 0)
                return fail_data(r, "there are too many measures alone");
        data->alone[data->n_alone++] = alone;
        return 0;
}

/* ---- rates alone ---- */

static int compare_alone(const void *a, const void *b)
{
        const struct data_alone *x = a, *y = b;

        if (x->job != y->job)
                return x->job < y->job ? -1 : 1;
        if (x->half != y->half)
                return x->half < y->half ? -1 : 1;
        return x->time < y->time ? -1 : x->time > y->time;
}

/* Returns the rate alone at this time: interpolated between the measures before and after, or else
 * that of the nearest measure. 0: it was not measured. */
static double rate_at(const struct data_alone *sorted, size_t n, const struct data_alone *wanted)
{
        size_t low = 0, high = n;
        const struct data_alone *before, *after;

        while (low < high) { /* looks for the first that is not before */
                const size_t middle = low + (high - low) / 2;

                if (compare_alone(&sorted[middle], wanted) < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        before = low > 0 ? &sorted[low - 1] : NULL;
        after = low < n ? &sorted[low] : NULL;
        if (before && (before->job != wanted->job || before->half != wanted->half))
                before = NULL;
        if (after && (after->job != wanted->job || after->half != wanted->half))
                after = NULL;
        if (!before || !after)
                return before ? before->rate : after ? after->rate : 0;
        return before->rate + (after->rate - before->rate) * (wanted->time - before->time) /
                                      MAX(after->time - before->time, 1e-9);
}

static void find_moved(struct data *data, size_t first)
{
        double least = 0, most = 0;

        for (size_t i = first; i < data->n_alone; i++) {
                const struct data_alone *a = &data->alone[i];
                const bool begins = i == first || a[-1].job != a->job || a[-1].half != a->half;
                struct data_job *job = &data->jobs[a->job];

                least = begins ? a->rate : MIN(least, a->rate);
                most = begins ? a->rate : MAX(most, a->rate);
                job->moved = MAX(job->moved, most / least - 1);
        }
}

/* Returns the mean rate of a job, of sorted measures. 0: it was not measured. */
static double mean_rate(const struct data_alone *sorted, size_t n, unsigned job, bool half)
{
        double sum = 0;
        size_t found = 0;

        for (size_t i = 0; i < n; i++)
                if (sorted[i].job == job && sorted[i].half == half) {
                        sum += sorted[i].rate;
                        found++;
                }
        return found ? sum / (double)found : 0;
}

/* Sets the rates of jobs on half of the SMs. */
static void find_halves(struct data *data, size_t first_job, const struct data_alone *sorted,
                        size_t n)
{
        for (size_t j = first_job; j < data->n_jobs; j++) {
                struct job *job = &data->jobs[j].job;
                const double all = mean_rate(sorted, n, (unsigned)j, false),
                             half = mean_rate(sorted, n, (unsigned)j, true);

                if (all > 0 && half > 0)
                        job->steps.half_per_second = half / all * job->steps.per_second;
        }
}

/* Computes progress again, from the rates alone before and after each pair: the pair's line knew
 * only those before. The rates alone of a shared pair are those on half of the SMs. */
static void correct_progress(struct data *data, const struct reading *r, size_t first_pair,
                             size_t first_alone)
{
        const size_t n = data->n_alone - first_alone;
        const struct data_alone *sorted = data->alone + first_alone;

        if (n == 0)
                return;
        qsort(data->alone + first_alone, n, sizeof(*data->alone), compare_alone);
        find_moved(data, first_alone);
        find_halves(data, r->first_job, sorted, n);
        for (size_t i = first_pair; i < data->n_pairs; i++)
                for (unsigned k = 0; k < 2; k++) {
                        struct data_pair *p = &data->pairs[i];
                        const struct data_alone wanted = {
                                .job = p->jobs[k], .half = p->way == WAY_SHARED, .time = p->time};
                        const struct job *job = &data->jobs[p->jobs[k]].job;
                        const double part =
                                wanted.half ? job->steps.half_per_second / job->steps.per_second
                                            : 1;
                        const double rate = rate_at(sorted, n, &wanted) / part;

                        if (p->rates[k] > 0 && rate > 0)
                                p->progress[k] = MIN(MAX(p->rates[k] / rate, PROGRESS_LEAST),
                                                     DATA_PROGRESS_MAX);
                }
}

/* ---- pairs that were measured several times ---- */

static int compare_pairs(const void *a, const void *b)
{
        const struct data_pair *x = a, *y = b;

        if (x->way != y->way)
                return x->way < y->way ? -1 : 1;
        for (unsigned k = 0; k < 2; k++)
                if (x->jobs[k] != y->jobs[k])
                        return x->jobs[k] < y->jobs[k] ? -1 : 1;
        return 0;
}

/* Merges each pair that was measured several times into one, which has the means. */
static void merge_repeats(struct data *data, size_t first)
{
        size_t to = first;

        for (size_t i = first; i < data->n_pairs; i++) {
                struct data_pair *p = &data->pairs[i];

                if (p->jobs[0] > p->jobs[1])
                        *p = (struct data_pair){.jobs = {p->jobs[1], p->jobs[0]},
                                                .way = p->way,
                                                .progress = {p->progress[1], p->progress[0]}};
        }
        qsort(data->pairs + first, data->n_pairs - first, sizeof(*data->pairs), compare_pairs);
        for (size_t i = first, n; i < data->n_pairs; i += n) {
                struct data_pair sum = data->pairs[i];

                for (n = 1; i + n < data->n_pairs &&
                            compare_pairs(&data->pairs[i], &data->pairs[i + n]) == 0;
                     n++)
                        for (unsigned k = 0; k < 2; k++)
                                sum.progress[k] += data->pairs[i + n].progress[k];
                for (unsigned k = 0; k < 2; k++)
                        sum.progress[k] /= (double)n;
                data->pairs[to++] = sum;
        }
        data->n_pairs = to;
}

/* Passes over lines that it does not know: a newer sublet may write some. */
static int take_line(struct reading *r, const char *text, size_t length, struct data *data)
{
        json_error_t where;
        json_auto_t *json = NULL;

        if (strspn(text, " \t\r\n") == length)
                return 0;
        if (length > JOB_FILE_MAX)
                return fail_data(r, "it has more than %u bytes", JOB_FILE_MAX);
        json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
        if (!json) {
                char why[JSON_ERROR_TEXT_LENGTH];

                return fail_data(r, "this is no JSON: %s", text_copy(why, sizeof(why), where.text));
        }
        if (!r->headed)
                return take_head(r, json, data);
        if (json_object_get(json, "job"))
                return take_job(r, json, data);
        if (json_object_get(json, "pair"))
                return take_pair(r, json, data);
        return json_object_get(json, "alone") ? take_alone(r, json, data) : 0;
}

int data_read(const char *path, struct data *data, char error[static DATA_ERROR_MAX])
{
        struct reading r = {.path = path, .error = error, .first_job = data->n_jobs};
        _cleanup_fclose_ FILE *in = fopen(path, "re");
        _cleanup_free_ char *line = NULL;
        const size_t first_pair = data->n_pairs, first_alone = data->n_alone;
        size_t room = 0;
        ssize_t n;
        int e = 0;

        if (!in) {
                e = -errno;
                (void)snprintf(error, DATA_ERROR_MAX, "%s: cannot read it: %s", path, strerror(-e));
                return e;
        }
        while (e == 0 && (n = getline(&line, &room, in)) >= 0) {
                r.line++;
                e = take_line(&r, line, (size_t)n, data);
        }
        if (e == 0 && ferror(in)) {
                e = errno ? -errno : -EIO;
                (void)snprintf(error, DATA_ERROR_MAX, "%s: cannot read it: %s", path, strerror(-e));
        }
        if (e == 0 && !r.headed)
                e = fail_data(&r, "this is no data file: it is empty");
        if (e == 0)
                correct_progress(data, &r, first_pair, first_alone);
        if (e == 0 && data->n_pairs > first_pair)
                merge_repeats(data, first_pair);
        return e;
}

void data_free(struct data *data)
{
        for (size_t i = 0; i < data->n_jobs; i++)
                job_free(&data->jobs[i].job);
        free(data->jobs);
        free(data->pairs);
        free(data->alone);
        *data = (struct data){0};
}
