/* limits.c: owns the maximum of a class, a user or a holder: a token bucket for each card, from
 * which the time is taken that its clients occupy the card. Must never count a moment twice.
 *
 * A holder whose bucket is empty gives its lease back and waits, outside of the queue, until enough
 * is saved for a turn. Its memory stays, unless others need the room. */
#include "sched/internal.h"

/* The most time that a bucket holds. If memory moves it holds BUCKET_MOVED_NS, because a turn must
 * then be worth a hand-off. */
#define BUCKET_NS       ((int64_t)NSEC_PER_SEC)
#define BUCKET_MOVED_NS ((int64_t)(5 * NSEC_PER_SEC))

static int64_t most(const struct gpu *g)
{
        return g->oversubscribed ? BUCKET_MOVED_NS : BUCKET_NS;
}

static void fill(const struct sched *s, struct bucket *b, const struct gpu *g)
{
        const uint64_t ns = b->filled_ns ? MIN(s->now_ns - b->filled_ns, 3600 * NSEC_PER_SEC)
                                         : 3600 * NSEC_PER_SEC;

        b->left_ns = MIN(most(g), b->left_ns + (int64_t)(ns * b->maximum / 1000));
        b->filled_ns = s->now_ns;
}

static void use(struct sched *s, const struct client *c, unsigned gpu)
{
        const struct gpu *g = &s->gpu[gpu];
        struct level l;

        FOR_EACH_LEVEL_OF (c->holder, gpu, l) {
                if (!l.bucket->maximum || l.bucket->used_ns == s->now_ns)
                        continue;
                fill(s, l.bucket, g);
                l.bucket->left_ns -= (int64_t)(s->now_ns - g->billed_ns);
                l.bucket->used_ns = s->now_ns;
        }
}

void limits_use(struct sched *s, unsigned gpu)
{
        const struct gpu *g = &s->gpu[gpu];

        for (unsigned i = 0; i < g->n_payers && s->now_ns > g->billed_ns; i++) {
                const struct client *c = g->payers[i];

                /* Memory of a held holder may come back while it waits, which does not count as
                 * use. */
                if (c->accounts[gpu]->weight && !c->idle && (c->lease || !c->holder->held))
                        use(s, c, gpu);
        }
}

/* Returns the time that must be saved before h runs again. */
static int64_t enough(const struct sched *s, const struct holder *h, unsigned gpu)
{
        uint64_t turn_ns = s->config.quantum_min_ns;

        if (ledger_lacks(h, gpu))
                turn_ns = add_sat(turns_quantum(s, h), habits_handoff_cost(s, h));
        return (int64_t)MIN(turn_ns, (uint64_t)most(&s->gpu[gpu]));
}

/* True if b leaves h no time now. */
static bool is_empty(const struct sched *s, const struct holder *h, unsigned gpu, struct bucket *b)
{
        fill(s, b, &s->gpu[gpu]);
        if (b->left_ns <= 0)
                b->empty = true;
        else if (b->left_ns >= enough(s, h, gpu))
                b->empty = false;
        return b->empty;
}

static bool is_held(const struct sched *s, struct holder *h)
{
        bool held = false;
        struct level l;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu)
                FOR_EACH_LEVEL_OF (h, gpu, l)
                        if (l.bucket->maximum)
                                held |= is_empty(s, h, gpu, l.bucket);
        return held && s->config.mode != SCHED_MODE_OFF && !PLANTED(NO_MAXIMUM);
}

static void check(struct sched *s, struct holder *h)
{
        const bool held = is_held(s, h);

        if (held != h->held) {
                h->held = held;
                fair_update(h);
        }
        if (!held)
                return;
        h->stuck = true;
        if (h->lease)
                holder_ask_back(s, h);
}

void limits_check(struct sched *s)
{
        struct client *c;

        FOR_EACH_TOUCHED_CLIENT (s, c) {
                if (c == c->holder->first)
                        check(s, c->holder);
        }
}

static void wake_for(struct sched *s, const struct holder *h, unsigned gpu, const struct bucket *b)
{
        const int64_t lacks_ns = enough(s, h, gpu) - b->left_ns;

        if (b->empty && lacks_ns > 0)
                wake_at(s, s->now_ns + (uint64_t)lacks_ns * 1000 / b->maximum + 1);
        else if (h->lease && !h->idle && b->left_ns > 0)
                wake_at(s, s->now_ns + (uint64_t)b->left_ns * 1000 / (1000 - b->maximum) + 1);
}

void limits_wake(struct sched *s, struct holder *h)
{
        struct level l;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu)
                FOR_EACH_LEVEL_OF (h, gpu, l)
                        if (l.bucket->maximum)
                                wake_for(s, h, gpu, l.bucket);
}
