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

struct side *slices_side(struct gpu *g, const struct holder *h)
{
        for (unsigned i = 0; i < g->n_sides; i++)
                if (h->job ? g->sides[i].job == h->job : g->sides[i].only == h)
                        return &g->sides[i];
        return NULL;
}

static bool keeps_lease(const struct sched *s, unsigned gpu, const struct side *side)
{
        const struct client *c;

        if (side->clients)
                return true; /* and so it was found already */
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                const struct holder *h = c->holder;

                if (c->lease && !c->lost && (h->job ? side->job == h->job : side->only == h))
                        return true;
        }
        return false;
}

/* Drops the sides whose last lease has ended. */
static void drop(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        unsigned n = 0;

        for (unsigned i = 0; i < g->n_sides; i++)
                if (keeps_lease(s, gpu, &g->sides[i]))
                        g->sides[n++] = g->sides[i];
        g->n_sides = n;
}

/* Returns the side of a holder, and adds it if it is not there; NULL: there is no room. */
static struct side *have_side(struct sched *s, unsigned gpu, const struct holder *h)
{
        struct gpu *g = &s->gpu[gpu];
        struct side *side = slices_side(g, h);

        if (side)
                return side;
        if (g->n_sides == SLICE_SIDES)
                drop(s, gpu);
        if (g->n_sides == SLICE_SIDES)
                return NULL;
        side = &g->sides[g->n_sides++];
        *side = (struct side){.job = h->job, .only = h->job ? NULL : h, .gaps_ns = PREEMPT_GAPS_NS};
        return side;
}

void slices_survey(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        const struct client *c;
        unsigned works = 0;
        bool all = true;

        g->side_most = 0;
        for (unsigned i = 0; i < g->n_sides; i++) {
                g->sides[i].clients = 0;
                g->sides[i].busy = false;
        }
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                struct side *side;

                if (!c->lease || c->lost)
                        continue;
                side = have_side(s, gpu, c->holder);
                all &= side && !c->mps;
                if (!side) {
                        g->n_sides = 0; /* they are too many */
                        break;
                }
                side->clients++;
                works += all && !c->idle && !side->busy;
                side->busy |= !c->idle;
                g->side_most = MAX(g->side_most, side->clients);
        }
        drop(s, gpu);
        if (!all)
                g->side_most = 0; /* the driver's slices stay */
        hold(s, works > 1, &g->divided, &g->divided_until_ns);
}

static uint64_t slice_on(const struct gpu *g, const struct side *side)
{
        uint64_t whole;

        if (!g->side_most)
                return 0;
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
                const struct side *side = slices_side(g, c->holder);

                least = MIN(least, side && side->clients > 0 ? slice_on(g, side) : 0);
        }
        return least == UINT64_MAX ? 0 : least;
}
