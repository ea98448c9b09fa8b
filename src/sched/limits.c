/* limits.c: owns the maximum of a class, a user or a holder: a token bucket for each card, from
 * which the time is taken that its clients occupy the card. Must never count a moment twice.
 *
 * A holder whose bucket is empty gives its lease back and waits, outside of the queue, until enough
 * is saved for a turn. Its memory stays, unless others need the room. If nothing has to move and
 * all that a maximum is for can be preempted, they keep their leases, and the maximum holds in each
 * window of time: they are preempted once they have used their part of it. */
#include "sched/internal.h"

/* The most time that a bucket holds. If memory moves it holds BUCKET_MOVED_NS, because a turn must
 * then be worth a hand-off. */
#define BUCKET_NS       ((int64_t)NSEC_PER_SEC)
#define BUCKET_MOVED_NS ((int64_t)(5 * NSEC_PER_SEC))
#define HOUR_NS         (3600 * NSEC_PER_SEC)
#define LINES_MAX       UINT64_C(1000000) /* more windows at a time fill any bucket */

static int64_t most(const struct gpu *g)
{
        return g->oversubscribed ? BUCKET_MOVED_NS : BUCKET_NS;
}

/* ---- windows ---- */

/* Windows begin on a fixed grid. Brings b up to to_ns; all the time since it was filled was used,
 * or none of it. */
static void advance(const struct sched *s, struct bucket *b, uint64_t to_ns, bool used)
{
        const uint64_t window_ns = s->config.window_ns;
        const int64_t part = (int64_t)(window_ns * b->maximum / 1000);
        const int64_t lines = (int64_t)MIN(to_ns / window_ns - b->filled_ns / window_ns, LINES_MAX);
        int64_t ns, first;

        if (to_ns <= b->filled_ns)
                return;
        ns = used ? (int64_t)MIN(to_ns - b->filled_ns, HOUR_NS) : 0;
        first = MIN(ns, (int64_t)(window_ns - b->filled_ns % window_ns));
        b->left_ns -= first;
        if (lines) /* what is left of a window is lost; what is overdrawn is not */
                b->left_ns = MIN(part, b->left_ns + part);
        if (lines > 1)
                b->left_ns = MIN(used ? INT64_MAX : part, b->left_ns + (lines - 1) * part);
        b->left_ns -= ns - first;
        b->filled_ns = to_ns;
}

static void fill(const struct sched *s, struct bucket *b, const struct gpu *g)
{
        const uint64_t ns = b->filled_ns ? MIN(s->now_ns - b->filled_ns, 3600 * NSEC_PER_SEC)
                                         : 3600 * NSEC_PER_SEC;

        if (b->windowed) {
                advance(s, b, s->now_ns, false);
                return;
        }
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
                if (l.bucket->windowed) {
                        advance(s, l.bucket, g->billed_ns, false);
                        advance(s, l.bucket, s->now_ns, true);
                } else {
                        fill(s, l.bucket, g);
                        l.bucket->left_ns -= (int64_t)(s->now_ns - g->billed_ns);
                }
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
                if (c->accounts[gpu]->weight && !c->idle && (c->lease || !c->holder->held) &&
                    (!c->preempted || PLANTED(PREEMPTED_PAYS)))
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
                        if (l.bucket->maximum && !l.bucket->windowed)
                                held |= is_empty(s, h, gpu, l.bucket);
        return held && s->config.mode != SCHED_MODE_OFF && !PLANTED(NO_MAXIMUM);
}

static bool has_used_up(const struct sched *s, struct holder *h)
{
        bool used_up = false;
        struct level l;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                if (!s->gpu[gpu].windowed)
                        continue;
                FOR_EACH_LEVEL_OF (h, gpu, l) {
                        if (!l.bucket->windowed)
                                continue;
                        fill(s, l.bucket, &s->gpu[gpu]);
                        used_up |= l.bucket->left_ns <= 0;
                }
        }
        return used_up && s->config.mode != SCHED_MODE_OFF && !PLANTED(NO_MAXIMUM);
}

static void set_windowed(const struct sched *s, struct bucket *b, const struct gpu *g)
{
        const bool windowed = b->can && !g->oversubscribed && s->config.mode != SCHED_MODE_OFF;

        if (!b->used || windowed == b->windowed)
                return;
        fill(s, b, g);
        b->windowed = windowed;
        b->empty = false;
        if (windowed)
                b->left_ns = MIN(b->left_ns, (int64_t)(s->config.window_ns * b->maximum / 1000));
}

/* Finds out which maxima hold in each window: those of which all that run or wait can be
 * preempted. */
static void find_windowed(struct sched *s, unsigned gpu)
{
        const struct gpu *g = &s->gpu[gpu];
        struct holder *h;
        struct level l;

        if (!g->preemptible && !g->windowed)
                return;
        FOR_EACH_HOLDER_ON (s, gpu, h)
                FOR_EACH_LEVEL_OF (h, gpu, l)
                        l.bucket->used = !(l.bucket->can = true);
        FOR_EACH_HOLDER_ON (s, gpu, h)
                FOR_EACH_LEVEL_OF (h, gpu, l) {
                        l.bucket->used |= h->lease || h->waiting;
                        l.bucket->can &= preempt_can(h);
                }
        s->gpu[gpu].windowed = false;
        FOR_EACH_HOLDER_ON (s, gpu, h)
                FOR_EACH_LEVEL_OF (h, gpu, l) {
                        if (l.bucket->maximum)
                                set_windowed(s, l.bucket, g);
                        s->gpu[gpu].windowed |= l.bucket->windowed;
                }
}

static void check(struct sched *s, struct holder *h)
{
        const bool held = is_held(s, h);

        h->used_up = has_used_up(s, h);

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
        unsigned gpu;

        FOR_EACH_TOUCHED_GPU (s, gpu)
                find_windowed(s, gpu);
        FOR_EACH_TOUCHED_CLIENT (s, c) {
                if (c == c->holder->first)
                        check(s, c->holder);
        }
}

static bool is_on_the_gpu(const struct holder *h)
{
        const struct client *c;

        FOR_EACH_CLIENT_OF (h, c)
                if (c->lease && !c->idle && !c->preempted)
                        return true;
        return false;
}

static void wake_for_window(struct sched *s, const struct holder *h, const struct bucket *b)
{
        const uint64_t window_ns = s->config.window_ns, part = window_ns * b->maximum / 1000;
        uint64_t windows = 1;

        if (!h->lease || h->idle)
                return;
        if (b->left_ns <= 0) {
                windows += (uint64_t)-b->left_ns / MAX(part, UINT64_C(1));
                wake_at(s, (s->now_ns / window_ns + windows) * window_ns);
        } else if (is_on_the_gpu(h)) {
                wake_at(s, s->now_ns + (uint64_t)b->left_ns);
        }
}

static void wake_for(struct sched *s, const struct holder *h, unsigned gpu, const struct bucket *b)
{
        const int64_t lacks_ns = enough(s, h, gpu) - b->left_ns;

        if (b->windowed)
                wake_for_window(s, h, b);
        else if (b->empty && lacks_ns > 0)
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
