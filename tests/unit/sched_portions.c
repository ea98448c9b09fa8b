/* sched_portions.c: owns the shares of a random world, and the check that no maximum is passed. In
 * a world without shares it draws no random number. */
#include "sched_world_internal.h"

#define BUCKET_NS    (5 * NSEC_PER_SEC) /* the largest that limits.c fills */
#define OVERDRAFT_NS NSEC_PER_SEC       /* messages on their way, and a drain */
#define MAXIMUM_MIN  200U               /* a smaller one makes waits longer than a world lasts */

static unsigned user_of(const struct world *w, const struct process *p)
{
        return number(w, p) / MAX(MAX(w->o.group, w->o.job), 1U) % WORLD_USERS;
}

/* Half of all worlds have one class for the first two users, and one for the third. In the others
 * each user has the settings of [default]. */
static unsigned class_of(const struct world *w, unsigned user)
{
        return w->o.shares && mix(w->o.seed, 6000) % 2 ? 1 + user / 2 : 0;
}

static struct portion *portion_of(struct world *w, const struct process *p)
{
        const unsigned user = user_of(w, p), class = class_of(w, user);

        return &w->portions[class ? class - 1 : user];
}

static struct sched_share draw(struct world *w, unsigned minimum_most)
{
        return (struct sched_share){
                .weight = chance(w, 300) ? 0 : 250 + (unsigned)below(w, 4000),
                .minimum = chance(w, 500) ? 0 : (unsigned)below(w, minimum_most),
                .maximum =
                        chance(w, 500) ? 0 : MAXIMUM_MIN + (unsigned)below(w, 1000 - MAXIMUM_MIN)};
}

void portions_draw(struct world *w)
{
        if (!w->o.shares)
                return;
        w->random = mix(w->o.seed, 6001 + w->counts.reloads);
        for (unsigned i = 0; i < WORLD_USERS; i++)
                w->portions[i] = (struct portion){.share = draw(w, 900 / WORLD_USERS)};
}

void portions_ask(struct world *w, struct process *p)
{
        if (w->o.shares && !w->o.group && chance(w, 300))
                p->share = draw(w, 900 / WORLD_CLIENTS_MAX);
}

/* In a third of the worlds the first class, or user, has its cards alone. */
static bool is_exclusive(const struct world *w, unsigned portion)
{
        return w->o.shares && mix(w->o.seed, 6100) % 3 == 0 && portion == 0;
}

struct sched_origin portions_origin(const struct world *w, const struct process *p)
{
        const unsigned who = number(w, p) / MAX(w->o.group, 1U), user = user_of(w, p);
        const unsigned class = class_of(w, user), portion = class ? class - 1 : user;
        const unsigned job = w->o.job ? 1 + number(w, p) / w->o.job : 0;

        return (struct sched_origin){.uid = 1000 + user,
                                     .container = w->o.containers ? who / 3 % 3 : job,
                                     .job = job,
                                     .class_number = class,
                                     .share = w->portions[portion].share,
                                     .terms = {.exclusive = is_exclusive(w, portion)}};
}

void portions_reload(struct world *w)
{
        if (!w->o.shares)
                return;
        w->counts.reloads++;
        portions_draw(w);
        for (unsigned i = 0; i < w->o.clients; i++) {
                const struct process *p = &w->p[i];
                const struct sched_origin origin = portions_origin(w, p);
                struct sched_actions out = {0};

                if (!p->id)
                        continue;
                if (sched_client_origin(w->s, p->id, &origin, w->now_ns, &out) < 0)
                        fail(w, "a class may not change", i);
                perform(w, &out);
        }
}

bool is_held(const struct world *w, const struct process *p)
{
        struct sched_client_view v;

        return w->o.shares && p->id && sched_client_view(w->s, p->id, w->now_ns, &v) == 0 && v.held;
}

/* ---- no maximum is passed ---- */

/* Nobody can be held who does not answer, so only calm worlds are checked, without liars. */
static bool applies(const struct world *w)
{
        return w->o.shares && !w->o.accidents && !w->o.liars && !w->o.hostile && calm(w);
}

static void read_meter(struct world *w, struct meter *m, unsigned maximum, uint64_t passed_ns,
                       unsigned process)
{
        m->above_ns = sub_sat(m->above_ns + (m->busy ? passed_ns : 0), passed_ns / 1000 * maximum);
        if (!maximum || !applies(w))
                m->above_ns = 0;
        if (m->above_ns > BUCKET_NS + OVERDRAFT_NS)
                fail(w, "a maximum is passed", process);
        m->busy = false;
}

static void mark_busy(struct world *w, struct process *p)
{
        struct portion *o = portion_of(w, p);
        struct sched_client_view v;

        if (!p->id || sched_client_view(w->s, p->id, w->now_ns, &v) < 0 || !v.lease || v.idle ||
            v.preempted)
                return;
        for (unsigned gpu = 0; gpu < w->o.gpus; gpu++)
                if (p->gpu[gpu].known)
                        p->meter[gpu].busy = o->meter[gpu].busy = true;
}

/* True if q uses time of its maximum: with a lease and work, or while a hand-off serves it. */
static bool uses(const struct world *w, const struct process *q)
{
        struct sched_client_view v;

        return q->id && sched_client_view(w->s, q->id, w->now_ns, &v) == 0 && !v.idle &&
               (v.lease || (v.state == SCHED_RESTORING && !v.held));
}

/* A held process waits until its bucket has time for a turn, if nobody empties it meanwhile. */
static void check_held(struct world *w, struct process *p, uint64_t passed_ns)
{
        const struct portion *o = portion_of(w, p);
        uint64_t part = MIN(p->share.maximum ? p->share.maximum : 1000,
                            o->share.maximum ? o->share.maximum : 1000);
        bool used = false;

        for (unsigned i = 0; i < w->o.clients; i++)
                used |= portion_of(w, &w->p[i]) == o && uses(w, &w->p[i]);
        if (!is_held(w, p) || used || !applies(w)) {
                p->held_ns = 0;
                return;
        }
        w->counts.held += p->held_ns == 0;
        p->held_ns += passed_ns + 1;
        if (p->held_ns > (BUCKET_NS + OVERDRAFT_NS) * 1000 / part + OVERDRAFT_NS)
                fail(w, "held although its bucket must be full", number(w, p));
}

void check_maxima(struct world *w, uint64_t passed_ns)
{
        if (!w->o.shares)
                return;
        for (unsigned gpu = 0; gpu < w->o.gpus; gpu++) {
                for (unsigned i = 0; i < WORLD_USERS; i++)
                        read_meter(w, &w->portions[i].meter[gpu], w->portions[i].share.maximum,
                                   passed_ns, 99);
                for (unsigned i = 0; i < w->o.clients; i++)
                        read_meter(w, &w->p[i].meter[gpu], w->p[i].share.maximum, passed_ns, i);
        }
        for (unsigned i = 0; i < w->o.clients; i++)
                mark_busy(w, &w->p[i]);
        for (unsigned i = 0; i < w->o.clients; i++)
                check_held(w, &w->p[i], passed_ns);
}
