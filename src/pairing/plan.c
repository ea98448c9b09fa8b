/* plan.c: owns the choice of pairs. Must never give one job to two pairs, or more GPUs than there
 * are. */
#include "pairing/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "pairing/match.h"

#define NEIGHBOURS 24 /* the heaviest edges of a job that are looked at where weight decides */
#define HALVINGS   14
#define REPAIRS    16 /* matchings at most until memory and bus of the host suffice */

/* An edge of the graph: a pair that keeps the bound. */
struct edge {
        const struct pairs_pair *pair;
        enum way way;
        double sum, weight;
        bool forbidden;
};

struct plan_in_progress {
        const struct pairs *p;
        const struct plan_options *o;
        struct edge *edges;
        size_t n_edges, n_jobs;
        unsigned *partners;
        struct match_edge *given; /* room for the edges of a matching */
};

/* Returns the work for each joule, compared with that of the same jobs alone. Power is assumed to
 * grow with progress, from that of an idle card. */
static double energy_weight(const struct pairs *p, const struct pairs_pair *pair,
                            const double progress[static 2], double idle_w)
{
        const double power[2] = {p->jobs[pair->a].gpu.power_w, p->jobs[pair->b].gpu.power_w};
        double alone = 0, together = idle_w;

        for (unsigned k = 0; k < 2; k++) {
                if (!isfinite(power[k]))
                        return progress[0] + progress[1]; /* power not known: throughput */
                alone += progress[k] * power[k];
                together += progress[k] * fmax(power[k] - idle_w, 0);
        }
        return alone / together;
}

static void take_edges(struct plan_in_progress *w, const struct pairs_pair *list, size_t n)
{
        const struct plan_options *o = w->o;

        for (size_t i = 0; i < n; i++) {
                struct edge e = {.pair = &list[i]};
                const double *progress;

                if (list[i].a == list[i].b || pairs_choose(w->p, &list[i], o->bound, &e.way) < 0)
                        continue;
                if (!list[i].fits && ((o->host_bytes > 0 && list[i].host_bytes > o->host_bytes) ||
                                      (o->bus_bytes_s > 0 && list[i].bus_bytes_s > o->bus_bytes_s)))
                        continue;
                progress = list[i].ways[e.way].progress;
                e.sum = progress[0] + progress[1];
                e.weight =
                        o->idle_w > 0 ? energy_weight(w->p, &list[i], progress, o->idle_w) : e.sum;
                e.weight = MIN(e.weight, MATCH_WEIGHT_MAX / 2);
                w->edges[w->n_edges++] = e;
        }
}

/* Matches with these edges, after adding `plus` to each weight. Returns the number of pairs. */
static int match(struct plan_in_progress *w, const unsigned *chosen, size_t n, double plus,
                 enum match_goal goal)
{
        size_t given = 0;
        int pairs;

        for (size_t i = 0; i < n; i++) {
                const struct edge *e = &w->edges[chosen ? chosen[i] : i];

                if (e->forbidden || (goal == MATCH_WEIGHT && e->weight + plus <= 0))
                        continue;
                w->given[given++] = (struct match_edge){e->pair->a, e->pair->b, e->weight + plus};
        }
        pairs = match_run((unsigned)w->n_jobs, w->given, given, goal, w->partners);
        return pairs;
}

static int heavier_first(const void *a, const void *b, void *userdata)
{
        const struct plan_in_progress *w = userdata;
        const struct edge *x = &w->edges[*(const unsigned *)a],
                          *y = &w->edges[*(const unsigned *)b];

        if (x->weight != y->weight)
                return x->weight < y->weight ? 1 : -1;
        return x < y ? -1 : x > y; /* so that the order is the same on each machine */
}

/* Writes the edges that are among the heaviest of one of their jobs. Returns how many, or -ENOMEM.
 */
static int sparsify(struct plan_in_progress *w, unsigned *ret)
{
        _cleanup_free_ unsigned *order = calloc(w->n_edges + 1, sizeof(*order));
        _cleanup_free_ unsigned *degree = calloc(w->n_jobs + 1, sizeof(*degree));
        int n = 0;

        if (!order || !degree)
                return -ENOMEM;
        for (size_t i = 0; i < w->n_edges; i++)
                order[i] = (unsigned)i;
        qsort_r(order, w->n_edges, sizeof(*order), heavier_first, w);
        for (size_t i = 0; i < w->n_edges; i++) {
                const struct pairs_pair *p = w->edges[order[i]].pair;

                if (w->edges[order[i]].forbidden ||
                    (degree[p->a] >= NEIGHBOURS && degree[p->b] >= NEIGHBOURS))
                        continue;
                degree[p->a]++;
                degree[p->b]++;
                ret[n++] = order[i];
        }
        return n;
}

/* Finds pairs of great weight. One price for each pair brings their number as near to `wanted` as
 * it can, and not below if so many exist. least: the smallest price. */
static int match_about(struct plan_in_progress *w, int wanted, double least)
{
        _cleanup_free_ unsigned *chosen = calloc(w->n_edges + 1, sizeof(*chosen));
        double low = -MATCH_WEIGHT_MAX / 2, high = -least;
        int n, pairs;

        if (!chosen)
                return -ENOMEM;
        n = sparsify(w, chosen);
        if (n < 0)
                return n;
        pairs = match(w, chosen, (size_t)n, high, MATCH_WEIGHT);
        if (pairs <= wanted)
                return pairs;
        for (unsigned i = 0; i < HALVINGS; i++) {
                const double middle = (low + high) / 2;

                pairs = match(w, chosen, (size_t)n, middle, MATCH_WEIGHT);
                if (pairs < 0 || pairs == wanted)
                        return pairs;
                if (pairs > wanted)
                        high = middle;
                else
                        low = middle;
        }
        return match(w, chosen, (size_t)n, high, MATCH_WEIGHT);
}

/* ---- from partners to pairs ---- */

static void collect(const struct plan_in_progress *w, struct plan *ret)
{
        ret->n_pairs = 0;
        for (size_t i = 0; i < w->n_edges; i++) {
                const struct edge *e = &w->edges[i];

                if (!e->forbidden && w->partners[e->pair->a] == e->pair->b)
                        ret->pairs[ret->n_pairs++] = (struct plan_pair){e->pair, e->way, e->weight};
        }
}

static int heavy_pairs_first(const void *a, const void *b)
{
        const struct plan_pair *x = a, *y = b;

        if (x->weight != y->weight)
                return x->weight < y->weight ? 1 : -1;
        return x->pair < y->pair ? -1 : x->pair > y->pair;
}

/* Keeps the heaviest pairs. */
static void keep(struct plan *plan, size_t most)
{
        qsort(plan->pairs, plan->n_pairs, sizeof(*plan->pairs), heavy_pairs_first);
        plan->n_pairs = MIN(plan->n_pairs, most);
}

/* Chooses pairs for `runnable` jobs, as plan.h says. */
static int choose(struct plan_in_progress *w, size_t runnable, struct plan *ret)
{
        const size_t gpus = w->o->gpus ? w->o->gpus : runnable;
        const bool all = w->o->fewest || w->o->gpus == 0;
        const size_t needed = runnable > gpus ? runnable - gpus : 0;
        int pairs;

        ret->n_pairs = 0;
        if (!all && needed == 0)
                return 0;
        pairs = match(w, NULL, w->n_edges, 0, MATCH_CARDINALITY);
        if (pairs < 0)
                return pairs;
        collect(w, ret);
        if ((size_t)pairs < needed) { /* jobs wait: only the part of a pair's sum above 1 counts */
                pairs = match_about(w, (int)gpus, 1);
                if (pairs < 0)
                        return pairs;
                collect(w, ret);
                keep(ret, gpus);
        } else if (!all && (size_t)pairs > needed) {
                struct plan_pair *before = calloc(ret->n_pairs + 1, sizeof(*before));
                const size_t n_before = ret->n_pairs;

                if (!before)
                        return -ENOMEM;
                for (size_t i = 0; i < n_before; i++)
                        before[i] = ret->pairs[i];
                pairs = match_about(w, (int)needed, -MATCH_WEIGHT_MAX / 2);
                if (pairs >= 0)
                        collect(w, ret);
                if (pairs >= 0 && ret->n_pairs < needed) { /* too few edges were looked at */
                        for (size_t i = 0; i < n_before; i++)
                                ret->pairs[i] = before[i];
                        ret->n_pairs = n_before;
                }
                free(before);
                if (pairs < 0)
                        return pairs;
                keep(ret, needed);
        }
        return 0;
}

static int fewer_bytes_first(const void *a, const void *b)
{
        const struct plan_pair *x = a, *y = b;

        return (x->pair->host_bytes > y->pair->host_bytes) -
               (x->pair->host_bytes < y->pair->host_bytes);
}

static void forbid(struct plan_in_progress *w, const struct pairs_pair *pair)
{
        for (size_t i = 0; i < w->n_edges; i++)
                w->edges[i].forbidden |= w->edges[i].pair == pair;
}

/* Adds up the host memory and the bus traffic of pairs that do not fit the card; forbids pairs that
 * exceed a limit. Returns whether there was one. */
static bool over_budget(struct plan_in_progress *w, struct plan *ret)
{
        bool over = false;

        qsort(ret->pairs, ret->n_pairs, sizeof(*ret->pairs), fewer_bytes_first);
        ret->host_bytes = ret->bus_bytes_s = 0;
        for (size_t i = 0; i < ret->n_pairs; i++) {
                const struct pairs_pair *p = ret->pairs[i].pair;

                if (p->fits)
                        continue;
                if ((w->o->host_bytes > 0 && ret->host_bytes + p->host_bytes > w->o->host_bytes) ||
                    (w->o->bus_bytes_s > 0 &&
                     ret->bus_bytes_s + p->bus_bytes_s > w->o->bus_bytes_s)) {
                        forbid(w, p);
                        over = true;
                        continue;
                }
                ret->host_bytes += p->host_bytes;
                ret->bus_bytes_s += p->bus_bytes_s;
        }
        return over;
}

/* Forbids all pairs past memory but those that are chosen. */
static void forbid_others(struct plan_in_progress *w, const struct plan *plan)
{
        for (size_t i = 0; i < w->n_edges; i++) {
                bool chosen = w->edges[i].pair->fits;

                for (size_t k = 0; k < plan->n_pairs && !chosen; k++)
                        chosen = plan->pairs[k].pair == w->edges[i].pair;
                w->edges[i].forbidden |= !chosen;
        }
}

static int choose_within_budget(struct plan_in_progress *w, size_t runnable, struct plan *ret)
{
        for (unsigned i = 0;; i++) {
                int r = choose(w, runnable, ret);

                if (r < 0 || !over_budget(w, ret))
                        return r;
                if (i >= REPAIRS) /* from here on the pairs past memory can only become fewer */
                        forbid_others(w, ret);
        }
}

/* Deals out the GPUs that the pairs leave; jobs that the card cannot hold wait. */
static void place_the_rest(const struct plan_in_progress *w, const char *too_large,
                           struct plan *ret)
{
        size_t free_gpus =
                w->o->gpus ? w->o->gpus - MIN(ret->n_pairs, (size_t)w->o->gpus) : w->n_jobs;

        for (size_t j = 0; j < w->n_jobs; j++) {
                bool paired = false;

                for (size_t i = 0; i < ret->n_pairs && !paired; i++)
                        paired = ret->pairs[i].pair->a == j || ret->pairs[i].pair->b == j;
                if (paired)
                        continue;
                if (!too_large[j] && free_gpus > 0) {
                        ret->alone[ret->n_alone++] = (unsigned)j;
                        free_gpus--;
                } else {
                        ret->waiting[ret->n_waiting++] = (unsigned)j;
                }
        }
}

int plan_make(const struct pairs *p, const struct pairs_pair *list, size_t n_list,
              const struct plan_options *options, struct plan *ret)
{
        _cleanup_free_ struct edge *edges = calloc(n_list + 1, sizeof(*edges));
        _cleanup_free_ unsigned *partners = calloc(p->n + 1, sizeof(*partners));
        _cleanup_free_ struct match_edge *given = calloc(n_list + 1, sizeof(*given));
        _cleanup_free_ char *too_large = calloc(p->n + 1, 1);
        struct plan_in_progress w = {.p = p,
                                     .o = options,
                                     .edges = edges,
                                     .n_jobs = p->n,
                                     .partners = partners,
                                     .given = given};
        struct plan plan = {
                .pairs = calloc(p->n + 1, sizeof(*plan.pairs)),
                .alone = calloc(p->n + 1, sizeof(*plan.alone)),
                .waiting = calloc(p->n + 1, sizeof(*plan.waiting)),
        };
        size_t runnable = 0;
        int r = -ENOMEM;

        if (p->n > MATCH_NODES_MAX)
                r = -E2BIG;
        else if (edges && partners && given && too_large && plan.pairs && plan.alone &&
                 plan.waiting) {
                for (size_t j = 0; j < p->n; j++) {
                        too_large[j] = p->turns[j].memory_bytes > p->card.capacity_bytes;
                        runnable += !too_large[j];
                }
                take_edges(&w, list, n_list);
                plan.edges = w.n_edges;
                r = choose_within_budget(&w, runnable, &plan);
        }
        if (r < 0) {
                plan_free(&plan);
                return r;
        }
        qsort(plan.pairs, plan.n_pairs, sizeof(*plan.pairs), heavy_pairs_first);
        place_the_rest(&w, too_large, &plan);
        *ret = plan;
        return 0;
}

void plan_free(struct plan *p)
{
        free(p->pairs);
        free(p->alone);
        free(p->waiting);
        *p = (struct plan){0};
}
