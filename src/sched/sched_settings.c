/* sched_settings.c: owns the changes of settings while clients run: of the daemon, and of one
 * client. Must never move a byte. */
#include <errno.h>

#include "sched/internal.h"
#include "base/precondition.h"

/* True if all allocated memory fits the card now. Mode off promises that it stays there, as with
 * the plain driver. */
static bool all_resident(const struct sched *s)
{
        uint64_t more[SCHED_GPUS_MAX] = {0};

        for (unsigned i = 0; i < s->clients; i++) {
                const struct client *c = &s->client[i];
                unsigned gpu;

                if (!c->used)
                        continue;
                if (c->draining)
                        return false;
                FOR_EACH_GPU_OF (c, gpu) {
                        const struct account *a = c->accounts[gpu];

                        if (a->evicting || account_held(a) > a->limit)
                                return false;
                        more[gpu] += sub_sat(a->usage.allocated, a->limit);
                        if (more[gpu] > ledger_free(&s->gpu[gpu]))
                                return false;
                }
        }
        return true;
}

static void commit_what_is_resident(struct sched *s)
{
        for (unsigned i = 0; i < s->clients; i++) {
                struct client *c = &s->client[i];
                unsigned gpu;

                if (!c->used)
                        continue;
                FOR_EACH_GPU_OF (c, gpu) {
                        struct account *a = c->accounts[gpu];

                        if (a->usage.allocated > a->limit)
                                ledger_set_limit(s, c, gpu, a->usage.allocated);
                        if (a->commit > a->limit)
                                ledger_set_commit(s, c, gpu, a->limit);
                }
        }
}

int sched_set_mode(struct sched *s, enum sched_mode mode, uint64_t now_ns,
                   struct sched_actions *out)
{
        PRECONDITION(mode <= SCHED_MODE_OFF, -EINVAL);
        touch_begin(s, now_ns, ALL_GPUS);
        if (mode == SCHED_MODE_OFF && s->config.mode != SCHED_MODE_OFF) {
                if (!all_resident(s))
                        return -EBUSY;
                commit_what_is_resident(s);
        }
        s->config.mode = mode;
        touch_end(s, out);
        return 0;
}

void sched_set_config(struct sched *s, const struct sched_config *c, uint64_t now_ns,
                      struct sched_actions *out)
{
        touch_begin(s, now_ns, ALL_GPUS);
        s->config.quantum_ns = c->quantum_ns;
        s->config.quantum_min_ns = c->quantum_min_ns;
        s->config.quantum_max_ns = c->quantum_max_ns;
        s->config.handoff_permille = c->handoff_permille;
        s->config.floor_permille = c->floor_permille;
        s->config.grace_ns = c->grace_ns;
        s->config.patience_ns = c->patience_ns;
        s->config.idle_release_ns = c->idle_release_ns;
        s->config.window_ns = c->window_ns;
        config_clamp(&s->config);
        for (unsigned i = 0; i < s->clients; i++)
                if (s->client[i].used)
                        turns_shorten(s, s->client[i].holder);
        touch_end(s, out);
}

/* ---- settings of one client ---- */

static bool same_place(const struct holder *h, const struct sched_origin *o)
{
        const bool in_class = h->top != h->user, in_container = h->above != h->user;

        return (in_class ? h->top->number : 0) == o->class_number && h->user->number == o->uid &&
               (in_container ? h->above->number : 0) == o->container;
}

int sched_client_origin(struct sched *s, sched_client id, const struct sched_origin *origin,
                        uint64_t now_ns, struct sched_actions *out)
{
        struct client *c = client_find(s, id);

        touch_begin(s, now_ns, client_gpus(c));
        if (!c)
                return -ESTALE;
        c->holder->job = origin->job;
        if (same_place(c->holder, origin))
                fair_set_class(s, c->holder, origin);
        else
                fair_move(s, c->holder, origin);
        touch_end(s, out);
        return 0;
}

int sched_client_share(struct sched *s, sched_client id, const struct sched_share *share,
                       uint64_t now_ns, struct sched_actions *out)
{
        struct client *c = client_find(s, id);
        unsigned gpu;

        touch_begin(s, now_ns, client_gpus(c));
        if (!c)
                return -ESTALE;
        fair_set_share(c->holder, share);
        FOR_EACH_GPU_OF (c, gpu)
                c->accounts[gpu]->limit_dirty = true;
        actions_mark(s, c);
        touch_end(s, out);
        return 0;
}

int sched_client_priority(struct sched *s, sched_client id, int priority, uint64_t now_ns,
                          struct sched_actions *out)
{
        struct client *c = client_find(s, id);

        touch_begin(s, now_ns, client_gpus(c));
        if (!c)
                return -ESTALE;
        c->priority = priority;
        holder_prioritize(c->holder);
        touch_end(s, out);
        return 0;
}

int sched_client_mps(struct sched *s, sched_client id, bool mps, uint64_t now_ns,
                     struct sched_actions *out)
{
        struct client *c = client_find(s, id);

        touch_begin(s, now_ns, client_gpus(c));
        if (!c)
                return -ESTALE;
        c->mps = mps;
        touch_end(s, out);
        return 0;
}

int sched_client_preemptible(struct sched *s, sched_client id, bool yes, uint64_t now_ns,
                             struct sched_actions *out)
{
        struct client *c = client_find(s, id);

        touch_begin(s, now_ns, client_gpus(c));
        if (!c)
                return -ESTALE;
        c->preemptible = yes;
        if (!yes && !PLANTED(PREEMPTIBLE_FOR_GOOD)) /* its channels are back on the GPU already */
                c->preempted = c->preempt_sent = false;
        touch_end(s, out);
        return 0;
}

int sched_client_alone(struct sched *s, sched_client id, bool alone, uint64_t now_ns,
                       struct sched_actions *out)
{
        struct client *c = client_find(s, id);

        touch_begin(s, now_ns, client_gpus(c));
        if (!c)
                return -ESTALE;
        c->alone = alone;
        touch_end(s, out);
        return 0;
}
