/* plan.c: owns chance: everything random in a simulated run. Must never depend on what a scheduler
 * decides. */
#include "plan.h"

#include <math.h>
#include <stddef.h>

#include "base/macros.h"

static uint64_t next_random(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

double plan_uniform(uint64_t *state)
{
        return ((double)(next_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
        double radius = sqrt(-2 * log(plan_uniform(state)));

        return radius * cos(2 * M_PI * plan_uniform(state));
}

static uint64_t time_of(uint64_t *state, const struct duration *d)
{
        const double low = (double)d->ns, high = (double)d->high_ns, z98 = 2.326;
        double ns;

        switch (d->distribution) {
        case FIXED:
                return d->ns;
        case EXPONENTIAL:
                return (uint64_t)(low * -log(plan_uniform(state))) + 1;
        case LOGNORMAL:
                ns = exp((log(low) + log(high)) / 2 +
                         normal(state) * (log(high) - log(low)) / (2 * z98));
                return (uint64_t)fmin(fmax(ns, low), high);
        case PARETO:
                return (uint64_t)(low * high / (high - plan_uniform(state) * (high - low)));
        }
        return d->ns;
}

void plan_all(const struct workload *w, struct plan *ret)
{
        unsigned k = 0;

        for (unsigned i = 0; i < w->n_jobs; i++) {
                const struct job *j = &w->jobs[i];
                uint64_t at = j->at_ns, random = w->seed * 1000003 + i;

                for (unsigned n = 0; n < j->count; n++, k++) {
                        uint64_t seed = w->seed * 1000003 + 7919 * (k + 1);

                        ret[k] = (struct plan){.job = j,
                                               .arrives_ns = at,
                                               .random = seed,
                                               .drains = ~seed,
                                               .phase = (unsigned)-1}; /* 0 after one step */
                        if (j->every.ns)
                                at += time_of(&random, &j->every);
                }
        }
}

const struct phase *plan_next(struct plan *p, uint64_t now_ns, uint64_t *ret_ns)
{
        const struct job *j = p->job;
        const struct phase *f;

        if (++p->phase == j->n_phases) {
                p->phase = 0;
                if (++p->round == j->repeat && j->repeat)
                        return NULL;
        }
        f = &j->phases[p->phase];
        *ret_ns = 0;
        if (f->kind != PHASE_MEMORY)
                *ret_ns = MAX(time_of(&p->random, &f->time), sub_sat(f->not_before_ns, now_ns));
        return f;
}
