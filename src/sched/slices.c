/* slices.c: owns the time slices that the GPU gives to the clients that hold leases together.
 *
 * The GPU runs each process for a slice, in turn. A change of process costs 0.24 ms on an H200
 * (docs/measurements/slices.md). The ranks of a job wait for each other all the time, and a rank
 * that waits gives the rest of its slice away. So they can have long slices while nobody else
 * works. Beside others, each side of a card gets the same: a job with four ranks has four slices in
 * each round, so a single program gets one that is four times as long.
 * Why: docs/decisions.md, "The daemon sets time slices". */
#include "sched/internal.h"

/* What the driver gives to the channels that compute, as read on an H200 (580.159.04). */
#define SLICE_NS (2048 * NSEC_PER_USEC)
/* 0.24 ms are 2 % of it. */
#define SLICE_LONG_NS (10 * NSEC_PER_MSEC)
/* Another side's kernel waits no longer than this for one program. */
#define SLICE_MOST_NS  (16 * NSEC_PER_MSEC)
#define SLICE_LEAST_NS NSEC_PER_MSEC

/* Returns the side's place in g->sides, and adds it if it is not there; SLICE_SIDES: no room. */
static unsigned side_of(struct gpu *g, const struct holder *h)
{
        unsigned i = 0;

        while (i < g->n_sides && !(h->job ? g->sides[i].job == h->job : g->sides[i].only == h))
                i++;
        if (i == g->n_sides && i < SLICE_SIDES)
                g->sides[g->n_sides++] = (struct side){.job = h->job, .only = h->job ? NULL : h};
        return i;
}

void slices_survey(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        const struct client *c;
        unsigned works = 0;
        bool all = true;

        g->n_sides = g->side_most = 0;
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                unsigned i;

                if (!c->lease || c->lost)
                        continue;
                i = c->mps ? SLICE_SIDES : side_of(g, c->holder);
                if (i == SLICE_SIDES) {
                        all = false;
                        break;
                }
                works += !c->idle && !g->sides[i].works;
                g->sides[i].works |= !c->idle;
                g->side_most = MAX(g->side_most, ++g->sides[i].clients);
        }
        if (!all)
                g->n_sides = g->side_most = 0; /* the driver's slices stay */
        hold(s, works > 1, &g->divided, &g->divided_until_ns);
}

static uint64_t slice_on(const struct gpu *g, const struct side *side)
{
        uint64_t whole;

        if (!g->divided)
                return side->clients > 1 ? SLICE_LONG_NS : 0;
        if (g->side_most == 1)
                return 0;
        whole = MIN(g->side_most * SLICE_NS, SLICE_MOST_NS);
        return MAX(whole / side->clients, SLICE_LEAST_NS);
}

uint64_t slices_of(struct sched *s, const struct client *c)
{
        uint64_t least = UINT64_MAX;
        unsigned gpu;

        if (!c->lease || c->lost)
                return c->slice_ns;
        FOR_EACH_GPU_OF (c, gpu) {
                struct gpu *g = &s->gpu[gpu];
                const unsigned i = g->n_sides ? side_of(g, c->holder) : SLICE_SIDES;

                least = MIN(least, i < SLICE_SIDES ? slice_on(g, &g->sides[i]) : 0);
        }
        return least == UINT64_MAX ? 0 : least;
}
