/* preempt.c: owns which clients with leases the GPU runs now. A client whose channels the daemon
 * takes off the GPU keeps its lease and its memory. Must never give or take a lease or a byte.
 *
 * The sides of slices.c compete for the GPU's time. Sides that have gaps, equal parts of it and no
 * minimum run beside each other, and the GPU slices it. Otherwise the GPU is serial: one side runs
 * at a time, and each has its part of every window. Why: docs/decisions.md, "Programs without gaps
 * take turns". */
#include "sched/internal.h"

/* A lower priority has saved time for a higher one's pause when it can run for so long. */
#define PIECE_NS ((int64_t)(10 * NSEC_PER_MSEC))
/* The cost of two changes of sides: there and back. */
#define CHANGES_NS ((int64_t)NSEC_PER_MSEC)
/* A part shorter than this is saved. */
#define LEAST_NS (2 * CHANGES_NS)
/* A program is without gaps if it idles for less than a twentieth of its time: 20 ns of work cancel
 * 1 ns of a gap. */
#define GAPS_FORGOTTEN 20
#define HOUR_NS        ((int64_t)(3600 * NSEC_PER_SEC))

/* True if the daemon can preempt c on its GPU without stopping its work on another one. */
static bool can_lose_time(const struct client *c)
{
        return c->preemptible && !c->mps && !c->lost && !c->stands && !(c->gpus & (c->gpus - 1));
}

/* True if, besides, c need not give way. */
static bool can_be_preempted(const struct client *c)
{
        return can_lose_time(c) && (!c->draining || PLANTED(PREEMPTED_DRAINS));
}

bool preempt_overdue(const struct client *c)
{
        return c->overdue && c->preemptible && c->lease;
}

/* True if c has work, and is not asked to give way. */
static bool has_work(const struct client *c)
{
        if (!c->lease || c->lost || c->idle || preempt_overdue(c))
                return false;
        return !c->draining || PLANTED(PREEMPTED_DRAINS);
}

/* True if c keeps the GPU busy, and may: its maximum leaves it time. */
static bool client_works(const struct client *c)
{
        return has_work(c) && !(c->holder->used_up && can_be_preempted(c));
}

bool preempt_can(const struct holder *h)
{
        const struct client *c;

        FOR_EACH_CLIENT_OF (h, c)
                if ((c->lease || c->waiting) && !can_lose_time(c))
                        return false;
        return true;
}

bool preempt_shares_exclusive(const struct sched *s, unsigned gpu)
{
        const struct holder *h;
        unsigned n = 0;

        if (!s->gpu[gpu].preemptible || s->gpu[gpu].oversubscribed)
                return false;
        FOR_EACH_HOLDER_ON (s, gpu, h) {
                if (!preempt_can(h))
                        return false;
                n += h->lease || h->waiting;
        }
        return n <= SLICE_SIDES;
}

#define FOR_EACH_SIDE_OF(g, side) \
        for ((side) = (g)->sides; (side) < (g)->sides + (g)->n_sides; (side)++)

/* ---- who competes ---- */

static void survey_sides(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        bool works[SLICE_SIDES] = {0};
        struct client *c;
        struct side *side;

        FOR_EACH_SIDE_OF (g, side) {
                side->can = side->idles = true;
                side->off = false;
                side->priority = INT_MAX;
        }
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                side = c->lease ? slices_side(g, c->holder) : NULL;
                if (!side)
                        continue;
                side->can &= can_be_preempted(c);
                side->priority = MIN(side->priority, c->holder->priority);
                side->idles &= !has_work(c);
                works[side - g->sides] |= client_works(c);
        }
        FOR_EACH_SIDE_OF (g, side) {
                if (works[side - g->sides] && !side->works)
                        side->since_ns = s->now_ns;
                side->works = works[side - g->sides];
        }
}

/* Adds h's parts to the sums of the divisions that it takes part in. */
static void count_parts(struct sched *s, struct holder *h, unsigned gpu)
{
        struct level l;

        FOR_EACH_LEVEL_OF (h, gpu, l) {
                struct division *d = &l.above->on[gpu].below;

                if (l.share->counted == s->counts)
                        return; /* and so are all levels above */
                l.share->counted = s->counts;
                if (d->counted != s->counts)
                        d->working_parts = 0;
                d->counted = s->counts;
                d->working_parts += MAX(l.share->parts, UINT64_C(1));
        }
}

static double part_of(struct holder *h, unsigned gpu, bool *ret_minimum)
{
        double part = 1;
        struct level l;

        *ret_minimum = false;
        FOR_EACH_LEVEL_OF (h, gpu, l) {
                const uint64_t parts = MAX(l.share->parts, UINT64_C(1)),
                               all = l.above->on[gpu].below.working_parts;

                part = part * (double)parts / (double)all;
                *ret_minimum |= l.share->minimum > 0 && parts < all;
        }
        return part;
}

/* Calls f for each holder with work on a side that competes. */
static void for_each_competitor(struct sched *s, unsigned gpu,
                                void (*f)(struct sched *s, struct side *side, struct holder *h,
                                          unsigned gpu))
{
        struct holder *last = NULL;
        struct client *c;

        FOR_EACH_CLIENT_ON (s, gpu, c) {
                struct side *side;

                if (c->holder == last || !client_works(c))
                        continue;
                side = slices_side(&s->gpu[gpu], c->holder);
                if (!side || !side->competes)
                        continue;
                last = c->holder;
                f(s, side, c->holder, gpu);
        }
}

static void count_holder(struct sched *s, struct side *side, struct holder *h, unsigned gpu)
{
        (void)side;
        count_parts(s, h, gpu);
}

static void add_part(struct sched *s, struct side *side, struct holder *h, unsigned gpu)
{
        bool minimum;

        (void)s;
        side->part += part_of(h, gpu, &minimum);
        side->minimum |= minimum;
}

/* Finds the sides of the highest priority that work, and the part of the time that each of them is
 * due: the time of each division goes to those in it that work. Returns how many compete. */
static unsigned find_competitors(struct sched *s, unsigned gpu, bool *ret_lower)
{
        struct gpu *g = &s->gpu[gpu];
        int top = INT_MIN;
        unsigned n = 0;
        struct side *side;

        *ret_lower = false;
        FOR_EACH_SIDE_OF (g, side)
                if (side->works && side->can)
                        top = MAX(top, side->priority);
        FOR_EACH_SIDE_OF (g, side) {
                side->competes = side->works && side->can && side->priority == top;
                side->part = 0;
                side->minimum = false;
                n += side->competes;
                *ret_lower |= side->works && side->can && side->priority < top;
        }
        s->counts++;
        for_each_competitor(s, gpu, count_holder);
        for_each_competitor(s, gpu, add_part);
        return n;
}

/* The GPU's slices give sides with equal parts the same only if none has gaps. */
static bool needs_windows(const struct gpu *g)
{
        double least = 2, most = 0;
        const struct side *side;

        FOR_EACH_SIDE_OF (g, side) {
                if (!side->competes)
                        continue;
                if (side->minimum)
                        return true;
                least = MIN(least, side->part);
                most = MAX(most, side->part);
        }
        return most > least * 1.01;
}

/* ---- windows ---- */

/* The most that a side can have left. A part that is too short to be used is saved. */
static int64_t most(const struct side *side)
{
        return MAX(side->budget_ns, LEAST_NS);
}

static double rest(const struct side *side)
{
        return (double)side->left_ns / (double)most(side);
}

/* Brings the parts up to date: others begin to work and idle within a window. A side keeps the same
 * fraction of its part. */
static void set_budget(const struct gpu *g, struct side *side)
{
        const double part = PLANTED(PARTS_ALIKE) ? 0.5 : side->part, left = rest(side);

        side->budget_ns = MAX((int64_t)(part * (double)g->window_length_ns), INT64_C(1));
        if (left > 0)
                side->left_ns = (int64_t)(left * (double)most(side));
}

/* Gives a side its part of the current window. What it had overdrawn is taken off; what it had not
 * used is lost. */
static void give_part(const struct gpu *g, struct side *side)
{
        side->left_ns = MIN(most(side), side->left_ns + side->budget_ns);
        side->window = g->window;
}

static void begin_window(const struct sched *s, struct gpu *g)
{
        struct side *side;

        g->window++;
        g->window_ns = s->now_ns;
        FOR_EACH_SIDE_OF (g, side)
                if (side->competes)
                        give_part(g, side);
}

static bool has_rest(const struct side *side)
{
        return side->left_ns > 0 &&
               (side->runs || side->budget_ns >= LEAST_NS || side->left_ns >= LEAST_NS);
}

/* True if a runs before b. In each window the sides run in the same order. Ordered by what is left,
 * a side that overdrew a microsecond less than the other would run twice in a row. */
static bool is_before(const struct gpu *g, const struct side *a, const struct side *b)
{
        const bool fresh = a->ran_ns <= g->window_ns;

        if (fresh != (b->ran_ns <= g->window_ns))
                return fresh;
        return fresh ? a->ran_ns < b->ran_ns : rest(a) > rest(b);
}

/* Returns the side that runs next: one that has not run in this window, else the one with the most
 * of its part left. NULL: none has any left. */
static struct side *next_side(struct gpu *g)
{
        struct side *best = NULL, *side;

        FOR_EACH_SIDE_OF (g, side)
                if (side->competes && has_rest(side) && (!best || is_before(g, side, best)))
                        best = side;
        return best;
}

static bool begins(const struct sched *s, const struct side *side)
{
        return side->competes && side->since_ns == s->now_ns;
}

static bool one_begins(const struct sched *s, const struct gpu *g)
{
        const struct side *side;

        FOR_EACH_SIDE_OF (g, side)
                if (begins(s, side))
                        return true;
        return false;
}

/* Returns the side that begins to work and takes the GPU from `now`; NULL: none does. Any rest of
 * its part is enough: a program with short gaps would otherwise lose its turn in each of them. */
static struct side *interrupts(const struct sched *s, struct gpu *g, const struct side *now)
{
        struct side *best = NULL, *side;

        FOR_EACH_SIDE_OF (g, side) {
                if (side == now || !begins(s, side) || !has_rest(side) || PLANTED(LENT_FOR_GOOD))
                        continue;
                if (now->since_ns == s->now_ns && rest(side) <= rest(now))
                        continue; /* both begin */
                if (!best || rest(side) > rest(best))
                        best = side;
        }
        return best;
}

/* Returns which of the sides that compete runs now. */
static struct side *by_windows(struct sched *s, struct gpu *g)
{
        struct side *now = NULL, *other, *side;

        FOR_EACH_SIDE_OF (g, side) {
                if (!side->competes)
                        continue;
                set_budget(g, side);
                if (side->window != g->window)
                        give_part(g, side);
                if (side->runs)
                        now = side;
        }
        if (one_begins(s, g) && s->now_ns - g->window_ns >= g->window_length_ns)
                begin_window(s, g);
        if (now && has_rest(now)) {
                other = interrupts(s, g, now);
                return other ? other : now;
        }
        if (now)
                now->runs = false;
        while (!(side = next_side(g))) /* this ends: each window adds to what each side has left */
                begin_window(s, g);
        return side;
}

/* ---- the floor of lower priorities ---- */

/* Returns the side of a lower priority that gets a piece of the saved time now; NULL: none. */
static struct side *by_floor(struct sched *s, struct gpu *g)
{
        struct side *best = NULL, *side;

        if (one_begins(s, g))
                return NULL;
        if (g->piece_end_ns > s->now_ns) {
                FOR_EACH_SIDE_OF (g, side)
                        if (side->runs && side->works && side->can && !side->competes)
                                return side;
                return NULL;
        }
        if (g->piece_saved_ns < PIECE_NS)
                return NULL;
        FOR_EACH_SIDE_OF (g, side) {
                if (!side->works || !side->can || side->competes)
                        continue;
                if (!best || side->ran_ns < best->ran_ns)
                        best = side;
        }
        if (!best)
                return NULL;
        g->piece_end_ns = s->now_ns + (uint64_t)PIECE_NS;
        g->piece_saved_ns -= CHANGES_NS; /* so the higher priority loses no more than the floor */
        return best;
}

static void wake_for_piece(struct sched *s, const struct gpu *g)
{
        const int64_t lacks_ns = PIECE_NS - g->piece_saved_ns;

        if (g->piece_end_ns)
                wake_at(s, g->piece_end_ns);
        else
                wake_at(s, s->now_ns + (lacks_ns <= 0 ? 1
                                                      : (uint64_t)lacks_ns * 1000 /
                                                                        s->config.floor_permille +
                                                                1));
}

/* ---- one side at a time, or all ---- */

/* Lets one side run, and preempts all others that can be. */
static void run_alone(struct gpu *g, struct side *run)
{
        struct side *side;

        FOR_EACH_SIDE_OF (g, side) {
                side->runs = side == run;
                side->off = side != run && side->works && side->can;
        }
}

static void run_all(struct gpu *g)
{
        struct side *side;

        g->serial = g->lower_off = false;
        g->piece_end_ns = 0;
        FOR_EACH_SIDE_OF (g, side) {
                side->runs = g->alone && side->competes;
                side->off = false;
                if (!g->alone)
                        side->left_ns = 0;
        }
        /* Sides that ran beside each other begin with a whole part each. */
        if (!g->alone)
                g->window++;
}

static void run_one(struct sched *s, struct gpu *g, bool lower)
{
        struct side *run = by_windows(s, g), *piece = lower ? by_floor(s, g) : NULL;

        g->serial = true;
        g->lower_off = lower;
        if (!piece)
                g->piece_end_ns = 0;
        if (lower)
                wake_for_piece(s, g);
        if (!piece && !g->alone)
                wake_at(s, s->now_ns + (uint64_t)MAX(run->left_ns, INT64_C(1)));
        run_alone(g, piece ? piece : run);
}

/* ---- programs without gaps ---- */

/* True if the sides take turns although their parts are equal: two of them or more have worked for
 * a while almost without gaps, and all that work are single programs that can be preempted. A turn
 * costs them less than slices do. In slices, a program that waits for each of its kernels would run
 * one kernel in each round. One that has used up its maximum counts, unless a program with gaps
 * works: that one would gain nothing by turns. */
static bool take_turns(struct sched *s, struct gpu *g)
{
        unsigned n = 0, now = 0;
        bool all = g->side_most > 0, gaps = false;
        struct side *side;

        FOR_EACH_SIDE_OF (g, side) {
                side->gapless = side->gaps_ns < (side->gapless ? PREEMPT_GAPS_NS : INT64_C(1));
                n += side->gapless;
                now += side->gapless && side->works;
                gaps |= side->works && !side->gapless;
                all &= !side->works || (side->competes && side->clients == 1);
        }
        FOR_EACH_SIDE_OF (g, side)
                if (all && side->competes && !side->gapless)
                        wake_at(s, s->now_ns + MAX((uint64_t)side->gaps_ns * GAPS_FORGOTTEN + 1,
                                                   (uint64_t)LEAST_NS));
        return all && (now > 1 || (n > 1 && !gaps)) && !PLANTED(NO_TURNS);
}

/* ---- the decision ---- */

static bool is_exclusive(const struct sched *s)
{
        return s->config.mode == SCHED_MODE_EXCLUSIVE && !PLANTED(EXCLUSIVE_RUNS_ALL);
}

static void choose(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        bool lower, exact, turns;
        unsigned n;

        survey_sides(s, gpu);
        n = find_competitors(s, gpu, &lower);
        exact = needs_windows(g);
        turns = take_turns(s, g);
        g->alone = n == 1;
        /* A change of sides costs the same however many sides there are. So windows grow with the
         * number of sides, unless parts differ or one has a minimum. */
        g->window_length_ns = s->config.window_ns * (exact || n < 2 ? 2 : n) / 2;
        if (lower || (n > 1 && (is_exclusive(s) || exact || turns))) {
                run_one(s, g, lower);
                return;
        }
        if (g->alone)
                (void)by_windows(s, g);
        run_all(g);
}

/* True if a client works on a GPU of c that is not overdue itself. */
static bool others_work(const struct sched *s, const struct client *c)
{
        const struct client *o;
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu)
                FOR_EACH_CLIENT_ON (s, gpu, o)
                        if (o != c && client_works(o))
                                return true;
        return false;
}

/* True if the overdue client c leaves the GPU to others now: at once, and from then on but for the
 * time of the floor. Without that it could never finish its work and give way. */
static bool leaves_time(struct sched *s, const struct client *c)
{
        const uint64_t period_ns = (uint64_t)PIECE_NS * 1000 / s->config.floor_permille;
        const uint64_t since_ns = (s->now_ns - c->late_ns) % period_ns;
        const uint64_t off_ns = period_ns - (uint64_t)PIECE_NS;
        const bool piece = since_ns >= off_ns;

        if (!others_work(s, c) || PLANTED(OVERDUE_RUNS))
                return false;
        wake_at(s, s->now_ns - since_ns + (piece ? period_ns : off_ns));
        return !piece;
}

static bool is_off(struct sched *s, struct gpu *g, const struct client *c)
{
        const struct side *side;

        if (!c->preemptible || !c->lease || c->lost || (c->idle && !PLANTED(IDLE_STAYS_OFF)) ||
            s->config.mode == SCHED_MODE_OFF)
                return false;
        if (c->overdue)
                return leaves_time(s, c);
        side = slices_side(g, c->holder);
        return can_be_preempted(c) && (c->holder->used_up || (side && side->off));
}

static void set(struct sched *s, struct client *c, bool preempted)
{
        if (c->preempted == preempted)
                return;
        c->preempted = preempted;
        actions_mark(s, c);
}

void preempt_end(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct client *c;

        g->serial = g->lower_off = g->alone = false;
        g->n_sides = g->side_most = 0;
        g->piece_end_ns = 0;
        FOR_EACH_CLIENT_ON (s, gpu, c)
                set(s, c, false);
}

void preempt_decide(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct client *c;

        if (!g->preemptible || s->config.mode == SCHED_MODE_OFF) {
                g->alone = false;
                run_all(g);
        } else {
                choose(s, gpu);
        }
        if (g->preemptible)
                FOR_EACH_CLIENT_ON (s, gpu, c)
                        set(s, c, is_off(s, g, c));
}

bool preempt_prompt(const struct sched *s, const struct client *c)
{
        return c->lease &&
               ANY_GPU_OF(c, gpu,
                          s->gpu[gpu].preemptible && (s->gpu[gpu].serial || s->gpu[gpu].divided));
}

/* ---- the time that each side had ---- */

/* While no higher priority works, lower ones have what they want, and need no floor. Of each such
 * gap, the change of sides takes the first part. */
static void use_gap(struct gpu *g, int64_t ns)
{
        const int64_t before_ns = MAX(g->gap_ns - LEAST_NS, INT64_C(0));

        g->gap_ns = g->lower_off ? 0 : MIN(g->gap_ns + ns, HOUR_NS);
        if (!g->lower_off && g->piece_saved_ns > 0)
                g->piece_saved_ns -=
                        MIN(g->piece_saved_ns, MAX(g->gap_ns - LEAST_NS, INT64_C(0)) - before_ns);
}

void preempt_use(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        const int64_t ns = (int64_t)MIN(s->now_ns - g->preempt_ns, (uint64_t)HOUR_NS);
        struct side *side;

        g->preempt_ns = s->now_ns;
        use_gap(g, ns);
        if (g->lower_off && !PLANTED(LOWER_STARVES))
                g->piece_saved_ns =
                        MIN(2 * PIECE_NS,
                            g->piece_saved_ns + ns * (int64_t)s->config.floor_permille / 1000);
        FOR_EACH_SIDE_OF (g, side) {
                if (side->idles)
                        side->gaps_ns = MIN(side->gaps_ns + ns, PREEMPT_GAPS_NS);
                else if (side->works && !side->off)
                        side->gaps_ns = MAX(side->gaps_ns - ns / GAPS_FORGOTTEN, INT64_C(0));
                if (!side->runs || !ns)
                        continue;
                side->ran_ns = s->now_ns;
                if (g->piece_end_ns)
                        g->piece_saved_ns -= ns;
                else if (g->alone) /* time that nobody else wants overdraws nothing */
                        side->left_ns = MAX(side->left_ns - ns, MIN(side->left_ns, INT64_C(0)));
                else
                        side->left_ns = MAX(side->left_ns - ns, -(int64_t)g->window_length_ns);
        }
}
