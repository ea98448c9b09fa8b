/* sched_shrink.c: owns the search for a short reproducer, by delta debugging of the choices of
 * programs and fate. It leaves choices out and must never change one, so that each candidate is a
 * possible world. Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sched_shrink.h"

#define RUNS_MAX  1500
#define STEPS_MAX 200000

struct search {
        const struct world_options *o;
        const char *text;
        uint64_t until_ns;
        unsigned runs;
        struct shrunk *best;
};

bool shrink_same(const char *a, const char *b)
{
        size_t n = strcspn(a, "(");

        return n == strcspn(b, "(") && strncmp(a, b, n) == 0;
}

/* Plays these choices. If the same fault appears, the list up to the fault becomes the best so
 * far. */
static bool breaks(struct search *q, const struct world_choice *list, unsigned n)
{
        struct world *w = world_replay(q->o, list, n);
        const char *broken = NULL;
        bool same;

        if (!w)
                abort();
        world_trace(w, false);
        q->runs++;
        for (unsigned i = 0; i < STEPS_MAX && !broken; i++) {
                if (world_now_ns(w) > q->until_ns || world_ended(w))
                        break;
                broken = world_step(w);
        }
        same = broken && shrink_same(broken, q->text);
        if (same) {
                while (n && list[n - 1].at_ns > world_now_ns(w))
                        n--;
                memmove(q->best->list, list, n * sizeof(*list));
                q->best->n = n;
                (void)snprintf(q->best->text, sizeof(q->best->text), "%s", broken);
        }
        world_free(w);
        return same;
}

/* Plays the best list without the choices [from, from + n), or without those of one process. */
static bool without(struct search *q, unsigned from, unsigned n, int process)
{
        struct world_choice *rest = calloc(q->best->n + 1, sizeof(*rest));
        unsigned kept = 0;
        bool same;

        if (!rest)
                abort();
        for (unsigned i = 0; i < q->best->n; i++) {
                const struct world_choice *c = &q->best->list[i];
                bool out = process >= 0 ? c->who != CHOOSE_FATE && c->process == (unsigned)process
                                        : i >= from && i - from < n;

                if (!out)
                        rest[kept++] = *c;
        }
        same = kept < q->best->n && breaks(q, rest, kept);
        free(rest);
        return same;
}

bool shrink(const struct world_options *o, const struct world_choice *list, unsigned n,
            const char *text, uint64_t until_ns, struct shrunk *ret)
{
        /* With fewer events the world may notice a wait that is too long only later. */
        struct search q = {
                .o = o, .text = text, .until_ns = until_ns + 60 * NSEC_PER_SEC, .best = ret};
        bool smaller = true;

        *ret = (struct shrunk){.n = n, .list = calloc(n + 1, sizeof(*list))};
        if (!ret->list)
                abort();
        if (!breaks(&q, list, n)) {
                free(ret->list);
                ret->list = NULL;
                return false;
        }
        for (unsigned i = 0; i < o->clients; i++)
                (void)without(&q, 0, 0, (int)i);
        for (unsigned chunk = MAX(ret->n / 2, 1U); smaller || chunk > 1;
             chunk = MAX(chunk / 2, 1U)) {
                smaller = false;
                for (unsigned from = 0; from < ret->n && q.runs < RUNS_MAX;) {
                        if (without(&q, from, chunk, -1))
                                smaller = true;
                        else
                                from += chunk;
                }
                if (q.runs >= RUNS_MAX)
                        break;
        }
        ret->runs = q.runs;
        return true;
}

void shrink_print(const struct world_options *o, const struct shrunk *s)
{
        struct world *w = world_replay(o, s->list, s->n);

        if (!w)
                abort();
        fprintf(stderr, "%u choices, found in %u runs; %u clients, %u GPUs of %llu MiB\n", s->n,
                s->runs, o->clients, o->gpus, (unsigned long long)(o->total_bytes >> 20));
        world_trace(w, true);
        for (unsigned i = 0; i < STEPS_MAX && !world_step(w) && !world_ended(w); i++)
                ;
        world_free(w);
}
