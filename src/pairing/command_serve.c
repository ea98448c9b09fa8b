/* command_serve.c: the helper of subletd: reads jobs and questions from stdin, writes answers to
 * stdout, until stdin ends. Must never start a job, nor trust a job file.
 *
 * Lines of JSON. subletd writes:
 *      {"add": ID, "bytes": N, "gpu": NAME}    N bytes of a job file follow the line
 *      {"forget": ID}
 *      {"question": N, "gpus": FREE, "waiting": ALL, "host_bytes": B, "capacity": B,
 *       "jobs": [{"id", "runs", "bound", "ways": MASK, "user", "key"}, …],
 *       "ratios": [[KEY, KEY of the other or 0, WAY, RATIO], …]}
 * The helper answers each "add" and each "question" with one line:
 *      {"added": ID}, or with "error": SENTENCE
 *      {"answer": N, "pairs": [{"a", "b", "way", "progress": [A, B], "host_bytes", "why"}, …]},
 *      or with "error" */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "pairing/commands.h"
#include "pairing/roll.h"

#define HELD_MAX 1024
#define FILE_MAX (256u << 10)

struct held {
        json_int_t id; /* 0: free */
        struct job job;
};

struct ratio {
        json_int_t job, beside;
        int way;
        double ratio;
};

struct serve {
        struct held held[HELD_MAX];
        char card[sizeof(((struct job *)0)->measured.gpu)]; /* the card for which jobs are paired */
        struct model model;                                 /* the model of that card */
        bool has_model;
        /* Of the question: */
        struct job *jobs; /* borrowed from held */
        struct roll_job *roll;
        json_int_t *ids, *keys;
        size_t n;
        struct ratio *ratios;
        size_t n_ratios;
};

static int say(json_t *json)
{
        const int r = json ? json_dumpf(json, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) : -1;

        json_decref(json);
        (void)putchar('\n');
        return r < 0 || fflush(stdout) != 0 ? -EIO : 0;
}

static struct held *find(struct serve *s, json_int_t id)
{
        for (struct held *h = s->held; h < s->held + HELD_MAX; h++)
                if (h->id == id)
                        return h;
        return NULL;
}

/* ---- jobs ---- */

static bool holds_none(const struct serve *s)
{
        for (const struct held *h = s->held; h < s->held + HELD_MAX; h++)
                if (h->id)
                        return false;
        return true;
}

static bool is_of_card(const struct serve *s, const struct job *job)
{
        return !*job->measured.gpu || strcmp(job->measured.gpu, s->card) == 0;
}

/* Pairs jobs for this card from now on. */
static void use_card(struct serve *s, const char *gpu)
{
        char path[4096], error[MODEL_ERROR_MAX];

        if (!*gpu || strcmp(gpu, s->card) == 0)
                return;
        model_free(&s->model);
        s->has_model = false;
        (void)snprintf(s->card, sizeof(s->card), "%s", gpu);
        if (model_find(gpu, path, sizeof(path), error) < 0)
                return;
        s->has_model = model_read(path, &s->model, error) == 0;
        if (!s->has_model)
                (void)command_fail(0, "%s", error);
}

/* Chooses the machine's card or, if the daemon does not know it, the first job's. Other jobs,
 * whatever card they name, must not keep the first job from being paired. */
static void choose_card(struct serve *s, const char *machines, const struct job *job)
{
        if (*machines)
                use_card(s, machines);
        else if (!*s->card || holds_none(s))
                use_card(s, job->measured.gpu);
}

/* Returns a sentence if the job cannot be held. */
static const char *hold(struct serve *s, json_int_t id, const char *text, size_t n, const char *gpu,
                        char error[static JOB_ERROR_MAX])
{
        struct held *h = find(s, id);
        struct job job;

        if (h) {
                job_free(&h->job);
                h->id = 0;
        }
        h = find(s, 0);
        if (!h)
                return "there are too many jobs";
        if (job_decode(text, n, "the job file", &job, error) < 0)
                return error;
        choose_card(s, gpu, &job);
        if (!is_of_card(s, &job)) {
                (void)snprintf(error, JOB_ERROR_MAX,
                               "it was measured on %s, and jobs are paired here for %s: measure it "
                               "on that card",
                               job.measured.gpu, s->card);
                job_free(&job);
                return error;
        }
        *h = (struct held){id, job};
        return NULL;
}

static int add(struct serve *s, const json_t *order)
{
        const json_int_t id = json_integer_value(json_object_get(order, "add"));
        const json_int_t n = json_integer_value(json_object_get(order, "bytes"));
        const char *gpu = json_string_value(json_object_get(order, "gpu")), *wrong;
        _cleanup_free_ char *text = n > 0 && n <= FILE_MAX ? malloc((size_t)n) : NULL;
        char error[JOB_ERROR_MAX];

        if (!text || id <= 0 || fread(text, 1, (size_t)n, stdin) != (size_t)n)
                return -EBADMSG;
        wrong = hold(s, id, text, (size_t)n, gpu ? gpu : "", error);
        return say(json_pack("{sI ss*}", "added", id, "error", wrong));
}

static void forget(struct serve *s, json_int_t id)
{
        struct held *h = id > 0 ? find(s, id) : NULL;

        if (!h)
                return;
        job_free(&h->job);
        h->id = 0;
}

/* ---- a question ---- */

static void end_question(struct serve *s)
{
        free(s->jobs);
        free(s->roll);
        free(s->ids);
        free(s->keys);
        free(s->ratios);
        s->jobs = NULL;
        s->roll = NULL;
        s->ids = s->keys = NULL;
        s->ratios = NULL;
        s->n = s->n_ratios = 0;
}

static void read_jobs(struct serve *s, const json_t *list)
{
        const json_t *one;
        size_t i;

        json_array_foreach (list, i, one) {
                const json_int_t id = json_integer_value(json_object_get(one, "id"));
                const struct held *h = id > 0 ? find(s, id) : NULL;

                if (!h || !is_of_card(s, &h->job))
                        continue;
                s->jobs[s->n] = h->job;
                s->ids[s->n] = id;
                s->keys[s->n] = json_integer_value(json_object_get(one, "key"));
                s->roll[s->n++] = (struct roll_job){
                        .runs = json_is_true(json_object_get(one, "runs")),
                        .bound = json_number_value(json_object_get(one, "bound")),
                        .ways = (unsigned)json_integer_value(json_object_get(one, "ways")),
                        .user = (uint64_t)json_integer_value(json_object_get(one, "user")),
                };
        }
}

static void read_ratios(struct serve *s, const json_t *list)
{
        const json_t *one;
        size_t i;

        json_array_foreach (list, i, one)
                s->ratios[s->n_ratios++] = (struct ratio){
                        json_integer_value(json_array_get(one, 0)),
                        json_integer_value(json_array_get(one, 1)),
                        (int)json_integer_value(json_array_get(one, 2)),
                        json_number_value(json_array_get(one, 3)),
                };
}

static double ratio(unsigned a, unsigned b, enum way way, void *userdata)
{
        const struct serve *s = userdata;
        double any = 1;

        for (size_t i = 0; i < s->n_ratios; i++) {
                const struct ratio *r = &s->ratios[i];

                if (r->job != s->keys[a] || r->way != (int)way)
                        continue;
                if (r->beside == s->keys[b])
                        return r->ratio;
                if (r->beside == 0)
                        any = r->ratio;
        }
        return any;
}

static json_t *pair_json(const struct serve *s, const struct pairs *p, const struct roll_pair *one)
{
        char why[PAIRS_WHY_MAX];

        return json_pack("{sI sI ss s[ff] sf ss}", "a", s->ids[one->a], "b", s->ids[one->b], "way",
                         way_names[one->way], "progress", one->progress[0], one->progress[1],
                         "host_bytes", one->pair.fits ? 0.0 : one->pair.host_bytes, "why",
                         pairs_why(p, &one->pair, one->way, why));
}

static int choose(struct serve *s, const json_t *order, json_t *ret_pairs,
                  char error[static PAIRS_ERROR_MAX])
{
        const struct roll_options o = {
                .free_gpus = (unsigned)json_integer_value(json_object_get(order, "gpus")),
                .waiting = (unsigned)json_integer_value(json_object_get(order, "waiting")),
                .host_bytes = json_number_value(json_object_get(order, "host_bytes")),
                .ratio = ratio,
                .userdata = s,
        };
        _cleanup_free_ struct roll_pair *pairs = calloc(s->n, sizeof(*pairs));
        struct pairs p;
        size_t n;
        int r;

        if (!pairs)
                return -ENOMEM;
        r = pairs_open(s->jobs, s->n, s->has_model ? &s->model : NULL,
                       json_number_value(json_object_get(order, "capacity")), 0, &p, error);
        if (r < 0)
                return r;
        r = roll_choose(&p, s->roll, &o, pairs, &n, error);
        for (size_t i = 0; r == 0 && i < n; i++)
                (void)json_array_append_new(ret_pairs, pair_json(s, &p, &pairs[i]));
        pairs_close(&p);
        return r;
}

static int answer(struct serve *s, const json_t *order)
{
        const json_t *jobs = json_object_get(order, "jobs");
        const json_t *ratios = json_object_get(order, "ratios");
        const size_t n = json_array_size(jobs);
        char error[PAIRS_ERROR_MAX] = "no memory";
        json_t *pairs = json_array();
        int r = 0;

        s->jobs = calloc(n + 1, sizeof(*s->jobs));
        s->roll = calloc(n + 1, sizeof(*s->roll));
        s->ids = calloc(n + 1, sizeof(*s->ids));
        s->keys = calloc(n + 1, sizeof(*s->keys));
        s->ratios = calloc(json_array_size(ratios) + 1, sizeof(*s->ratios));
        if (!s->jobs || !s->roll || !s->ids || !s->keys || !s->ratios) {
                r = -ENOMEM;
        } else {
                read_jobs(s, jobs);
                read_ratios(s, ratios);
                if (s->n > 0)
                        r = choose(s, order, pairs, error);
        }
        end_question(s);
        return say(json_pack("{sO so ss*}", "answer", json_object_get(order, "question"), "pairs",
                             pairs, "error", r < 0 ? error : NULL));
}

/* ---- the lines ---- */

static int serve_line(struct serve *s, const char *line)
{
        json_auto_t *order = json_loads(line, 0, NULL);

        if (json_object_get(order, "add"))
                return add(s, order);
        if (json_object_get(order, "forget")) {
                forget(s, json_integer_value(json_object_get(order, "forget")));
                return 0;
        }
        return json_object_get(order, "question") ? answer(s, order) : -EBADMSG;
}

int serve_main(int argc, char **argv)
{
        struct serve *s = calloc(1, sizeof(*s));
        _cleanup_free_ char *line = NULL;
        size_t room = 0;
        int r = s ? 0 : -ENOMEM;

        if (argc > 1)
                return command_fail(STATUS_USAGE, "serve takes no argument, not '%s'", argv[1]);
        while (r == 0 && getline(&line, &room, stdin) > 0)
                r = serve_line(s, line);
        for (struct held *h = s ? s->held : NULL; h && h < s->held + HELD_MAX; h++)
                if (h->id)
                        job_free(&h->job);
        if (s)
                model_free(&s->model);
        free(s);
        return r < 0 ? command_fail(STATUS_FAILED, "serve: %s", strerror(-r)) : STATUS_OK;
}
