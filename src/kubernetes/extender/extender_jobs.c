/* extender_jobs.c: owns the job files in use, the model, and the predictions. Must never predict
 * what the nodes do not do: jobs that fit a card run on it together, and others take turns. */
#include "kubernetes/extender/extender_jobs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/text.h"
#include "job/job.h"
#include "pairing/model.h"
#include "pairing/pairs.h"

#define ENDING ".json"

/* What is remembered of two jobs. */
struct forecast {
        float progress[2];
        signed char way; /* an enum way; -1: nothing predicts them */
        bool by_model;
};

struct jobs {
        const char *folder;
        struct model model;
        bool has_model;
        struct job *list; /* sorted by name, which is that of the file */
        size_t n;
        struct pairs pairs;
        struct forecast **rows; /* n of them; NULL: not predicted yet */
        size_t warm;            /* rows before this one are predicted */
        uint64_t state;         /* state of the folder when it was read last */
        char told[JOBS_ERROR_MAX];
};

/* ---- one set of jobs ---- */

static void cleanup_dir(DIR **d)
{
        if (*d)
                (void)closedir(*d);
}

static void forget(struct jobs *j)
{
        pairs_close(&j->pairs);
        for (size_t i = 0; i < j->n; i++) {
                job_free(&j->list[i]);
                free(j->rows[i]);
        }
        free(j->list);
        free(j->rows);
        j->list = NULL;
        j->rows = NULL;
        j->n = j->warm = 0;
}

/* Logs each trouble once. */
static void tell_trouble(struct jobs *j, const char *trouble)
{
        if (strcmp(trouble, j->told) == 0)
                return;
        (void)text_copy(j->told, sizeof(j->told), trouble);
        log_warning("%s", j->told);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(((const struct job *)a)->name, ((const struct job *)b)->name);
}

static int by_name_of(const void *name, const void *job)
{
        return strcmp(name, ((const struct job *)job)->name);
}

int jobs_find(const struct jobs *j, const char *name)
{
        const struct job *found =
                j->n ? bsearch(name, j->list, j->n, sizeof(*j->list), by_name_of) : NULL;

        return found ? (int)(found - j->list) : -ENOENT;
}

const char *jobs_gpu(const struct jobs *j)
{
        return j->has_model ? j->model.gpu : j->n ? j->list[0].measured.gpu : "";
}

/* ---- the folder ---- */

/* Kubelet puts the files of a ConfigMap behind links whose names begin with a point. */
static bool is_job_file(const char *name)
{
        const size_t n = strlen(name), ending = strlen(ENDING);

        return name[0] != '.' && n > ending && n - ending < JOB_NAME_MAX &&
               strcmp(name + n - ending, ENDING) == 0;
}

static int choose_file(const struct dirent *d)
{
        return is_job_file(d->d_name);
}

static uint64_t state_of(const struct jobs *j, struct dirent **names, int n)
{
        uint64_t hash = HASH_BASIS;

        for (int i = 0; i < n; i++) {
                char path[PATH_MAX];
                struct stat st = {0};

                (void)snprintf(path, sizeof(path), "%s/%s", j->folder, names[i]->d_name);
                (void)stat(path, &st);
                hash = hash_add(hash, names[i]->d_name, strlen(names[i]->d_name) + 1);
                hash = hash_add(hash, &st.st_mtim, sizeof(st.st_mtim));
                hash = hash_add(hash, &st.st_ino, sizeof(st.st_ino));
                hash = hash_add(hash, &st.st_size, sizeof(st.st_size));
        }
        return hash;
}

/* Reads one file. If it cannot be used, takes over the job of an earlier file of this name. */
static int take_file(struct jobs *j, const char *file, const char *gpu, struct job *ret)
{
        char path[PATH_MAX], name[JOB_NAME_MAX], error[JOB_ERROR_MAX], line[JOBS_ERROR_MAX];
        struct job job;
        int at;

        (void)snprintf(name, sizeof(name), "%.*s", (int)(strlen(file) - strlen(ENDING)), file);
        (void)snprintf(path, sizeof(path), "%s/%s", j->folder, file);
        if (job_read(path, &job, error) == 0) {
                (void)strcpy(job.name, name);
                if (!*gpu || !*job.measured.gpu || strcmp(job.measured.gpu, gpu) == 0) {
                        *ret = job;
                        return 0;
                }
                (void)snprintf(line, sizeof(line),
                               "job %s is left out: it was measured on %s, and the predictions are "
                               "for %s",
                               name, job.measured.gpu, gpu);
                tell_trouble(j, line);
                job_free(&job);
                return -ENOENT;
        }
        at = jobs_find(j, name);
        if (at < 0)
                (void)snprintf(line, sizeof(line), "%s; the job is left out", error);
        else
                (void)snprintf(line, sizeof(line), "%s; the last good file stays", error);
        tell_trouble(j, line);
        if (at < 0)
                return -ENOENT;
        *ret = j->list[at];
        job_init(&j->list[at]); /* ret owns its contents now */
        (void)strcpy(j->list[at].name, name);
        return 0;
}

/* Replaces the jobs by the new ones. */
static int use(struct jobs *j, struct job *list, size_t n)
{
        char error[PAIRS_ERROR_MAX];
        struct forecast **rows = calloc(n + 1, sizeof(*rows));
        int r = rows ? 0 : -ENOMEM;

        forget(j);
        if (r == 0 && n > 0)
                r = pairs_open(list, n, j->has_model ? &j->model : NULL, 0, 0, &j->pairs, error);
        if (r < 0) {
                log_warning("the jobs cannot be used: %s", rows ? error : strerror(ENOMEM));
                for (size_t i = 0; i < n; i++)
                        job_free(&list[i]);
                free(list);
                free(rows);
                return r;
        }
        j->list = list;
        j->rows = rows;
        j->n = n;
        j->pairs.threads = 1; /* in a container, more threads than CPUs would wait for each other */
        return 0;
}

static void read_files(struct jobs *j, struct dirent **names, int n_names)
{
        struct job *list = calloc((size_t)n_names + 1, sizeof(*list));
        char line[JOBS_ERROR_MAX];
        size_t n = 0;

        if (!list)
                return;
        if ((unsigned)n_names > JOBS_MAX) {
                (void)snprintf(line, sizeof(line),
                               "%s has %d job files: those after the first %u are left out",
                               j->folder, n_names, JOBS_MAX);
                tell_trouble(j, line);
        }
        for (int i = 0; i < n_names && n < JOBS_MAX; i++) {
                const char *gpu = j->has_model ? j->model.gpu : n ? list[0].measured.gpu : "";

                if (take_file(j, names[i]->d_name, gpu, &list[n]) == 0)
                        n++;
        }
        qsort(list, n, sizeof(*list), by_name);
        if (use(j, list, n) == 0)
                log_info("knows %zu jobs from %s", n, j->folder);
}

void jobs_refresh(struct jobs *j)
{
        struct dirent **names = NULL;
        char line[JOBS_ERROR_MAX];
        int n = scandir(j->folder, &names, choose_file, alphasort);
        uint64_t state;

        if (n < 0) {
                (void)snprintf(line, sizeof(line), "cannot read the folder %s: %s", j->folder,
                               strerror(errno));
                tell_trouble(j, line);
                return;
        }
        state = state_of(j, names, n);
        if (state != j->state) {
                j->state = state;
                read_files(j, names, n);
        }
        for (int i = 0; i < n; i++)
                free(names[i]);
        free((void *)names);
}

int jobs_open(const char *folder, const char *model_path, struct jobs **ret,
              char error[static JOBS_ERROR_MAX])
{
        _cleanup_(cleanup_dir) DIR *d = opendir(folder);
        struct jobs *j;
        int r;

        if (!d || strlen(folder) + NAME_MAX + 2 > PATH_MAX) {
                r = d ? -ENAMETOOLONG : -errno;
                (void)snprintf(error, JOBS_ERROR_MAX, "cannot read the folder %.300s: %s", folder,
                               strerror(-r));
                return r;
        }
        j = calloc(1, sizeof(*j));
        if (!j) {
                (void)snprintf(error, JOBS_ERROR_MAX, "%s", strerror(ENOMEM));
                return -ENOMEM;
        }
        j->folder = folder;
        r = *model_path ? model_read(model_path, &j->model, error) : 0;
        if (r < 0) {
                free(j);
                return r;
        }
        j->has_model = *model_path;
        jobs_refresh(j);
        *ret = j;
        return 0;
}

void jobs_free(struct jobs *j)
{
        if (!j)
                return;
        forget(j);
        model_free(&j->model);
        free(j);
}

/* ---- predictions ---- */

static struct forecast forecast_of(const struct pairs_pair *p)
{
        /* The daemon's mode auto: both on the card if they fit, and turns if they do not. */
        const enum way way = p->fits ? WAY_SLICED : WAY_TURNS;
        const struct pairs_way *w = &p->ways[way];

        if (!w->possible)
                return (struct forecast){.way = -1};
        return (struct forecast){.way = (signed char)way,
                                 .by_model = w->by_model,
                                 .progress = {(float)w->progress[0], (float)w->progress[1]}};
}

/* Predicts one job beside each job. */
static int predict_row(struct jobs *j, unsigned a)
{
        static const bool ways[WAYS] = {[WAY_SLICED] = true, [WAY_TURNS] = true};
        _cleanup_free_ struct pairs_pair *list = calloc(j->n, sizeof(*list));
        struct forecast *row = calloc(j->n, sizeof(*row));
        char error[PAIRS_ERROR_MAX] = "";
        int r = list && row ? 0 : -ENOMEM;

        for (unsigned b = 0; r == 0 && b < j->n; b++)
                list[b] = (struct pairs_pair){.a = a, .b = b};
        if (r == 0)
                r = pairs_predict(&j->pairs, ways, list, j->n, error);
        if (r < 0) {
                free(row);
                tell_trouble(j, *error ? error : strerror(-r));
                return r;
        }
        for (size_t b = 0; b < j->n; b++)
                row[b] = forecast_of(&list[b]);
        j->rows[a] = row;
        return 0;
}

static struct forecast look_up(struct jobs *j, const struct jobs_pair *pair)
{
        const unsigned a = pair->jobs[0], b = pair->jobs[1];

        if (!j->rows[a] && j->rows[b]) {
                struct forecast f = j->rows[b][a];

                return (struct forecast){.way = f.way,
                                         .by_model = f.by_model,
                                         .progress = {f.progress[1], f.progress[0]}};
        }
        if (!j->rows[a] && predict_row(j, a) < 0)
                return (struct forecast){.way = -1};
        return j->rows[a][b];
}

static double least_of(const struct jobs *j, const struct forecast *f, double bound)
{
        struct pairs_pair stub = {0};

        stub.ways[f->way].by_model = f->by_model;
        return pairs_threshold(&j->pairs, &stub, (enum way)f->way, bound);
}

double jobs_slack(struct jobs *j, const struct jobs_pair *pair)
{
        const struct forecast f = look_up(j, pair);

        if (f.way < 0)
                return 0;
        return fmin((double)f.progress[0] / least_of(j, &f, pair->bounds[0]),
                    (double)f.progress[1] / least_of(j, &f, pair->bounds[1]));
}

int jobs_predict(struct jobs *j, const struct jobs_pair *pair, double *ret_sum)
{
        const struct forecast f = look_up(j, pair);

        if (f.way < 0)
                return -ENOENT;
        if (jobs_slack(j, pair) < 1)
                return -ERANGE;
        *ret_sum = (double)f.progress[0] + (double)f.progress[1];
        return 0;
}

void jobs_why(struct jobs *j, const struct jobs_pair *pair, char ret[static JOBS_WHY_MAX])
{
        const char *a = j->list[pair->jobs[0]].name, *b = j->list[pair->jobs[1]].name;
        const struct forecast f = look_up(j, pair);

        if (f.way < 0)
                (void)snprintf(ret, JOBS_WHY_MAX, "node(s) where nothing predicts job %s beside %s",
                               a, b);
        else
                (void)snprintf(ret, JOBS_WHY_MAX,
                               "node(s) where jobs %s and %s would slow each other too much: "
                               "progress %.2f and %.2f is predicted, and %.2f and %.2f is needed "
                               "(bounds %.2f and %.2f, and a margin)",
                               a, b, (double)f.progress[0], (double)f.progress[1],
                               least_of(j, &f, pair->bounds[0]), least_of(j, &f, pair->bounds[1]),
                               pair->bounds[0], pair->bounds[1]);
}

int jobs_warm(struct jobs *j)
{
        while (j->warm < j->n && j->rows[j->warm])
                j->warm++;
        if (j->warm == j->n)
                return 0;
        return predict_row(j, (unsigned)j->warm) == 0;
}
