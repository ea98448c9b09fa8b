/* fair.c: owns the division of each card's time: between users, then between a user's containers
 * and holders, then between a container's holders. Must never look at the time that a client claims
 * to have used.
 *
 * Earliest eligible virtual deadline first (Stoica, Abdel-Wahab, 1995). Each user, container and
 * holder has received some *service* of a card. The mean over all active ones of a division is its
 * virtual time. Who is above the mean has a debt, and is served after those who have none. A debt
 * outlives the last holder of a user or container; time spent away earns nothing. */
#include "sched/internal.h"

/* Hand-offs that a card may save up, so that a quiet hour allows a few short bursts in a row. */
#define CREDIT_MAX_NS ((int64_t)(5 * NSEC_PER_SEC))
#define HOUR_NS       (3600 * NSEC_PER_SEC)
#define FLOOR_MAX_NS  ((int64_t)(120 * NSEC_PER_SEC))

/* ---- one division ---- */

/* Returns the mean service of the active shares. */
static int64_t mean(const struct division *d)
{
        return d->base_ns + (d->active ? d->sum_ns / (int64_t)d->active : 0);
}

static void join(struct division *d, struct share *m)
{
        if (m->active)
                return;
        m->service_ns = MAX(m->service_ns, mean(d)) - d->base_ns;
        m->active = true;
        d->sum_ns += m->service_ns;
        d->active++;
}

static void leave(struct division *d, struct share *m)
{
        if (!m->active)
                return;
        d->sum_ns -= m->service_ns;
        d->active--;
        m->service_ns += d->base_ns;
        m->active = false;
        if (!d->active)
                d->base_ns = MAX(d->base_ns, m->service_ns);
}

static void charge(struct division *d, struct share *m, uint64_t ns)
{
        m->service_ns += (int64_t)ns;
        if (m->active)
                d->sum_ns += (int64_t)ns;
}

/* Returns by how much m is above the mean, times the number of active shares: exact, unlike a
 * quotient. */
static int64_t excess(const struct division *d, const struct share *m)
{
        const int64_t service_ns =
                m->active ? m->service_ns : MAX(m->service_ns, mean(d)) - d->base_ns;

        return d->active ? service_ns * (int64_t)d->active - d->sum_ns : service_ns;
}

static int64_t lag(const struct division *d, const struct share *m)
{
        return excess(d, m) / (int64_t)MAX(d->active, 1U);
}

/* ---- a card ---- */

/* One step on the way from a holder up to all users: a share, and the branch whose part of the time
 * it belongs to. */
struct level {
        struct share *share;
        struct branch *above;
};

static struct level next_level(struct level l, unsigned gpu)
{
        return (struct level){&l.above->on[gpu].share, l.above->parent};
}

static struct division *among(struct level l, unsigned gpu)
{
        return &l.above->on[gpu].below;
}

/* Iterates over the levels of holder h. The caller declares l, a struct level. */
#define FOR_EACH_LEVEL_OF(h, gpu, l)                                           \
        for ((l) = (struct level){&(h)->on[gpu].share, (h)->above}; (l).above; \
             (l) = next_level(l, gpu))

/* While nobody waits, all active shares of a division are served alike: their debts to each other
 * stay, and those of absent ones shrink. */
static void pass_uncontested(struct division *d, int64_t ns)
{
        const int64_t each = ns / (int64_t)MAX(d->active, 1U);

        d->base_ns += each;
        d->uncontested_ns += each;
}

/* Brings the division below b up to date, with the uncontested time since its last use. */
static void catch_up(struct branch *b, unsigned gpu)
{
        const int64_t now_ns = b->parent->on[gpu].below.uncontested_ns;
        struct branch_on *on = &b->on[gpu];

        if (on->seen_ns != now_ns) {
                pass_uncontested(&on->below, now_ns - on->seen_ns);
                on->seen_ns = now_ns;
        }
}

static void catch_up_all(struct holder *h, unsigned gpu)
{
        catch_up(h->user, gpu);
        if (h->above != h->user)
                catch_up(h->above, gpu);
}

/* True if c has the card's time now, or its memory moves in. A victim that drains, or is overdue
 * with its eviction, keeps the card from the next client, so the victim pays. */
static bool occupies(const struct sched *s, const struct client *c, unsigned gpu)
{
        const struct gpu *g = &s->gpu[gpu];
        const struct holder *h = c->holder;
        const struct account *a = c->accounts[gpu];

        if (PLANTED(IDLE_IS_FREE) && c->idle)
                return false;
        if (PLANTED(OVERRUN_IS_FREE) && c->lease && turns_over(s, h))
                return false;
        return h->lease || c->lease || (c->overdue && a->evicting) ||
               (gpu_hands_to(g, h) && !g->drains) ||
               (h->waiting && c->restoring && !account_missing(c, a) && !account_resident(c, a));
}

/* Returns so many thousandths of a time, counted for an hour at most. */
static int64_t part(uint64_t ns, unsigned permille)
{
        return (int64_t)(MIN(ns, HOUR_NS) / 1000 * permille);
}

/* Returns the time in which so many thousandths of it grow to `part_ns`, rounded up. */
static uint64_t time_for(int64_t part_ns, unsigned permille)
{
        return part_ns <= 0 ? 0 : (uint64_t)part_ns / permille * 1000 + 1000;
}

/* Bills the time since the last event. */
void fair_bill(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        const uint64_t ns = s->now_ns - g->billed_ns;

        if (!ns)
                return;
        g->billed_ns = s->now_ns;
        g->credit_ns = MIN(CREDIT_MAX_NS, g->credit_ns + part(ns, s->config.handoff_permille));
        if (g->lower_waits)
                g->floor_ns = MIN(FLOOR_MAX_NS, g->floor_ns + part(ns, s->config.floor_permille));
        if (!g->wanted) {
                pass_uncontested(&s->branch->on[gpu].below, (int64_t)ns);
                return;
        }
        for (unsigned i = 0; i < g->n_payers; i++) {
                struct client *c = g->payers[i];
                const struct account *a = c->accounts[gpu];
                struct level l;
                uint64_t bill;

                if (!a->weight)
                        continue; /* it has left since */
                bill = (uint64_t)((double)ns * (double)a->weight / (double)g->weights);
                catch_up_all(c->holder, gpu);
                if (c->holder->promoted)
                        g->floor_ns -= (int64_t)bill;
                FOR_EACH_LEVEL_OF (c->holder, gpu, l)
                        charge(among(l, gpu), l.share, bill);
        }
}

void fair_weigh(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct client *c;

        g->weights = g->n_payers = 0;
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                struct account *a = c->accounts[gpu];

                /* Clients that run beside each other share the bill by their bytes. */
                a->weight = !occupies(s, c, gpu)     ? 0
                            : PLANTED(BYTES_IGNORED) ? 1
                                                     : account_charge(a) / MIB + 1;
                g->weights += a->weight;
                if (a->weight)
                        g->payers[g->n_payers++] = c;
        }
}

/* A user or container is active while a holder below it is. */
static void set_active(struct holder *h, unsigned gpu, bool active)
{
        struct level l;

        catch_up_all(h, gpu);
        FOR_EACH_LEVEL_OF (h, gpu, l) {
                (active ? join : leave)(among(l, gpu), l.share);
                active = among(l, gpu)->active > 0;
        }
}

/* A holder is active while it waits or one of its clients, even a lost one, has a lease. */
void fair_update(struct holder *h)
{
        bool active = h->waiting;
        const struct client *c;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c)
                active |= c->lease > 0;
        FOR_EACH_GPU_OF (h, gpu)
                set_active(h, gpu, active);
}

void fair_detach(struct holder *h, unsigned gpu)
{
        set_active(h, gpu, false);
        h->on[gpu] = (struct holder_on){0};
}

struct lag fair_lag(struct holder *h)
{
        struct lag r = {{INT64_MIN, h->above == h->user ? 0 : INT64_MIN, INT64_MIN}};
        struct level l;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                unsigned i = LEVEL_HOLDER;

                FOR_EACH_LEVEL_OF (h, gpu, l) {
                        r.ns[i] = MAX(r.ns[i], lag(among(l, gpu), l.share));
                        i = l.above == h->user ? LEVEL_USER : LEVEL_CONTAINER;
                }
        }
        return r;
}

/* Returns the time until h has no more debt, if others are served alone until then. */
uint64_t fair_wait(struct holder *h)
{
        struct level l;
        int64_t ns = 0;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu)
                FOR_EACH_LEVEL_OF (h, gpu, l)
                        ns = MAX(ns, excess(among(l, gpu), l.share));
        return (uint64_t)ns;
}

/* ---- the floor of lower priorities ---- */

uint64_t fair_floor_wait(const struct sched *s, const struct holder *h, uint64_t turn_ns)
{
        const int64_t turn = (int64_t)MIN(turn_ns, (uint64_t)FLOOR_MAX_NS);
        uint64_t wait_ns = UINT64_MAX;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct gpu *g = &s->gpu[gpu];
                uint64_t ns;

                if (h->priority >= g->top_priority)
                        continue;
                ns = time_for(turn - g->floor_ns, s->config.floor_permille);
                wait_ns = wait_ns == UINT64_MAX ? ns : MAX(wait_ns, ns);
        }
        return wait_ns;
}

/* ---- the credit for hand-offs ---- */

/* Returns the time until a hand-off of that cost may interrupt a turn. */
uint64_t fair_credit_wait(const struct sched *s, const struct gpu *g, uint64_t cost_ns)
{
        const int64_t lacking = MIN((int64_t)MIN(cost_ns, HOUR_NS), CREDIT_MAX_NS) - g->credit_ns;

        return time_for(lacking, s->config.handoff_permille);
}

void fair_spend(struct gpu *g, uint64_t cost_ns)
{
        g->credit_ns = MAX(-CREDIT_MAX_NS, g->credit_ns - (int64_t)MIN(cost_ns, HOUR_NS));
}

/* ---- users and containers ---- */

/* Returns the greatest debt of a user or container without holders. */
static int64_t debt(const struct sched *s, const struct branch *b)
{
        int64_t most = 0;

        for (unsigned gpu = 0; gpu < s->gpus; gpu++)
                most = MAX(most, b->on[gpu].share.service_ns - mean(&b->parent->on[gpu].below));
        return most;
}

static void forget(struct sched *s, struct branch *b)
{
        for (unsigned i = 1; i < BRANCHES(s); i++)
                if (s->branch[i].parent == b)
                        s->branch[i] = (struct branch){0};
        *b = (struct branch){0};
}

/* Returns the record of a user or container, for another holder. */
static struct branch *branch_for(struct sched *s, struct branch *parent, uint64_t number)
{
        struct branch *best = s->branch + 1;

        /* A free record exists: each holder has at most two, and this one lacks one yet. */
        for (unsigned i = 1; i < BRANCHES(s); i++) {
                struct branch *b = &s->branch[i];

                if (!b->parent || (b->number == number && b->parent == parent)) {
                        best = b;
                        break;
                }
                if (b->holders == 0 && (best->holders > 0 || debt(s, b) < debt(s, best)))
                        best = b;
        }
        if (best->number != number || best->parent != parent) {
                forget(s, best);
                *best = (struct branch){.parent = parent, .number = number};
        }
        best->holders++;
        return best;
}

void fair_join(struct sched *s, struct holder *h, struct sched_origin origin)
{
        h->user = h->above = branch_for(s, s->branch, origin.uid);
        if (origin.container && !PLANTED(NO_CONTAINERS))
                h->above = branch_for(s, h->user, origin.container);
}

void fair_leave(struct sched *s, struct holder *h)
{
        for (struct branch *b = h->above; b != s->branch; b = b->parent) {
                b->holders--;
                if (PLANTED(DEBT_FORGOTTEN) && b->holders == 0)
                        forget(s, b);
        }
        h->user = h->above = NULL;
}
