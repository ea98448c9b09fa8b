/* holder.c: owns the leases: which clients form a holder, and how each client's state changes the
 * holder's. Must never decide who gets a lease or gives way, nor change a byte count.
 * Why: docs/decisions.md, "One lease for the whole process" and "Ranks of a job that take turns
 * have one share of the time, and may share an exclusive card". */
#include "sched/internal.h"

/* The record with the new client's number is usually free; otherwise any free one serves. */
struct holder *holder_new(struct sched *s, unsigned slot, const struct sched_origin *origin)
{
        struct holder *h = &s->holder[slot];

        if (h->first)
                for (h = s->holder; h->first; h++)
                        ;
        *h = (struct holder){
                .job = origin->job, .last_active_ns = s->now_ns, .clock_ns = s->now_ns};
        fair_join(s, h, origin);
        return h;
}

void holder_prioritize(struct holder *h)
{
        const struct client *c;

        h->priority = INT_MAX;
        FOR_EACH_CLIENT_OF (h, c)
                h->priority = MIN(h->priority, c->priority);
}

void holder_add(struct holder *h, struct client *c)
{
        struct client **end = &h->first;

        while (*end)
                end = &(*end)->next;
        *end = c;
        c->next = NULL;
        c->holder = h;
        holder_prioritize(h);
}

void holder_remove(struct sched *s, struct client *c)
{
        struct holder *h = c->holder;
        struct client **link = &h->first;

        while (*link != c)
                link = &(*link)->next;
        *link = c->next;
        c->holder = NULL;
        if (h->first) {
                holder_prioritize(h);
                holder_update(s, h);
                holder_update_waiting(s, h);
                return;
        }
        fair_leave(s, h);
        for (unsigned gpu = 0; gpu < s->gpus; gpu++)
                if (s->gpu[gpu].for_whom == h)
                        s->gpu[gpu].handoff_since_ns = 0;
}

/* ---- the lease ---- */

static void new_ticket(struct sched *s, struct holder *h)
{
        struct client *c;

        h->ticket = ++s->tickets;
        h->stuck = false;
        FOR_EACH_CLIENT_OF (h, c)
                c->restoring = false;
}

bool holder_runs_beside(const struct holder *a, const struct holder *b)
{
        return a == b || (a->job && a->job == b->job && !PLANTED(JOBS_APART));
}

void holder_note_lease(struct gpu *g, const struct holder *h)
{
        if (!g->lease_first)
                g->lease_first = h;
        g->lease_others |= !holder_runs_beside(g->lease_first, h);
}

/* A holder goes on with its old turn if it gave its lease back unasked while others waited. So does
 * a holder with clients that cannot be asked for their leases. Otherwise it could begin new turns
 * without giving way. */
void holder_begin(struct sched *s, struct holder *h)
{
        const bool goes_on = h->goes_on || h->lease;
        unsigned gpu;

        if (!h->lease)
                h->revoke_due_ns = 0;
        h->goes_on = false;
        h->lease = s->leases + 1;
        h->last_until_ns = 0;
        h->slow_restores = 0;
        h->last_active_ns = s->now_ns;
        h->idle = h->waiting = h->yielding = false;
        FOR_EACH_GPU_OF (h, gpu) {
                struct gpu *g = &s->gpu[gpu];

                holder_note_lease(g, h);
                if (gpu_hands_to(g, h)) {
                        g->handoff_ns = s->now_ns - g->handoff_since_ns;
                        g->handoffs_timed++;
                        g->handoff_since_ns = 0;
                        habits_note_handoff(h, g->handoff_ns);
                }
        }
        if (h->lacked || !goes_on)
                turns_begin(s, h);
}

void holder_grant(struct sched *s, struct client *c)
{
        unsigned gpu;

        c->lease = ++s->leases; /* a new number each time: a late message may name the old lease */
        c->revoke_due_ns = 0;
        c->idle = c->restoring = c->waiting = false;
        c->send_grant = true;
        actions_mark(s, c);
        FOR_EACH_GPU_OF (c, gpu) {
                c->accounts[gpu]->run = false;
                c->accounts[gpu]->reserve = 0;
        }
        holder_update(s, c->holder);
}

void holder_revoke(struct sched *s, struct holder *h, unsigned gpu)
{
        const unsigned doublings = MIN(h->drain_failures, DOUBLINGS_MAX);
        const uint64_t patience_ns = s->config.patience_ns << doublings;
        const uint64_t due_ns = add_sat(s->now_ns, add_sat(patience_ns, holder_grace(s, h)));
        struct client *c;
        unsigned other;

        h->yielding = true;
        h->revoke_gpu = gpu;
        if (!h->revoke_due_ns)
                h->revoke_due_ns = due_ns;
        FOR_EACH_GPU_OF (h, other)
                s->gpu[other].drains = true;
        FOR_EACH_CLIENT_OF (h, c) {
                if (!c->lease || c->lost || c->draining || c->stands)
                        continue;
                c->draining = c->send_revoke = true;
                c->revoke_patience_ns = patience_ns;
                /* A failed drain does not prolong the time in which the client must give way. */
                if (!c->revoke_due_ns)
                        c->revoke_due_ns = due_ns;
                actions_mark(s, c);
        }
        holder_update(s, h);
}

void holder_ask_back(struct sched *s, struct holder *h)
{
        const uint64_t when = MAX(h->retry_ns, h->unpreemptible_until_ns);

        if (!h->askable || h->awaited)
                return;
        if (s->now_ns < when)
                wake_at(s, when);
        else
                holder_revoke(s, h, (unsigned)__builtin_ctz(h->gpus));
}

static void drain_failed(struct sched *s, struct holder *h)
{
        h->yielding = false;
        h->drain_failures++;
        h->retry_ns = s->now_ns + (s->config.patience_ns << MIN(h->drain_failures, DOUBLINGS_MAX));
        if (h->drain_failures % DRAIN_FAILURES_MAX == 0)
                h->unpreemptible_until_ns = s->now_ns + UNPREEMPTIBLE_NS;
        s->gpu[h->revoke_gpu].handoff_since_ns = 0; /* a failed drain measures nothing */
}

static void end_lease(struct sched *s, struct holder *h)
{
        if (!h->idle)
                h->last_active_ns = s->now_ns;
        h->lease = 0;
        h->idle = h->promoted = false;
        h->drain_failures = 0;
        /* A holder that waited for growth now waits for its turn, behind those for which it made
         * way. */
        if (h->waiting)
                new_ticket(s, h);
        else
                habits_rest(s, h);
        fair_update(h);
}

void holder_update(struct sched *s, struct holder *h)
{
        const struct client *c;
        bool held = false, idle = true;

        h->askable = h->draining = h->awaited = h->overdue = false;
        FOR_EACH_CLIENT_OF (h, c) {
                h->overdue |= c->overdue;
                if (!c->lease || c->lost) {
                        idle &= !c->waiting;
                        continue;
                }
                held |= !PLANTED(FIRST_COUNTS) || c == h->first;
                idle = c->idle && (idle || PLANTED(LAST_IDLES));
                h->askable |= !c->overdue && !c->stands;
                h->draining |= c->draining;
                h->awaited |= c->draining && !c->overdue && !c->stands;
        }
        if (h->failed && !h->awaited) {
                h->failed = false;
                if (held)
                        drain_failed(s, h);
        }
        if (!h->lease)
                return;
        if (!held) {
                end_lease(s, h);
        } else if (h->idle != idle) {
                h->idle = idle;
                h->last_active_ns = s->now_ns;
                (idle ? habits_rest : habits_work)(s, h);
        }
}

/* ---- waiting ---- */

/* Ends a wait: h has the bytes that it lacked, or no longer asks for them. */
static void stop_waiting(struct sched *s, struct holder *h)
{
        struct client *c;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c) {
                c->restoring = false;
                FOR_EACH_GPU_OF (c, gpu)
                        c->accounts[gpu]->reserve = 0;
        }
        /* Past its turn's end h was given bytes in queue order, so a new turn begins. */
        if (h->waiting && h->lacked && h->lease && turns_over(s, h))
                turns_begin(s, h);
        h->lacked = false;
        if (!h->lease)
                h->promoted = false;
        h->waiting = h->stuck = false;
}

static bool asks_to_run(struct client *c)
{
        bool asks = false;
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                struct account *a = c->accounts[gpu];

                if (a->run && c->lease && !account_missing(c, a))
                        a->run = false;
                asks |= a->run;
        }
        return asks;
}

void holder_update_waiting(struct sched *s, struct holder *h)
{
        struct client *c;
        bool waits = false;

        FOR_EACH_CLIENT_OF (h, c)
                waits |= c->waiting = asks_to_run(c);
        if (!waits) {
                stop_waiting(s, h);
        } else if (!h->waiting) {
                new_ticket(s, h);
                h->waiting = true;
        }
        if (h->waiting)
                habits_work(s, h);
        else if (!h->lease)
                habits_rest(s, h);
        holder_update(s, h);
        fair_update(h);
}
