/* fair.c: owns the division of each card's time. It is divided between classes and the users
 * without one, and a class's time between its users. A user's time is divided between his
 * containers and holders, and a container's time between its holders. Must never look at the time
 * that a client claims to have used.
 *
 * Earliest eligible virtual deadline first (Stoica, Abdel-Wahab, 1995). Each class, user, container
 * and holder has received some *service* of a card. The mean over all active ones of a division is
 * its virtual time. A holder or branch above the mean has a debt, and is served after those that
 * have none. A branch's debt outlives its last holder; absence earns nothing. */
#include "sched/internal.h"

/* The most credit for hand-offs that a card can save up. After a quiet hour it allows a few short
 * bursts in a row. */
#define CREDIT_MAX_NS ((int64_t)(5 * NSEC_PER_SEC))
#define HOUR_NS       (3600 * NSEC_PER_SEC)
#define FLOOR_MAX_NS  ((int64_t)(120 * NSEC_PER_SEC))

/* ---- a card ---- */

static struct division *among(struct level l, unsigned gpu)
{
        return &l.above->on[gpu].below;
}

/* Brings the division below b up to date, with the uncontested time since its last use. */
static void catch_up(struct branch *b, unsigned gpu)
{
        const int64_t now_ns = b->parent->on[gpu].below.uncontested_ns;
        struct branch_on *on = &b->on[gpu];

        if (on->seen_ns != now_ns) {
                division_pass(&on->below,
                              (now_ns - on->seen_ns) * (int64_t)weight_of(&on->share) / 1000);
                on->seen_ns = now_ns;
        }
}

static void catch_up_all(struct holder *h, unsigned gpu)
{
        catch_up(h->top, gpu);
        if (h->user != h->top)
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

/* Returns `permille` thousandths of ns. A longer time than an hour counts as an hour. */
static int64_t part(uint64_t ns, unsigned permille)
{
        return (int64_t)(MIN(ns, HOUR_NS) / 1000 * permille);
}

/* Returns the time of which `permille` thousandths are part_ns, rounded up. */
static uint64_t time_for(int64_t part_ns, unsigned permille)
{
        return part_ns <= 0 ? 0 : (uint64_t)part_ns / permille * 1000 + 1000;
}

/* ---- the floor of lower priorities ---- */

/* Time that a holder may claim before holders of a higher priority. It comes from the minimum of
 * the holder's class, or from the floor that all lower priorities have together. */
struct credit {
        int64_t *ns;
        unsigned permille;
};

static struct credit floor_of(struct sched *s, const struct holder *h, unsigned gpu)
{
        struct branch_on *top = &h->top->on[gpu];

        if (top->share.minimum >= s->config.floor_permille && !PLANTED(NO_MINIMUM))
                return (struct credit){&top->floor_ns, top->share.minimum};
        return (struct credit){&s->gpu[gpu].floor_ns, s->config.floor_permille};
}

static void credit_floors(struct sched *s, unsigned gpu, uint64_t ns)
{
        struct gpu *g = &s->gpu[gpu];
        struct share *m = s->branch->on[gpu].below.with_minimum;

        if (!g->lower_waits && !g->promoted)
                return;
        g->floor_ns = MIN(FLOOR_MAX_NS, g->floor_ns + part(ns, s->config.floor_permille));
        for (; m; m = m->next) {
                int64_t *floor_ns = &container_of(m, struct branch_on, share)->floor_ns;

                *floor_ns = MIN(FLOOR_MAX_NS, *floor_ns + part(ns, m->minimum));
        }
}

uint64_t fair_floor_wait(struct sched *s, const struct holder *h, uint64_t turn_ns)
{
        const int64_t turn = (int64_t)MIN(turn_ns, (uint64_t)FLOOR_MAX_NS);
        uint64_t wait_ns = UINT64_MAX;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct credit c = floor_of(s, h, gpu);
                uint64_t ns;

                if (h->priority >= s->gpu[gpu].top_priority)
                        continue;
                ns = time_for(turn - *c.ns, c.permille);
                wait_ns = wait_ns == UINT64_MAX ? ns : MAX(wait_ns, ns);
        }
        return wait_ns;
}

/* ---- the bill ---- */

/* Bills the time since the last event. */
void fair_bill(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        const uint64_t ns = s->now_ns - g->billed_ns;

        if (!ns)
                return;
        g->credit_ns = MIN(CREDIT_MAX_NS, g->credit_ns + part(ns, s->config.handoff_permille));
        credit_floors(s, gpu, ns);
        g->billed_ns = s->now_ns;
        if (!g->wanted) {
                division_pass(&s->branch->on[gpu].below, (int64_t)ns);
                return;
        }
        for (unsigned i = 0; i < g->n_payers; i++) {
                struct client *c = g->payers[i];
                struct account *a = c->accounts[gpu];
                struct level l;
                uint64_t bill;

                if (!a->weight)
                        continue; /* the client has left since the last event */
                bill = (uint64_t)((double)ns * (double)a->weight / (double)g->weights);
                a->paid_ns += bill;
                catch_up_all(c->holder, gpu);
                if (c->holder->promoted)
                        *floor_of(s, c->holder, gpu).ns -= (int64_t)bill;
                FOR_EACH_LEVEL_OF (c->holder, gpu, l)
                        division_charge(among(l, gpu), l.share, bill);
        }
}

void fair_weigh(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct client *c;

        g->weights = g->n_payers = 0;
        g->promoted = false;
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                struct account *a = c->accounts[gpu];

                /* Clients that run beside each other share the bill by their bytes. */
                a->weight = !occupies(s, c, gpu)     ? 0
                            : PLANTED(BYTES_IGNORED) ? 1
                                                     : account_charge(a) / MIB + 1;
                g->weights += a->weight;
                if (!a->weight)
                        continue;
                g->payers[g->n_payers++] = c;
                g->promoted |= c->holder->promoted;
        }
}

/* A class, user or container is active while a holder below it is. */
static void set_active(struct holder *h, unsigned gpu, bool active)
{
        struct level l;

        catch_up_all(h, gpu);
        FOR_EACH_LEVEL_OF (h, gpu, l) {
                (active ? division_join : division_leave)(among(l, gpu), l.share);
                active = among(l, gpu)->active > 0;
        }
}

/* A holder is active while it waits or one of its clients, even a lost one, has a lease. */
void fair_update(struct holder *h)
{
        bool active = h->waiting && !h->held;
        const struct client *c;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c)
                active |= c->lease > 0;
        FOR_EACH_GPU_OF (h, gpu)
                set_active(h, gpu, active);
}

void fair_detach(struct holder *h, unsigned gpu)
{
        const struct holder_on none = {
                .share = {.weight = h->on[gpu].share.weight, .minimum = h->on[gpu].share.minimum},
                .bucket = {.maximum = h->on[gpu].bucket.maximum},
        };

        set_active(h, gpu, false);
        h->on[gpu] = none;
}

static const unsigned level_of[] = {[BRANCH_CLASS] = LEVEL_CLASS,
                                    [BRANCH_USER] = LEVEL_USER,
                                    [BRANCH_CONTAINER] = LEVEL_CONTAINER};

struct lag fair_lag(struct holder *h)
{
        struct lag r = {.slowness = {1, 1, 1, 1}};
        unsigned gpu, seen = 0;
        struct level l;

        FOR_EACH_GPU_OF (h, gpu) {
                unsigned i = LEVEL_HOLDER;

                FOR_EACH_LEVEL_OF (h, gpu, l) {
                        const int64_t debt_ns = division_debt(among(l, gpu), l.share);
                        const double slowness = division_slowness(among(l, gpu), l.share);

                        r.ns[i] = seen & 1U << i ? MAX(r.ns[i], debt_ns) : debt_ns;
                        r.slowness[i] = seen & 1U << i ? MAX(r.slowness[i], slowness) : slowness;
                        seen |= 1U << i;
                        i = level_of[l.above->kind];
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
                        ns = MAX(ns, division_wait(among(l, gpu), l.share));
        return (uint64_t)ns;
}

/* ---- the credit for hand-offs ---- */

/* Returns the time until a hand-off that costs cost_ns may interrupt a turn. */
uint64_t fair_credit_wait(const struct sched *s, const struct gpu *g, uint64_t cost_ns)
{
        const int64_t lacking = MIN((int64_t)MIN(cost_ns, HOUR_NS), CREDIT_MAX_NS) - g->credit_ns;

        return time_for(lacking, s->config.handoff_permille);
}

void fair_spend(struct gpu *g, uint64_t cost_ns)
{
        g->credit_ns = MAX(-CREDIT_MAX_NS, g->credit_ns - (int64_t)MIN(cost_ns, HOUR_NS));
}

/* ---- classes, users and containers ---- */

/* Returns the greatest debt that a record without holders has on any card. */
static int64_t debt(const struct sched *s, const struct branch *b)
{
        int64_t most = 0;

        for (unsigned gpu = 0; gpu < s->gpus; gpu++)
                most = MAX(most,
                           b->on[gpu].share.service_ns - division_mean(&b->parent->on[gpu].below));
        return most;
}

/* Frees the record, and those below it: no holder is left in any of them. */
static void forget(struct sched *s, struct branch *b)
{
        for (unsigned i = 1; i < BRANCHES(s); i++)
                if (s->branch[i].parent == b && b->kind != BRANCH_CONTAINER)
                        forget(s, &s->branch[i]);
        *b = (struct branch){0};
}

/* Returns the record of a class, user or container, for another holder. */
static struct branch *branch_for(struct sched *s, struct branch *parent, enum branch_kind kind,
                                 uint64_t number)
{
        struct branch *best = s->branch + 1;

        /* A free record exists: each holder has at most three, and this one lacks one yet. */
        for (unsigned i = 1; i < BRANCHES(s); i++) {
                struct branch *b = &s->branch[i];

                if (!b->parent || (b->number == number && b->kind == kind && b->parent == parent)) {
                        best = b;
                        break;
                }
                if (b->holders == 0 && (best->holders > 0 || debt(s, b) < debt(s, best)))
                        best = b;
        }
        if (best->number != number || best->kind != kind || best->parent != parent) {
                forget(s, best);
                *best = (struct branch){.parent = parent, .kind = kind, .number = number};
        }
        best->holders++;
        return best;
}

static void set_share(struct division *d, struct share *m, struct bucket *b,
                      const struct sched_share *share)
{
        const unsigned most = share->maximum >= 1000 ? 0 : share->maximum;

        division_set(d, m, MIN(share->weight, WEIGHT_MAX), MIN(share->minimum, 999U));
        if (b->maximum != most)
                *b = (struct bucket){.maximum = most};
}

void fair_set_class(struct sched *s, struct holder *h, const struct sched_origin *origin)
{
        h->top->terms = origin->terms;
        for (unsigned gpu = 0; gpu < SCHED_GPUS_MAX; gpu++) {
                struct branch_on *top = &h->top->on[gpu];

                set_share(&s->branch->on[gpu].below, &top->share, &top->bucket, &origin->share);
        }
}

void fair_join(struct sched *s, struct holder *h, const struct sched_origin *origin)
{
        const uint32_t class = origin->class_number;

        h->top = branch_for(s, s->branch, class ? BRANCH_CLASS : BRANCH_USER,
                            class ? class : origin->uid);
        h->user = h->above = class ? branch_for(s, h->top, BRANCH_USER, origin->uid) : h->top;
        if (origin->container && !PLANTED(NO_CONTAINERS))
                h->above = branch_for(s, h->user, BRANCH_CONTAINER, origin->container);
        fair_set_class(s, h, origin);
}

void fair_leave(struct sched *s, struct holder *h)
{
        for (struct branch *b = h->above, *parent; b != s->branch; b = parent) {
                parent = b->parent;
                b->holders--;
                if (PLANTED(DEBT_FORGOTTEN) && b->holders == 0)
                        forget(s, b);
        }
        h->top = h->user = h->above = NULL;
}

void fair_move(struct sched *s, struct holder *h, const struct sched_origin *origin)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                set_active(h, gpu, false);
                h->on[gpu].share.service_ns = 0; /* its debt was to those that it leaves */
        }
        fair_leave(s, h);
        fair_join(s, h, origin);
        fair_update(h);
}

void fair_set_share(struct holder *h, const struct sched_share *share)
{
        for (unsigned gpu = 0; gpu < SCHED_GPUS_MAX; gpu++)
                set_share(&h->above->on[gpu].below, &h->on[gpu].share, &h->on[gpu].bucket, share);
}
