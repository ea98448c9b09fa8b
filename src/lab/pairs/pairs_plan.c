/* pairs_plan.c: owns the choice and the order of the pairs. Must never look at the machine. */
#include "lab/pairs/pairs_plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/splitmix.h"

#define PARTS 20 /* parts of the list; in each, every kind of pairs has its share */

enum kind { KERNELS, MODELS, MIXED, WITHIN, KINDS };

/* Most pairs are of the first of these ways that is available. */
static const enum way ways_by_pairs[] = {WAY_SHARED, WAY_SLICED, WAY_TURNS};

/* Each way measures one in so many rounds of a kind. */
static const unsigned one_in[KINDS][WAYS] = {
        [KERNELS] = {1, 3, 10}, [MODELS] = {1, 1, 8}, [MIXED] = {8, 16, 48}, [WITHIN] = {1, 1, 1}};

struct ranked {
        struct pairs_item item;
        unsigned part, kind, row; /* row: of its way */
        size_t at;                /* place within its kind and way */
};

struct list {
        struct ranked *items;
        size_t n, room;
};

int pairs_find_job(const struct pairs_job *jobs, size_t n, const char *name)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(jobs[i].name, name) == 0)
                        return (int)i;
        return -1;
}

static void shuffle(unsigned *numbers, size_t n, uint64_t *state)
{
        for (size_t i = n; i > 1; i--) {
                const size_t k = splitmix_next(state) % i;
                const unsigned other = numbers[k];

                numbers[k] = numbers[i - 1];
                numbers[i - 1] = other;
        }
}

/* ---- families take turns ---- */

struct dealt {
        unsigned job, random;
        double at; /* place in its family, from 0 to 1 */
};

static int compare_dealt(const void *one, const void *other)
{
        const struct dealt *a = one, *b = other;

        if (fabs(a->at - b->at) > 1e-9)
                return a->at < b->at ? -1 : 1;
        return a->random < b->random ? -1 : a->random > b->random;
}

/* Orders the numbers of jobs at random, such that each family is spread evenly: neighbours are of
 * different families. */
static int deal(const struct pairs_job *jobs, unsigned *numbers, size_t n, uint64_t *state)
{
        struct dealt *all = calloc(n + 1, sizeof(*all));

        if (!all)
                return -ENOMEM;
        shuffle(numbers, n, state);
        for (size_t i = 0; i < n; i++) {
                const char *family = jobs[numbers[i]].family;
                unsigned before = 0, size = 0;

                for (size_t k = 0; k < n; k++)
                        if (strcmp(jobs[numbers[k]].family, family) == 0) {
                                before += k < i;
                                size++;
                        }
                all[i] = (struct dealt){numbers[i], (unsigned)i, (before + 0.5) / size};
        }
        qsort(all, n, sizeof(*all), compare_dealt);
        for (size_t i = 0; i < n; i++)
                numbers[i] = all[i].job;
        free(all);
        return 0;
}

void pairs_choose(struct pairs_job *jobs, size_t n_jobs, size_t n, uint64_t seed)
{
        struct pairs_job *chosen = calloc(n_jobs + 1, sizeof(*chosen));
        unsigned numbers[PAIRS_JOBS_MAX];

        for (unsigned i = 0; i < n_jobs; i++)
                numbers[i] = i;
        if (chosen && deal(jobs, numbers, n_jobs, &seed) == 0) {
                for (size_t i = 0; i < n; i++)
                        chosen[i] = jobs[numbers[i]];
                memcpy(jobs, chosen, n * sizeof(*jobs));
        }
        free(chosen);
}

/* ---- rounds ---- */

static int add(struct list *l, const struct ranked *r)
{
        if (l->n == l->room) {
                const size_t room = l->room ? 2 * l->room : 256;
                struct ranked *more = reallocarray(l->items, room, sizeof(*more));

                if (!more)
                        return -ENOMEM;
                l->items = more;
                l->room = room;
        }
        l->items[l->n++] = *r;
        return 0;
}

/* Adds one round of a kind: each job once, or nearly. Within one list, round r pairs i with r - i
 * (modulo the count): all rounds together have each pair once, and each job with itself. Between
 * two lists it pairs i of the shorter with i + r of the longer. */
static int add_round(struct list *l, const unsigned *a, size_t n_a, const unsigned *b, size_t n_b,
                     unsigned round, struct ranked *r)
{
        for (size_t i = 0; i < n_a; i++) {
                const size_t k = a == b ? (round + n_a - i) % n_a : (round + i) % n_b;
                int result;

                if (a == b && k < i)
                        continue;
                r->item.a = a[i];
                r->item.b = b[k];
                result = add(l, r);
                if (result < 0)
                        return result;
                r->at++;
        }
        return 0;
}

static int add_kind(struct list *l, enum kind kind, const unsigned *a, size_t n_a,
                    const unsigned *b, size_t n_b, const struct pairs_choice *choice,
                    uint64_t *state)
{
        const size_t most = choice->partners ? MIN((size_t)choice->partners, n_b) : n_b;
        unsigned rounds[PAIRS_JOBS_MAX], row = 0;

        if (n_a == 0 || n_b == 0)
                return 0;
        for (unsigned i = 0; i < n_b; i++)
                rounds[i] = i;
        if (choice->partners) { /* consecutive rounds go through the families */
                const unsigned first = (unsigned)(splitmix_next(state) % n_b);

                for (unsigned i = 0; i < n_b; i++)
                        rounds[i] = (unsigned)((first + i) % n_b);
        } else {
                shuffle(rounds, n_b, state);
        }
        for (size_t w = 0; w < ARRAY_SIZE(ways_by_pairs); w++) {
                const size_t begin = l->n;
                struct ranked r = {.item = {.way = ways_by_pairs[w]}, .kind = kind, .row = row};
                size_t n;

                if (!choice->ways[r.item.way])
                        continue;
                n = (most + one_in[kind][row] - 1) / one_in[kind][row];
                row++;
                for (size_t i = 0; i < n; i++) {
                        const int result = add_round(l, a, n_a, b, n_b, rounds[i], &r);

                        if (result < 0)
                                return result;
                }
                for (size_t i = begin; i < l->n; i++)
                        l->items[i].part = (unsigned)(PARTS * l->items[i].at / r.at);
        }
        return 0;
}

static int compare(const void *one, const void *other)
{
        const struct ranked *a = one, *b = other;

        if (a->part != b->part)
                return a->part < b->part ? -1 : 1;
        if (a->kind != b->kind)
                return a->kind < b->kind ? -1 : 1;
        if (a->row != b->row)
                return a->row < b->row ? -1 : 1;
        return a->at < b->at ? -1 : a->at > b->at;
}

int pairs_plan(const struct pairs_job *jobs, size_t n_jobs, const struct pairs_choice *choice,
               struct pairs_item **ret_items, size_t *ret_n)
{
        uint64_t seed = choice->seed;
        unsigned kernels[PAIRS_JOBS_MAX], models[PAIRS_JOBS_MAX];
        size_t n_kernels = 0, n_models = 0;
        struct list l = {0};
        struct pairs_item *items;
        int r;

        for (unsigned i = 0; i < n_jobs && i < PAIRS_JOBS_MAX; i++) {
                if (jobs[i].torch && !choice->within)
                        models[n_models++] = i;
                else
                        kernels[n_kernels++] = i;
        }
        /* Neighbours in the table are alike, and must not always have the same partners. */
        r = deal(jobs, kernels, n_kernels, &seed);
        if (r == 0)
                r = deal(jobs, models, n_models, &seed);
        if (r == 0)
                r = add_kind(&l, choice->within ? WITHIN : KERNELS, kernels, n_kernels, kernels,
                             n_kernels, choice, &seed);
        if (r == 0)
                r = add_kind(&l, MODELS, models, n_models, models, n_models, choice, &seed);
        if (r == 0 && n_models <= n_kernels)
                r = add_kind(&l, MIXED, models, n_models, kernels, n_kernels, choice, &seed);
        else if (r == 0)
                r = add_kind(&l, MIXED, kernels, n_kernels, models, n_models, choice, &seed);
        items = r == 0 ? calloc(l.n + 1, sizeof(*items)) : NULL;
        if (!items) {
                free(l.items);
                return -ENOMEM;
        }
        qsort(l.items, l.n, sizeof(*l.items), compare);
        for (size_t i = 0; i < l.n; i++)
                items[i] = l.items[i].item;
        *ret_items = items;
        *ret_n = l.n;
        free(l.items);
        return 0;
}
