/* late.c: owns the decision which clients are overdue, and their deadlines. Must never take
 * a byte that a late client has on the card. */
#include "sched/internal.h"

/* True if c owes bytes, an acknowledgement, or progress of its restore on this GPU. Room for less
 * than an extent obliges c only if c lacks no more than that room. Otherwise c may be unable to use
 * the room. */
static bool outstanding(const struct client *c, const struct account *a, const struct gpu *g)
{
        uint64_t need = account_need(c, a);

        if (a->silent)
                return false; /* c has been sent no LIMIT yet */
        if (account_held(a) > a->limit || a->commit_held > a->commit || a->unsure || a->evicting)
                return true;
        if (!c->holder->waiting || c->lease || a->usage.backed >= MIN(need, a->limit))
                return false;
        return a->limit >= need || a->limit - a->usage.backed >= gpu_extent(g);
}

/* True if c was asked to drain and has not drained yet, although somebody still needs that. Once
 * overdue, c stays so until it drains: otherwise it would bar others again as soon as one of them
 * runs. A frozen client need not answer. */
static bool asked(const struct sched *s, const struct client *c)
{
        return c->lease && c->revoke_due_ns && !c->stands &&
               (c->draining || c->overdue || holder_is_waited_for(s, c->holder));
}

/* Once nobody has waited for a while, the next REVOKE is a first one again. */
static void forget_old_revoke(const struct sched *s, struct client *c)
{
        struct holder *h = c->holder;

        if (c->revoke_due_ns && !c->draining && !c->overdue && s->now_ns >= c->revoke_due_ns &&
            !ANY_GPU_OF(h, gpu, s->gpu[gpu].contested) && !holder_is_waited_for(s, h)) {
                c->revoke_due_ns = h->revoke_due_ns = h->retry_ns = 0;
                h->drain_failures = 0;
        }
}

/* Asks h to drain again. No head asks it, because victims are never chosen among overdue
 * clients. */
static void ask_again(struct sched *s, struct holder *h)
{
        const uint64_t when = MAX(h->retry_ns, h->unpreemptible_until_ns);

        if (s->now_ns >= when)
                holder_revoke(s, h, h->revoke_gpu);
        else
                wake_at(s, when);
}

/* A client that has only to acknowledge limits may be sent the next one before it could answer. So
 * each answer renews its grace. If bytes must move, only moved bytes renew it. */
void late_answer(struct client *c, struct account *a, uint32_t sequence)
{
        if (sequence > a->answered && sequence <= a->sequence) {
                a->answered = sequence;
                if (a->usage.backed <= a->limit && c->lease)
                        a->due_ns = 0;
        }
}

/* Takes back the room into which an overdue client moves its memory too slowly. Others get the room
 * after the client's acknowledgement. The client pays for the lost time. Its holder then waits
 * behind all others, for a time that doubles with each slow restore. Otherwise the card would idle
 * for the holder's whole share. */
static void take_room_back(struct sched *s, struct client *c)
{
        struct holder *h = c->holder;
        bool had_room = false;
        unsigned gpu;

        if (c->lease)
                return;
        FOR_EACH_GPU_OF (c, gpu) {
                const struct account *a = c->accounts[gpu];
                struct gpu *g = &s->gpu[gpu];

                if (!a->silent && a->limit > MAX(a->usage.backed, a->exported)) {
                        ledger_set_limit(s, c, gpu, a->usage.backed);
                        had_room = true;
                }
                if (gpu_hands_to(g, h))
                        g->handoff_since_ns = 0;
        }
        if (!had_room)
                return;
        h->promoted = false;
        /* Room that h got during the last penalty was free already: nobody gave way for h, so it
         * prolongs no penalty. Otherwise a penalty might never end. */
        if (h->last_until_ns && s->now_ns < add_sat(h->last_until_ns, holder_grace(s, h)))
                return;
        h->last_until_ns =
                add_sat(s->now_ns, holder_grace(s, h) << MIN(h->slow_restores, DOUBLINGS_MAX));
        h->slow_restores++;
}

void late_check(struct sched *s)
{
        struct client *c;

        FOR_EACH_TOUCHED_CLIENT (s, c) {
                bool late;
                unsigned gpu;

                if (c->lost)
                        continue;
                forget_old_revoke(s, c);
                late = asked(s, c) && s->now_ns >= c->revoke_due_ns;
                FOR_EACH_GPU_OF (c, gpu) {
                        struct account *a = c->accounts[gpu];

                        if (a->due_ns && !outstanding(c, a, &s->gpu[gpu]))
                                a->due_ns = 0;
                        else if (a->due_ns && s->now_ns >= a->due_ns)
                                late = true;
                }
                if (late && !c->overdue) {
                        c->late_ns = s->now_ns;
                        c->send_overdue = true;
                        actions_mark(s, c);
                }
                if (late != c->overdue) {
                        c->overdue = late;
                        holder_update(s, c->holder);
                }
                if (late && c->holder->waiting && !PLANTED(SLOW_KEEPS_ROOM))
                        take_room_back(s, c);
        }
}

void late_set_deadlines(struct sched *s, struct client *c)
{
        const bool is_asked = asked(s, c);
        struct holder *h = c->holder;
        unsigned gpu;

        if (c->lost)
                return;
        if (is_asked && s->now_ns < c->revoke_due_ns)
                wake_at(s, c->revoke_due_ns);
        else if (is_asked && !c->draining && holder_is_waited_for(s, h))
                ask_again(s, h);
        FOR_EACH_GPU_OF (c, gpu) {
                struct account *a = c->accounts[gpu];

                if (!outstanding(c, a, &s->gpu[gpu]))
                        continue;
                if (!a->due_ns) {
                        a->due_ns = s->now_ns + holder_grace(s, h);
                        if (a->former_due_ns > s->now_ns)
                                a->due_ns = MIN(a->due_ns, a->former_due_ns);
                }
                if (s->now_ns < a->due_ns)
                        wake_at(s, a->due_ns);
        }
        if (s->now_ns < h->unpreemptible_until_ns)
                wake_at(s, h->unpreemptible_until_ns);
}
