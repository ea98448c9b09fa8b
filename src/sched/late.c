/* late.c: owns the decision which clients are overdue, and their deadlines. Must never take
 * anything from a client that is late. */
#include "sched/internal.h"

/* True if c owes bytes, an acknowledgement, or progress of its restore on this GPU. Room for less
 * than an extent obliges c only if it lacks no more, because c may be unable to use it. */
static bool outstanding(const struct client *c, const struct account *a, const struct gpu *g)
{
        uint64_t need = account_need(c, a);

        if (a->silent)
                return false; /* c has been sent no LIMIT yet */
        if (account_held(a) > a->limit || a->commit_held > a->commit || a->unsure || a->evicting)
                return true;
        if (!c->waiting || c->lease || a->usage.backed >= MIN(need, a->limit))
                return false;
        return a->limit >= need || a->limit - a->usage.backed >= gpu_extent(g);
}

void late_check(struct sched *s)
{
        for (unsigned i = 0; i < s->clients; i++) {
                struct client *c = &s->client[i];
                bool late;
                unsigned gpu;

                if (!c->used || c->lost)
                        continue;
                late = c->draining && s->now_ns >= c->revoke_due_ns;
                FOR_EACH_GPU_OF (c, gpu) {
                        struct account *a = &c->accounts[gpu];

                        if (!outstanding(c, a, &s->gpu[gpu]))
                                a->due_ns = 0;
                        else if (a->due_ns && s->now_ns >= a->due_ns)
                                late = true;
                }
                if (late && !c->overdue) {
                        c->send_overdue = true;
                        actions_mark(s, c);
                }
                c->overdue = late;
        }
}

void late_set_deadlines(struct sched *s, struct client *c)
{
        unsigned gpu;

        if (c->lost)
                return;
        if (c->draining && s->now_ns < c->revoke_due_ns)
                wake_at(s, c->revoke_due_ns);
        FOR_EACH_GPU_OF (c, gpu) {
                struct account *a = &c->accounts[gpu];

                if (!outstanding(c, a, &s->gpu[gpu]))
                        continue;
                if (!a->due_ns)
                        a->due_ns = s->now_ns + s->config.grace_ns;
                if (s->now_ns < a->due_ns)
                        wake_at(s, a->due_ns);
        }
        if (s->now_ns < c->unpreemptible_until_ns)
                wake_at(s, c->unpreemptible_until_ns);
}
