/* fair.c: owns the division of each card's time, between users first and then between a user's
 * holders. Must never look at the time that a client claims to have used.
 *
 * Earliest eligible virtual deadline first (Stoica, Abdel-Wahab, 1995). Each user and each holder
 * has received some *service* of a card. The mean over all active ones is the virtual time. Who is
 * above the mean has a debt, and is served after those who have none. A debt outlives the last
 * holder of a user; time spent away earns nothing. */
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

/* Returns the user's division of a card, with the uncontested time since its last use. */
static struct user_on *user_on(struct sched *s, const struct holder *h, unsigned gpu)
{
        struct user_on *u = &h->user->on[gpu];
        const struct gpu *g = &s->gpu[gpu];

        if (u->seen_ns != g->uncontested_ns) {
                u->holders.base_ns +=
                        (g->uncontested_ns - u->seen_ns) / (int64_t)MAX(u->holders.active, 1U);
                u->seen_ns = g->uncontested_ns;
        }
        return u;
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

/* Bills the time since the last event. While nobody waits, all active users are served alike:
 * their debts to each other stay, and those of absent users shrink. */
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
                const int64_t each = (int64_t)(ns / MAX(g->users.active, 1U));

                g->users.base_ns += each;
                g->uncontested_ns += each;
                return;
        }
        for (unsigned i = 0; i < g->n_payers; i++) {
                struct client *c = g->payers[i];
                const struct account *a = c->accounts[gpu];
                struct user_on *u;
                uint64_t bill;

                if (!a->weight)
                        continue; /* it has left since */
                bill = (uint64_t)((double)ns * (double)a->weight / (double)g->weights);
                u = user_on(s, c->holder, gpu);
                if (c->holder->promoted)
                        g->floor_ns -= (int64_t)bill;
                charge(&u->holders, &c->holder->on[gpu].share, bill);
                charge(&g->users, &u->share, bill);
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

/* A user is active while one of his holders is. */
static void set_active(struct sched *s, struct holder *h, unsigned gpu, bool active)
{
        struct user_on *u = user_on(s, h, gpu);

        (active ? join : leave)(&u->holders, &h->on[gpu].share);
        (u->holders.active ? join : leave)(&s->gpu[gpu].users, &u->share);
}

/* A holder is active while it waits or one of its clients, even a lost one, has a lease. */
void fair_update(struct sched *s, struct holder *h)
{
        bool active = h->waiting;
        const struct client *c;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c)
                active |= c->lease > 0;
        FOR_EACH_GPU_OF (h, gpu)
                set_active(s, h, gpu, active);
}

void fair_detach(struct sched *s, struct holder *h, unsigned gpu)
{
        set_active(s, h, gpu, false);
        h->on[gpu] = (struct holder_on){0};
}

struct lag fair_lag(const struct sched *s, const struct holder *h)
{
        struct lag r = {INT64_MIN, INT64_MIN};
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct user_on *u = &h->user->on[gpu];

                r.user_ns = MAX(r.user_ns, lag(&s->gpu[gpu].users, &u->share));
                r.holder_ns = MAX(r.holder_ns, lag(&u->holders, &h->on[gpu].share));
        }
        return r;
}

/* Returns the time until h has no more debt, if others are served alone until then. */
uint64_t fair_wait(const struct sched *s, const struct holder *h)
{
        int64_t ns = 0;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct user_on *u = &h->user->on[gpu];

                ns = MAX(ns, excess(&s->gpu[gpu].users, &u->share));
                ns = MAX(ns, excess(&u->holders, &h->on[gpu].share));
        }
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

/* ---- users ---- */

/* Returns the greatest debt of a user without holders. */
static int64_t debt(const struct sched *s, const struct user *u)
{
        int64_t most = 0;

        for (unsigned gpu = 0; gpu < s->gpus; gpu++)
                most = MAX(most, u->on[gpu].share.service_ns - mean(&s->gpu[gpu].users));
        return most;
}

void fair_join(struct sched *s, struct holder *h, uint32_t uid)
{
        struct user *best = s->user;

        /* A free record exists: there are as many records as holders, and h has none yet. */
        for (unsigned i = 0; i < s->config.clients_max; i++) {
                struct user *u = &s->user[i];

                if (!u->known || u->uid == uid) {
                        best = u;
                        break;
                }
                if (u->holders == 0 && (best->holders > 0 || debt(s, u) < debt(s, best)))
                        best = u;
        }
        if (!best->known || best->uid != uid)
                *best = (struct user){.known = true, .uid = uid};
        best->holders++;
        h->user = best;
}

void fair_leave(struct holder *h)
{
        h->user->holders--;
        if (PLANTED(DEBT_FORGOTTEN) && h->user->holders == 0)
                h->user->known = false;
        h->user = NULL;
}
