/* sched_liars.c: owns the clients that keep the words of the protocol and not its sense, and the
 * check that none of them stops the others. What a liar says of its bytes is true; otherwise no
 * scheduler could help anybody. */
#include "sched_world_internal.h"

#define DRIBBLE_NS (1500 * NSEC_PER_MSEC) /* less than the grace period of the worlds */
#define SLOWER     30u                    /* more than the scheduler forgives */

void liar_draw(struct world *w, struct process *p)
{
        /* Every second process lies, always in the same way. */
        if (w->o.liars && number(w, p) % 2)
                p->lie = (enum lie)(mix(w->o.seed, 5000 + number(w, p)) % LIES);
}

/* Makes the liar's next choice. False: it chooses like an honest client. */
bool liar_thinks(struct world *w, struct process *p)
{
        const bool works = !p->connected || p->wants_run || p->draining;

        if (works && p->lie == LIE_SHORT_LIVED && runs(p) && chance(w, 300)) {
                end_process(w, p);
                return true;
        }
        if (works)
                return false;
        switch (p->lie) {
        case LIE_ASKS:
                if (chance(w, 4))
                        return false;
                for (unsigned i = 0; i < w->o.gpus; i++)
                        if (p->gpu[i].used)
                                send_request(w, p, i, p->gpu[i].commit_asked,
                                             p->gpu[i].unevictable_asked);
                break;
        case LIE_FLAPS:
                if (!p->lease || !p->lease_known || chance(w, 4))
                        return false;
                p->idle = !p->idle;
                send_lease(w, p, UP_IDLE, p->lease);
                break;
        default:
                return false;
        }
        p->think_ns = w->now_ns + below(w, 500 * NSEC_PER_MSEC);
        return true;
}

uint64_t liar_moves(const struct process *p, uint64_t bytes)
{
        return p->lie == LIE_DRIBBLES ? MIN(bytes, UINT64_C(1)) : bytes;
}

uint64_t liar_move_ns(const struct process *p, uint64_t ns)
{
        return p->lie == LIE_DRIBBLES ? DRIBBLE_NS : p->lie == LIE_SLOW ? SLOWER * ns : ns;
}

bool liar_ignores(struct process *p)
{
        p->deaf = p->deaf || (p->lie == LIE_SILENT && p->lease);
        return p->deaf;
}

/* ---- nobody waits without progress ---- */

/* Returns how long somebody may wait while nothing moves: three turns of others, three clients that
 * are asked in vain, and the delays of messages. */
static uint64_t stall_limit(const struct world *w)
{
        const struct sched_config *c = &w->o.config;

        return 3 * MAX(c->quantum_max_ns, c->quantum_ns) + 3 * (c->patience_ns + c->grace_ns) +
               2 * NSEC_PER_SEC;
}

static bool is_named(const struct world *w, const struct process *q)
{
        struct sched_client_view v;

        return q->id && sched_client_view(w->s, q->id, w->now_ns, &v) == 0 &&
               v.flags & (SCHED_OVERDUE | SCHED_UNPREEMPTIBLE | SCHED_LOST);
}

/* True if what p needs does not fit beside the bytes of clients that are named: they cannot be
 * moved, and a person is told whose they are. */
bool is_excused(const struct world *w, const struct process *p)
{
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct sched_account_view v;
                uint64_t stuck = 0;

                if (!p->gpu[i].used)
                        continue;
                for (unsigned k = 0; k < w->o.clients; k++) {
                        const struct process *q = &w->p[k];

                        stuck += q->gpu[i].unevictable;
                        if (q == p)
                                continue;
                        if (!is_named(w, q))
                                stuck += q->gpu[i].exported;
                        else if (!q->deaf && !q->lease)
                                stuck += q->gpu[i].backed;
                        else if (sched_account_view(w->s, q->id, i, &v) == 0)
                                stuck += v.charge - MIN(v.charge, q->gpu[i].unevictable);
                }
                if (p->gpu[i].allocated + stuck + headroom(w) > w->o.total_bytes)
                        return true;
        }
        return is_named(w, p);
}

void check_stalls(struct world *w, int highest, uint64_t passed_ns)
{
        for (unsigned k = 0; k < w->o.clients; k++) {
                struct process *p = &w->p[k];
                uint64_t moved = 0, enough = 1;

                for (unsigned i = 0; i < w->o.gpus; i++) {
                        const struct on_gpu *g = &p->gpu[i];

                        if (!g->used)
                                continue;
                        moved += w->moved[i];
                        enough = MAX(enough, MIN(sub_sat(g->allocated, g->backed), extent(w)));
                }
                if (!p->alive || p->lie || p->hostile || !p->wants_run || runs(p) ||
                    p->priority < highest || is_held(w, p) || w->grants_seen != w->counts.grants ||
                    moved - p->moved_seen >= enough || is_excused(w, p)) {
                        p->stalled_ns = 0;
                        p->moved_seen = moved;
                        p->stalls = false;
                        continue;
                }
                if (p->stalls) /* since the last event at least */
                        p->stalled_ns += passed_ns;
                p->stalls = true;
                w->counts.longest_stall_ns = MAX(w->counts.longest_stall_ns, p->stalled_ns);
                if (p->stalled_ns > stall_limit(w))
                        fail(w, "waits while nothing moves and nobody is named", k);
        }
        w->grants_seen = w->counts.grants;
}
