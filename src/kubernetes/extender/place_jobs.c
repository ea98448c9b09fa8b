/* place_jobs.c: owns the choice of GPUs for the jobs of one node. Must never count a job twice. */
#include "kubernetes/extender/place_jobs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "pairing/match.h"

/* The jobs of a node that may share its GPUs. */
struct table {
        struct jobs *jobs;
        const struct place_pod **pods;
        size_t n;
        unsigned gpus;      /* GPUs that no pod outside this table has */
        bool newcomer_last; /* the last of the pods is the new one, and no GPU is free for it */
};

static void refuse(struct place *ret, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static void refuse(struct place *ret, const char *format, ...)
{
        va_list args;

        ret->how = PLACE_NOT;
        va_start(args, format);
        (void)vsnprintf(ret->why, sizeof(ret->why), format, args);
        va_end(args);
}

static struct jobs_pair pair_of(const struct place_pod *a, const struct place_pod *b)
{
        return (struct jobs_pair){{(unsigned)a->job, (unsigned)b->job}, {a->bound, b->bound}};
}

/* Writes the edges of a graph in which each GPU is a pair: of two jobs, of a job and an empty
 * place, or of two empty places. Jobs that run do not move, so if no GPU is free, the new one must
 * go beside one of them. Returns how many edges there are. */
static size_t draw(const struct table *t, struct match_edge *ret)
{
        const unsigned places = 2 * t->gpus, jobs = (unsigned)t->n;
        size_t n = 0;

        for (unsigned a = 0; a < places; a++)
                for (unsigned b = a + 1; b < places; b++) {
                        double weight = a < jobs ? 1 : 0;

                        if (b < jobs) {
                                const struct jobs_pair p = pair_of(t->pods[a], t->pods[b]);

                                if (jobs_predict(t->jobs, &p, &weight) < 0)
                                        continue;
                        } else if (t->newcomer_last && a == jobs - 1) {
                                continue;
                        }
                        ret[n++] = (struct match_edge){a, b, weight};
                }
        return n;
}

/* Writes the progress that all jobs together make at best. 0; -ENOSPC: not all bounds can be kept;
 * -ENOMEM. */
static int best_of(const struct table *t, double *ret)
{
        const unsigned places = 2 * t->gpus;
        _cleanup_free_ struct match_edge *edges = NULL;
        _cleanup_free_ unsigned *partners = NULL;
        size_t n;
        int r;

        if (t->n > places)
                return -ENOSPC;
        *ret = (double)t->n; /* each runs alone: no pair makes more than two */
        if (t->n <= t->gpus)
                return 0;
        edges = calloc((size_t)places * places / 2, sizeof(*edges));
        partners = calloc(places, sizeof(*partners));
        if (!edges || !partners)
                return -ENOMEM;
        n = draw(t, edges);
        r = match_run(places, edges, n, MATCH_CARDINALITY, partners);
        if (r < 0)
                return r;
        if ((unsigned)r < t->gpus)
                return -ENOSPC;
        *ret = 0;
        for (size_t i = 0; i < n; i++)
                if (partners[edges[i].a] == edges[i].b)
                        *ret += edges[i].weight;
        return 0;
}

/* Names the partner with which the pod would come nearest to both bounds. */
static void say_why(const struct table *t, const struct place_pod *one, size_t n_running,
                    unsigned gpus, struct place *ret)
{
        const struct place_pod *best = NULL;
        char why[JOBS_WHY_MAX];
        struct jobs_pair p;
        double most = -1;

        if (t->gpus == 0) {
                refuse(ret,
                       "node(s) where pods whose job is not measured, or that have several GPUs, "
                       "have all %u GPUs",
                       gpus);
                return;
        }
        for (size_t i = 0; i < n_running; i++) {
                const struct jobs_pair q = pair_of(one, t->pods[i]);
                const double slack = jobs_slack(t->jobs, &q);

                if (slack > most) {
                        most = slack;
                        best = t->pods[i];
                }
        }
        if (t->n > 2 * (size_t)t->gpus) {
                refuse(ret, "node(s) where each GPU that is left to measured jobs has two");
        } else if (!best || most >= 1) {
                refuse(ret, "node(s) where no place is left that keeps the bounds of all jobs");
        } else {
                p = pair_of(one, best);
                jobs_why(t->jobs, &p, why);
                refuse(ret, "%s", why);
        }
}

/* For a pod with several GPUs: each must be free, on whichever GPUs the other pods are. */
static void try_alone(const struct table *t, const struct place_pod *one, struct place *ret)
{
        if (t->n + one->gpus <= t->gpus)
                *ret = (struct place){.how = PLACE_ALONE, .gain = 1};
        else
                refuse(ret, "node(s) that may not have %u GPUs free", one->gpus);
}

int place_try(struct jobs *jobs, unsigned gpus, const struct place_pod *running, size_t n,
              const struct place_pod *one, struct place *ret)
{
        _cleanup_free_ const struct place_pod **pods = calloc(n + 1, sizeof(*pods));
        struct table t = {.jobs = jobs, .pods = pods, .gpus = MIN(gpus, PLACE_GPUS_MAX)};
        double before = 0, after = 0;
        size_t n_running;
        int r;

        if (!pods)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                if (running[i].job >= 0 && running[i].gpus == 1)
                        pods[t.n++] = &running[i];
                else
                        t.gpus -= MIN(t.gpus, running[i].gpus);
        }
        if (one->gpus > 1) {
                try_alone(&t, one, ret);
                return 0;
        }
        n_running = t.n;
        if (t.n < t.gpus) {
                *ret = (struct place){.how = PLACE_ALONE, .gain = 1};
                return 0;
        }
        r = best_of(&t, &before);
        if (r == 0) {
                pods[t.n++] = one;
                t.newcomer_last = true;
                r = best_of(&t, &after);
        }
        if (r == -ENOSPC) {
                say_why(&t, one, n_running, gpus, ret);
                return 0;
        }
        *ret = (struct place){.how = PLACE_BESIDE, .gain = after - before};
        return r;
}
