/* turns.c: owns the length of turns and the order in which holders are served. Must never change a
 * byte count. */
#include "sched/internal.h"

#define TURN_MAX_NS  (24 * 3600 * NSEC_PER_SEC)
#define DEADLINE_MAX 4e18 /* keeps deadlines within 63 bits */

/* ---- how long ---- */

/* Hand-offs may cost handoff_permille (p) of the time, so a turn lasts (1000 - p) / p times the
 * cost of a hand-off. */
uint64_t turns_quantum(const struct sched *s, const struct holder *h)
{
        const struct sched_config *config = &s->config;
        const uint64_t p = config->handoff_permille;
        uint64_t cost_ns;

        if (holder_quantum(s, h))
                return holder_quantum(s, h);
        /* Limiting the cost first keeps the product small; the clamp would limit it anyway. */
        cost_ns = MIN(habits_handoff_cost(s, h), config->quantum_max_ns);
        return clamp_u64(cost_ns / p * (1000 - p), config->quantum_min_ns, config->quantum_max_ns);
}

uint64_t turns_next(const struct sched *s, const struct holder *h)
{
        const uint64_t longest = turns_quantum(s, h), burst = habits_burst(s, h);

        return burst ? clamp_u64(burst, MIN(s->config.quantum_min_ns, longest), longest) : longest;
}

void turns_begin(struct sched *s, struct holder *h)
{
        const uint64_t longest = turns_quantum(s, h);
        unsigned gpu;

        h->granted_ns = s->now_ns;
        h->turn_end_ns = add_sat(s->now_ns, longest);
        FOR_EACH_GPU_OF (h, gpu) {
                h->on[gpu].grown = h->on[gpu].ahead = 0;
                s->gpu[gpu].quantum_ns = longest;
        }
}

void turns_shorten(const struct sched *s, struct holder *h)
{
        if (h->lease)
                h->turn_end_ns = MIN(h->turn_end_ns, add_sat(h->granted_ns, turns_quantum(s, h)));
}

bool turns_over(const struct sched *s, const struct holder *h)
{
        return s->now_ns >= h->turn_end_ns;
}

/* Returns the time until the floor has time for h's next turn. */
uint64_t turns_floor_wait(struct sched *s, const struct holder *h)
{
        return fair_floor_wait(s, h, add_sat(turns_quantum(s, h), habits_handoff_cost(s, h)));
}

/* ---- in which order ---- */

static double clamp_double(double v, double low, double high)
{
        return v < low ? low : v > high ? high : v;
}

bool turns_before(const struct entry *a, const struct entry *b)
{
        if (a->priority != b->priority)
                return a->priority > b->priority;
        if (a->kind != b->kind)
                return a->kind < b->kind;
        if (a->debtor != b->debtor)
                return a->debtor < b->debtor;
        if (a->debt_ns != b->debt_ns)
                return a->debt_ns < b->debt_ns;
        if (a->deadline_ns != b->deadline_ns)
                return a->deadline_ns < b->deadline_ns;
        return a->ticket < b->ticket;
}

/* On each level, a share that is served more slowly than the mean has a later deadline. */
static int64_t deadline(const struct lag *lag, uint64_t turn_ns)
{
        double ns = (double)MIN(turn_ns, TURN_MAX_NS);

        for (unsigned i = 0; i < LEVELS; i++)
                ns = (ns + (double)lag->ns[i]) * lag->slowness[i];
        return (int64_t)clamp_double(ns, -DEADLINE_MAX, DEADLINE_MAX);
}

/* Returns h's place in the queue for a turn of so many ns. A debt of up to the longest turn counts
 * as none: otherwise a long burst would delay the next short one. */
static struct entry place(const struct sched *s, struct holder *h, const struct lag *lag,
                          uint64_t longest, uint64_t turn_ns)
{
        struct entry e = {
                .h = h, .priority = holder_rank(h), .kind = WAIT_RUN, .ticket = h->ticket};

        if (holder_comes_last(s, h)) {
                e.priority = INT_MIN;
                return e;
        }
        e.deadline_ns = deadline(lag, turn_ns);
        for (unsigned i = 0; i < LEVELS; i++)
                if (lag->ns[i] > (int64_t)longest) {
                        e.debtor = (uint16_t)(i + 1);
                        e.debt_ns = lag->ns[i];
                }
        return e;
}

struct entry turns_held(const struct sched *s, struct holder *h, const struct holder *other)
{
        const struct lag lag = fair_lag(h);
        const uint64_t longest = turns_quantum(s, h);
        struct entry e = place(s, h, &lag, longest, turns_next(s, h));

        e.ticket = UINT64_MAX; /* all waiting holders came before */
        if (turns_over(s, h))
                return e;
        e.debtor = 0;
        e.debt_ns = 0;
        e.deadline_ns = deadline(&lag, MIN(habits_left(s, h, other), h->turn_end_ns - s->now_ns));
        return e;
}

struct entry turns_wanted(const struct sched *s, struct holder *h)
{
        struct entry e;
        struct lag lag;
        uint64_t longest, turn_ns;

        if (h->lease && !turns_over(s, h)) {
                e = turns_held(s, h, h);
                e.kind = WAIT_GROWTH;
                e.ticket = h->ticket;
                return e;
        }
        lag = fair_lag(h);
        longest = turns_quantum(s, h);
        turn_ns = add_sat(turns_next(s, h), habits_handoff_cost(s, h));
        e = place(s, h, &lag, longest, MIN(turn_ns, longest));
        if (ANY_GPU_OF(h, gpu, gpu_hands_to(&s->gpu[gpu], h)) && !holder_comes_last(s, h))
                e.kind = WAIT_HANDOFF;
        return e;
}
