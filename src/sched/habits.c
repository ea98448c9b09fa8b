/* habits.c: owns what is known of each holder: how long its bursts of work and the gaps between
 * them are, and what its hand-offs cost. Must never decide what follows from that.
 * Why: docs/decisions.md, "The scheduler learns nothing of gaps from ranks that gave way". */
#include "sched/internal.h"

/* Gaps are counted in half octaves from 1 ms on. */
static unsigned bucket(uint64_t ns)
{
        uint64_t ms = MAX(ns / NSEC_PER_MSEC, UINT64_C(1));
        unsigned octave = 63U - (unsigned)__builtin_clzll(ms);
        bool upper = octave && ms & UINT64_C(1) << (octave - 1);

        return MIN(2 * octave + upper, GAP_BUCKETS - 1U);
}

/* Returns the upper end of a bucket. */
static uint64_t bucket_end(unsigned i)
{
        uint64_t ms = UINT64_C(1) << i / 2;

        return (i % 2 ? 2 * ms : ms + MAX(ms / 2, UINT64_C(1))) * NSEC_PER_MSEC;
}

void recent_note(struct recent *r, uint64_t ns)
{
        uint64_t sorted[RECENT_MAX] = {0};
        unsigned n;

        r->ns[r->n++ % RECENT_MAX] = MAX(ns, UINT64_C(1));
        n = MIN(r->n, (unsigned)RECENT_MAX);
        for (unsigned i = 0; i < n; i++) {
                unsigned k = i;

                for (; k && sorted[k - 1] > r->ns[i]; k--)
                        sorted[k] = sorted[k - 1];
                sorted[k] = r->ns[i];
        }
        r->median_ns = sorted[n / 2];
        r->longest_ns = sorted[n - 1];
}

/* The holder has nothing to do from now on. */
void habits_rest(const struct sched *s, struct holder *h)
{
        if (!h->rests_since_ns)
                h->rests_since_ns = MAX(s->now_ns, UINT64_C(1));
}

uint64_t habits_run_ns(const struct sched *s, const struct holder *h)
{
        return h->run_ns + (h->counted_run ? s->now_ns - h->clock_ns : 0);
}

void habits_count(const struct sched *s, struct holder *h)
{
        const bool run = h->lease && !h->idle;

        if (run == h->counted_run)
                return;
        h->run_ns = habits_run_ns(s, h);
        h->clock_ns = s->now_ns;
        h->counted_run = run;
}

static uint64_t burst_so_far(const struct sched *s, const struct holder *h)
{
        return habits_run_ns(s, h) - h->burst_run_ns;
}

static void end_burst(const struct sched *s, struct holder *h)
{
        uint64_t ns = burst_so_far(s, h);

        if (ns)
                recent_note(&h->bursts, ns);
        h->burst_run_ns = habits_run_ns(s, h);
}

/* A program that fills its memory has gaps of less than 1 ms, each between a piece of memory and
 * its use. They tell nothing of its later gaps. */
static void note_gap(struct gaps *g, uint64_t ns)
{
        if (ns < NSEC_PER_MSEC)
                return;
        g->in[bucket(ns)]++;
        if (++g->n < GAPS_MAX)
                return;
        g->n = 0;
        for (unsigned i = 0; i < GAP_BUCKETS; i++)
                g->n += g->in[i] /= 2;
}

/* True if h gave way while its work waited for others. */
static bool has_waited(const struct holder *h)
{
        const struct client *c;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c) {
                FOR_EACH_GPU_OF (c, gpu) {
                        if (c->accounts[gpu]->usage.waits)
                                return !h->lease;
                }
        }
        return false;
}

/* The holder has something to do again. A burst ends with a gap that is worth a hand-off. */
void habits_work(const struct sched *s, struct holder *h)
{
        uint64_t gap;

        if (!h->rests_since_ns)
                return;
        gap = s->now_ns - h->rests_since_ns;
        h->rests_since_ns = 0;
        if (!habits_run_ns(s, h))
                return; /* a program that starts has no gap yet */
        /* This gap ended only because h gave way. A longer wait would not have spared the hand-off,
         * so the gap counts as endless. */
        if (has_waited(h))
                gap = UINT64_MAX;
        if (gap >= habits_release(h, habits_handoff_cost(s, h)))
                end_burst(s, h);
        note_gap(&h->gaps, gap);
        note_gap(&h->user->gaps, gap);
}

/* Returns how long a burst that has lasted so_far will last in all, judged by the last bursts. 0:
 * they are too few, or this burst has outlasted all of them. */
static uint64_t expected(const struct recent *bursts, uint64_t so_far)
{
        if (bursts->n < BURSTS_MIN || so_far > bursts->longest_ns)
                return 0;
        return bursts->n >= RECENT_MAX && so_far <= bursts->median_ns ? bursts->median_ns
                                                                      : bursts->longest_ns;
}

/* Returns how long bursts of h last. 0: unknown, so h is taken for a batch job. */
uint64_t habits_burst(const struct sched *s, const struct holder *h)
{
        return expected(&h->bursts, burst_so_far(s, h));
}

/* Returns how long the burst of h still lasts. If too few of its bursts are known, they are taken
 * to be like those of `other`. UINT64_MAX: nothing is known, or the burst has outlasted all known
 * ones. */
uint64_t habits_left(const struct sched *s, const struct holder *h, const struct holder *other)
{
        const struct holder *like = h->bursts.n < BURSTS_MIN ? other : h;
        const uint64_t so_far = burst_so_far(s, h), burst = expected(&like->bursts, so_far);

        return burst ? burst - so_far : UINT64_MAX;
}

/* Returns how long a gap of h must last before h is asked to give way, if that costs `cost`: the
 * wait that would have cost least with the gaps seen so far. A gap costs the time that the card
 * idles; one longer than the wait also costs the hand-off. Ski rental limits the wait to `cost`. */
uint64_t habits_release(const struct holder *h, uint64_t cost)
{
        const struct gaps *g = h->gaps.n >= GAPS_MIN ? &h->gaps : &h->user->gaps;
        uint64_t best_ns = cost, least_ns = UINT64_MAX, idle_ns = 0;
        unsigned longer = g->n;

        if (g->n < GAPS_MIN)
                return cost / 2;
        for (unsigned i = 0; i <= GAP_BUCKETS; i++) {
                const uint64_t end_ns = i ? bucket_end(i - 1) : NSEC_PER_MSEC;
                const uint64_t wait_ns = longer ? MIN(cost, end_ns) : cost;
                const uint64_t sum_ns = idle_ns + longer * (wait_ns + cost);

                if (sum_ns <= least_ns) {
                        least_ns = sum_ns;
                        best_ns = wait_ns;
                }
                if (i == GAP_BUCKETS || bucket_end(i) > cost)
                        break;
                longer -= g->in[i];
                idle_ns += g->in[i] * bucket_end(i);
        }
        return best_ns;
}

void habits_note_handoff(struct holder *h, uint64_t ns)
{
        recent_note(&h->costs, ns);
}

static uint64_t allocated(const struct holder *h, unsigned gpu)
{
        const struct client *c;
        uint64_t sum = 0;

        FOR_EACH_CLIENT_OF (h, c)
                sum += c->accounts[gpu]->usage.allocated;
        return sum;
}

/* True if only the lease changes hands: the card is exclusive, and all memory fits. */
static bool moves_nothing(const struct gpu *g)
{
        return (g->exclusive || g->beside) && !g->oversubscribed;
}

/* Returns what a hand-off to h costs. Before one is measured, it is the time to move half a card.
 */
uint64_t habits_handoff_cost(const struct sched *s, const struct holder *h)
{
        uint64_t cost = PLANTED(SLOWEST_COUNTS) ? h->costs.longest_ns : h->costs.median_ns;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct gpu *g = &s->gpu[gpu];

                if (moves_nothing(g))
                        continue;
                cost = MAX(cost, gpu_move_ns(g, h->costs.n ? allocated(h, gpu) : g->total / 2));
        }
        return cost;
}
