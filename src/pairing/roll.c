/* roll.c: owns the choice of pairs while jobs come and go. Must never use more GPUs than are free,
 * nor give a job two partners. */
#include "pairing/roll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "pairing/match.h"

#define REPAIRS 16 /* matchings at most until free GPUs and host memory suffice */
#define FIRST_COMES \
        0.001 /* how much an earlier arrival may weigh: less than any gain that counts */

struct edge {
        const struct pairs_pair *pair;
        enum way way;
        double weight;
        bool both_wait, forbidden;
};

struct work {
        const struct pairs *p;
        const struct roll_job *jobs;
        const struct roll_options *o;
        struct edge *edges;
        size_t n_edges;
        unsigned *partners;
        struct match_edge *given;
        struct edge **chosen;
        size_t n_chosen;
};

static double ratio_of(const struct work *w, unsigned a, unsigned b, enum way way)
{
        return w->o->ratio ? w->o->ratio(a, b, way, w->o->userdata) : 1;
}

/* Chooses the way of a pair, as pairs_choose() does, with a bound for each job. */
static bool choose_way(const struct work *w, const struct pairs_pair *pair, enum way *ret_way,
                       double *ret_sum)
{
        const struct roll_job *a = &w->jobs[pair->a], *b = &w->jobs[pair->b];
        double best = 0;

        for (unsigned way = 0; way < WAYS; way++) {
                const struct pairs_way *by = &pair->ways[way];
                const double progress[2] = {
                        by->progress[0] * ratio_of(w, pair->a, pair->b, (enum way)way),
                        by->progress[1] * ratio_of(w, pair->b, pair->a, (enum way)way)};
                const double sum = MIN(progress[0], 1.0) + MIN(progress[1], 1.0),
                             worth = pairs_worth(pair, (enum way)way, sum);

                if (!by->possible || !(a->ways & b->ways & 1u << way) ||
                    (way == WAY_SHARED && a->user != b->user) ||
                    progress[0] < pairs_threshold(w->p, pair, (enum way)way, a->bound) ||
                    progress[1] < pairs_threshold(w->p, pair, (enum way)way, b->bound) ||
                    worth <= best)
                        continue;
                best = worth;
                *ret_way = (enum way)way;
                *ret_sum = sum;
        }
        return best > 0;
}

static double earliness(const struct work *w, unsigned job)
{
        return w->jobs[job].runs ? 0 : FIRST_COMES * (1 - (double)job / (double)w->p->n);
}

static void take_edges(struct work *w, const struct pairs_pair *list, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                struct edge e = {.pair = &list[i]};

                if (!choose_way(w, &list[i], &e.way, &e.weight) ||
                    (!list[i].fits && list[i].host_bytes > w->o->host_bytes))
                        continue;
                e.both_wait = !w->jobs[list[i].b].runs;
                e.weight += earliness(w, list[i].a) + earliness(w, list[i].b);
                w->edges[w->n_edges++] = e;
        }
}

static int heavy_first(const void *a, const void *b)
{
        const struct edge *x = *(struct edge *const *)a, *y = *(struct edge *const *)b;

        if (x->weight != y->weight)
                return x->weight < y->weight ? 1 : -1;
        return x < y ? -1 : x > y;
}

static int match(struct work *w)
{
        size_t n = 0;
        int r;

        for (size_t i = 0; i < w->n_edges; i++)
                if (!w->edges[i].forbidden)
                        w->given[n++] = (struct match_edge){
                                w->edges[i].pair->a, w->edges[i].pair->b, w->edges[i].weight};
        r = match_run((unsigned)w->p->n, w->given, n, MATCH_CARDINALITY, w->partners);
        if (r < 0)
                return r;
        w->n_chosen = 0;
        for (size_t i = 0; i < w->n_edges; i++)
                if (!w->edges[i].forbidden &&
                    w->partners[w->edges[i].pair->a] == w->edges[i].pair->b)
                        w->chosen[w->n_chosen++] = &w->edges[i];
        qsort(w->chosen, w->n_chosen, sizeof(*w->chosen), heavy_first);
        return 0;
}

/* Takes out and forbids the lightest pairs for which free GPUs or host memory do not suffice.
 * Returns whether there were some. */
static bool take_out(struct work *w)
{
        size_t on_free = 0, kept = 0;
        double host_bytes = 0;

        for (size_t i = 0; i < w->n_chosen; i++) {
                struct edge *e = w->chosen[i];
                const double bytes = e->pair->fits ? 0 : e->pair->host_bytes;

                if (on_free + e->both_wait > w->o->free_gpus ||
                    host_bytes + bytes > w->o->host_bytes) {
                        e->forbidden = true;
                        continue;
                }
                on_free += e->both_wait;
                host_bytes += bytes;
                w->chosen[kept++] = e;
        }
        if (kept == w->n_chosen)
                return false;
        w->n_chosen = kept;
        return true;
}

static int choose(struct work *w)
{
        const size_t needed = sub_sat(w->o->waiting, w->o->free_gpus);
        int r;

        for (unsigned i = 0; (r = match(w)) == 0 && take_out(w) && i < REPAIRS; i++)
                ;
        w->n_chosen = MIN(w->n_chosen, needed); /* the others have a GPU alone */
        return r;
}

/* Lists the pairs that are possible at all: those that may only take turns, or the others. */
static size_t list_pairs(const struct work *w, bool turns_only, struct pairs_pair *list)
{
        const struct roll_job *jobs = w->jobs;
        size_t n = 0;

        for (unsigned a = 0; a < w->p->n; a++)
                for (unsigned b = 0; b < w->p->n && !jobs[a].runs; b++)
                        if ((jobs[b].runs || (w->o->free_gpus > 0 && a < b)) &&
                            turns_only == ((jobs[a].ways & jobs[b].ways) == 1u << WAY_TURNS))
                                list[n++] = (struct pairs_pair){.a = a, .b = b};
        return n;
}

/* Without a model of turns, turns of two that fit are predicted only if no other way is allowed. */
static int predict(const struct work *w, struct pairs_pair *list, size_t *ret_n,
                   char error[static PAIRS_ERROR_MAX])
{
        static const bool all[WAYS] = {true, true, true}, turns[WAYS] = {[WAY_TURNS] = true};
        const size_t n = list_pairs(w, true, list), more = list_pairs(w, false, list + n);
        int r = pairs_predict(w->p, turns, list, n, error);

        if (r == 0)
                r = pairs_predict(w->p, all, list + n, more, error);
        *ret_n = n + more;
        return r;
}

int roll_choose(const struct pairs *p, const struct roll_job *jobs,
                const struct roll_options *options, struct roll_pair *ret, size_t *ret_n,
                char error[static PAIRS_ERROR_MAX])
{
        _cleanup_free_ struct pairs_pair *list = calloc(p->n * p->n + 1, sizeof(*list));
        _cleanup_free_ struct edge *edges = calloc(p->n * p->n + 1, sizeof(*edges));
        _cleanup_free_ unsigned *partners = calloc(p->n + 1, sizeof(*partners));
        _cleanup_free_ struct match_edge *given = calloc(p->n * p->n + 1, sizeof(*given));
        _cleanup_free_ struct edge **chosen = calloc(p->n + 1, sizeof(struct edge *));
        struct work w = {p, jobs, options, edges, 0, partners, given, chosen, 0};
        size_t n;
        int r = -ENOMEM;

        if (list && edges && partners && given && chosen) {
                r = predict(&w, list, &n, error);
                if (r < 0)
                        return r;
                take_edges(&w, list, n);
                r = choose(&w);
        }
        if (r < 0)
                return model_fail(error, r, "cannot match %zu jobs: %s", p->n, strerror(-r));
        for (size_t i = 0; i < w.n_chosen; i++) {
                const struct edge *e = w.chosen[i];
                const double *progress = e->pair->ways[e->way].progress;

                ret[i] = (struct roll_pair){
                        e->pair->a, e->pair->b, e->way, {progress[0], progress[1]}, *e->pair};
        }
        *ret_n = w.n_chosen;
        return 0;
}
