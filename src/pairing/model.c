/* model.c: owns the file of a model, and the way from trees to progress. Must never train. */
#include "pairing/model.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/folders.h"
#include "base/json_text.h"
#include "base/macros.h"
#include "base/text.h"
#include "base/xdg.h"

#define FILE_MAX       (256u << 20)
#define PROGRESS_LEAST 0.01
#define LOG_LEAST      0.05 /* the logarithm of less would drown all other errors */
#define PROGRESS_MOST  1.2
#define CHUNK          16384 /* rows predicted at once */

const char *const model_target_names[MODEL_TARGETS] = {
        [MODEL_PROGRESS] = "progress",
        [MODEL_LOG] = "log",
        [MODEL_RATIO] = "ratio",
};

int model_fail(char error[static MODEL_ERROR_MAX], int r, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        (void)vsnprintf(error, MODEL_ERROR_MAX, format, args);
        va_end(args);
        return r;
}

/* ---- predictions ---- */

static double estimate(enum way way, const float *row)
{
        const unsigned at = 2 * JOB_FEATURES + (way == WAY_SHARED ? PAIR_FEATURE_roof_shared
                                                                  : PAIR_FEATURE_roof_sliced);

        return isfinite(row[at]) ? MAX((double)row[at], PROGRESS_LEAST) : 1;
}

double model_to_target(enum model_target target, enum way way, const float *row, double progress)
{
        if (target == MODEL_PROGRESS)
                return progress;
        if (target == MODEL_LOG)
                return log(MAX(progress, LOG_LEAST));
        return log(MAX(progress, PROGRESS_LEAST)) - log(estimate(way, row));
}

double model_from_target(enum model_target target, enum way way, const float *row, double value)
{
        const double p = target == MODEL_PROGRESS ? value
                         : target == MODEL_LOG    ? exp(value)
                                                  : exp(value) * estimate(way, row);

        return MIN(MAX(p, PROGRESS_LEAST), PROGRESS_MOST);
}

double model_blend(enum way way, const float *row, double predicted, double part)
{
        return pow(predicted, part) * pow(estimate(way, row), 1 - part);
}

int model_predict(const struct model *m, enum way way, const float *rows, size_t n,
                  unsigned threads, double *ret, char error[static MODEL_ERROR_MAX])
{
        const struct model_way *w = &m->ways[way];
        _cleanup_free_ float *out = malloc(CHUNK * sizeof(*out));
        char why[TREES_ERROR_MAX];

        if (!out)
                return model_fail(error, -ENOMEM, "no memory for the predictions");
        for (size_t at = 0; at < n; at += CHUNK) {
                const struct trees_rows part = {.x = rows + at * FEATURES,
                                                .rows = MIN(n - at, (size_t)CHUNK),
                                                .columns = FEATURES};
                int r = trees_predict(w->trees, &part, threads, out, why);

                if (r < 0)
                        return model_fail(error, r, "%s", why);
                for (size_t i = 0; i < part.rows; i++) {
                        const float *row = part.x + i * FEATURES;

                        ret[at + i] = model_blend(
                                way, row, model_from_target(w->target, way, row, (double)out[i]),
                                w->part);
                }
        }
        return 0;
}

double model_threshold(const struct model_way *w, double bound)
{
        /* Take the margin of the table's least bound that is not smaller. */
        const double at = ceil(bound * (MODEL_MARGINS + 1) - 1e-9) - 1;

        return bound * w->margins[(unsigned)MIN(MAX(at, 0.0), MODEL_MARGINS - 1.0)];
}

/* ---- writing ---- */

static json_t *names_to_json(void)
{
        json_t *list = json_array();

        for (unsigned i = 0; i < FEATURES; i++)
                if (json_array_append_new(list, json_string(feature_names[i])) < 0) {
                        json_decref(list);
                        return NULL;
                }
        return list;
}

static json_t *way_to_json(const struct model_way *w, char error[static MODEL_ERROR_MAX])
{
        _cleanup_free_ char *text = NULL;
        json_auto_t *margins = json_array();
        char why[TREES_ERROR_MAX];
        json_t *trees;
        size_t length;

        if (trees_write(w->trees, &text, &length, why) < 0) {
                (void)model_fail(error, 0, "%s", why);
                return NULL;
        }
        trees = json_loadb(text, length, 0, NULL);
        for (unsigned i = 0; i < MODEL_MARGINS; i++)
                (void)json_array_append_new(margins, json_real(w->margins[i]));
        return json_pack("{ss sb sf si si si s{sf sf sf} s[ff] s[ff] sf sO so}", "target",
                         model_target_names[w->target], "signs", w->with_signs, "part", w->part,
                         "pairs", (int)w->pairs, "jobs", (int)w->jobs, "families", (int)w->families,
                         "errors", "mean", w->errors.mean, "median", w->errors.median, "p90",
                         w->errors.p90, "interval", w->low, w->high, "sum_interval", w->sum_low,
                         w->sum_high, "delta", w->delta, "margins", margins, "trees", trees);
}

static json_t *model_to_json(const struct model *m, char error[static MODEL_ERROR_MAX])
{
        json_t *json = json_pack("{si ss ss sf ss ss ss so s{}}", "sublet_pairing", MODEL_VERSION,
                                 "gpu", m->gpu, "driver", m->driver, "idle_w", m->idle_w, "sublet",
                                 m->sublet, "xgboost", m->xgboost, "time", m->time, "features",
                                 names_to_json(), "ways");

        (void)model_fail(error, 0, "no memory for the model");
        for (unsigned w = 0; json && w < WAYS; w++) {
                json_t *way = m->ways[w].trees ? way_to_json(&m->ways[w], error) : NULL;

                if (m->ways[w].trees &&
                    json_object_set_new(json_object_get(json, "ways"), way_names[w], way) < 0) {
                        json_decref(json);
                        json = NULL;
                }
        }
        return json;
}

int model_write(const struct model *m, const char *path, char error[static MODEL_ERROR_MAX])
{
        json_auto_t *json = model_to_json(m, error);

        if (!json)
                return -ENOMEM;
        errno = 0;
        if (json_dump_file(json, path, JSON_COMPACT | JSON_REAL_PRECISION(9)) < 0)
                return model_fail(error, errno ? -errno : -EIO, "cannot write %s: %s", path,
                                  strerror(errno ? errno : EIO));
        return 0;
}

/* ---- reading ---- */

static void take_text(const json_t *json, const char *key, char *ret, size_t size)
{
        (void)text_copy(ret, size, text_at(json, key));
}

/* True if the columns are those of this sublet, in its order. */
static bool are_our_features(const json_t *list)
{
        if (json_array_size(list) != FEATURES)
                return false;
        for (unsigned i = 0; i < FEATURES; i++) {
                const char *name = json_string_value(json_array_get(list, i));

                if (!name || strcmp(name, feature_names[i]) != 0)
                        return false;
        }
        return true;
}

static double number(const json_t *json, const char *key)
{
        return json_number_value(json_object_get(json, key));
}

static double number_at(const json_t *json, const char *key, size_t at)
{
        return json_number_value(json_array_get(json_object_get(json, key), at));
}

static int take_target(const json_t *json, struct model_way *ret)
{
        const char *name = json_string_value(json_object_get(json, "target"));

        for (unsigned t = 0; name && t < MODEL_TARGETS; t++)
                if (strcmp(name, model_target_names[t]) == 0) {
                        ret->target = (enum model_target)t;
                        return 0;
                }
        return -EINVAL;
}

static int take_way(const json_t *json, const char *path, struct model_way *ret,
                    char error[static MODEL_ERROR_MAX])
{
        const json_t *errors = json_object_get(json, "errors");
        _cleanup_free_ char *text = json_dumps(json_object_get(json, "trees"), JSON_COMPACT);
        char why[TREES_ERROR_MAX];
        struct model_way w = {
                .with_signs = json_is_true(json_object_get(json, "signs")),
                .part = number(json, "part"),
                .pairs = (size_t)number(json, "pairs"),
                .jobs = (size_t)number(json, "jobs"),
                .families = (size_t)number(json, "families"),
                .errors = {number(errors, "mean"), number(errors, "p90"), number(errors, "median")},
                .low = number_at(json, "interval", 0),
                .high = number_at(json, "interval", 1),
                .sum_low = number_at(json, "sum_interval", 0),
                .sum_high = number_at(json, "sum_interval", 1),
                .delta = number(json, "delta"),
        };
        int r;

        for (unsigned i = 0; i < MODEL_MARGINS; i++)
                w.margins[i] = number_at(json, "margins", i);
        if (take_target(json, &w) < 0 || !text || w.low <= 0 || w.high < w.low || w.sum_low <= 0 ||
            w.margins[0] <= 0 || !(w.part >= 0 && w.part <= 1))
                return model_fail(
                        error, -EINVAL,
                        "%s: the model is incomplete: a way has no trees or no calibration", path);
        r = trees_read(text, strlen(text), FEATURES, &w.trees, why);
        if (r < 0)
                return model_fail(error, r, "%s: %s", path, why);
        *ret = w;
        return 0;
}

static int take_model(const json_t *json, const char *path, struct model *m,
                      char error[static MODEL_ERROR_MAX])
{
        const json_t *version = json_object_get(json, "sublet_pairing");
        bool any = false;

        if (!json_is_integer(version))
                return model_fail(
                        error, -EINVAL,
                        "%s: this is no model: it has no sublet_pairing; sublet train writes "
                        "models",
                        path);
        if (json_integer_value(version) != MODEL_VERSION ||
            !are_our_features(json_object_get(json, "features")))
                return model_fail(
                        error, -EINVAL,
                        "%s: it was trained by another release, with other features; train it "
                        "again with sublet train",
                        path);
        take_text(json, "gpu", m->gpu, sizeof(m->gpu));
        take_text(json, "driver", m->driver, sizeof(m->driver));
        m->idle_w = json_number_value(json_object_get(json, "idle_w"));
        take_text(json, "sublet", m->sublet, sizeof(m->sublet));
        take_text(json, "xgboost", m->xgboost, sizeof(m->xgboost));
        take_text(json, "time", m->time, sizeof(m->time));
        for (unsigned w = 0; w < WAYS; w++) {
                const json_t *way = json_object_get(json_object_get(json, "ways"), way_names[w]);
                int r = way ? take_way(way, path, &m->ways[w], error) : 0;

                if (r < 0)
                        return r;
                any |= way != NULL;
        }
        return any ? 0 : model_fail(error, -EINVAL, "%s: it has no trees", path);
}

int model_read(const char *path, struct model *ret, char error[static MODEL_ERROR_MAX])
{
        _cleanup_fclose_ FILE *in = fopen(path, "re");
        json_auto_t *json = NULL;
        struct model m = {0};
        json_error_t where;
        struct stat st;
        int r;

        if (!in || fstat(fileno(in), &st) < 0)
                return model_fail(error, -errno, "%s: cannot read it: %s", path, strerror(errno));
        if (st.st_size > FILE_MAX)
                return model_fail(error, -EFBIG, "%s: a model has at most %u MiB", path,
                                  FILE_MAX >> 20);
        json = json_loadf(in, 0, &where);
        if (!json) {
                char why[JSON_ERROR_TEXT_LENGTH];

                return model_fail(error, -EINVAL, "%s: this is no JSON: %s (line %d)", path,
                                  text_copy(why, sizeof(why), where.text), where.line);
        }
        r = take_model(json, path, &m, error);
        if (r < 0) {
                model_free(&m);
                return r;
        }
        *ret = m;
        return 0;
}

void model_free(struct model *m)
{
        for (unsigned w = 0; w < WAYS; w++)
                trees_free(m->ways[w].trees);
        *m = (struct model){0};
}

/* ---- where models are ---- */

#define MACHINES_FOLDER "/var/lib/sublet/models"

/* Writes the name of a model's file: "nvidia-h200.json" for "NVIDIA H200". */
static void name_of(const char *gpu, char ret[static 128])
{
        size_t n = 0;

        for (const char *c = gpu; *c && n < 100; c++) {
                const bool plain = isalnum((unsigned char)*c);

                if (plain || (n && ret[n - 1] != '-'))
                        ret[n++] = plain ? (char)tolower((unsigned char)*c) : '-';
        }
        (void)snprintf(ret + n, 128 - n, ".json");
}

static int machines_folder(char *ret, size_t size)
{
        const int n = snprintf(ret, size, MACHINES_FOLDER);

        return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/* Finds the folder of the user's models. Root's are for the whole machine: the queue of root's
 * daemon looks there. */
static int own_folder(char *ret, size_t size)
{
        static const char own[] = "/sublet/models";
        const int r = xdg_folder(XDG_DATA, ret, size - sizeof(own));

        if (geteuid() == 0 && r != 0)
                return machines_folder(ret, size);
        if (r >= 0)
                (void)strcat(ret, own);
        return MIN(r, 0);
}

/* Finds the folder "models" beside this program. If this process may not enter the folder by its
 * path, the daemon has started it in that folder (matcher.c). */
static int installed_folder(char *ret, size_t size)
{
        ssize_t n = readlink("/proc/self/exe", ret, size - sizeof("/models"));

        if (n < 0)
                return -errno;
        ret[n] = 0;
        (void)strcpy(strrchr(ret, '/'), "/models");
        if (access(ret, F_OK) < 0 && errno == EACCES)
                (void)strcpy(ret, "models");
        return 0;
}

int model_find(const char *gpu, char *ret, size_t size, char error[static MODEL_ERROR_MAX])
{
        char folder[PATH_MAX], name[128];
        int (*const places[])(char *, size_t) = {own_folder, machines_folder, installed_folder};

        name_of(gpu, name);
        for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
                int n;

                if (places[i](folder, sizeof(folder)) < 0)
                        continue;
                n = snprintf(ret, size, "%s/%s", folder, name);
                if (n >= 0 && (size_t)n < size && access(ret, R_OK) == 0)
                        return 0;
        }
        return model_fail(
                error, -ENOENT,
                "there is no model for %s: sublet bench pairs measures pairs, and sublet train "
                "makes a model of them; or name one with --model",
                *gpu ? gpu : "a card that the job files do not name");
}

int model_own_path(const char *gpu, char *ret, size_t size, char error[static MODEL_ERROR_MAX])
{
        char folder[PATH_MAX], name[128];
        int r = own_folder(folder, sizeof(folder)), n;

        if (r == 0)
                r = folders_make(folder, 0777);
        if (r < 0)
                return model_fail(error, r,
                                  "cannot make the folder for the model: %s; name a file with "
                                  "-o",
                                  strerror(-r));
        name_of(gpu, name);
        n = snprintf(ret, size, "%s/%s", folder, name);
        return n >= 0 && (size_t)n < size ? 0
                                          : model_fail(error, -ENAMETOOLONG, "HOME is too long");
}
