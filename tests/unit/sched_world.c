/* sched_world.c: owns the model of the daemon, of fate and of time, and the checks after every
 * event. Must never look into the scheduler's state except through sched.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched_world_internal.h"

/* ---- the daemon ---- */

static struct process *by_id(struct world *w, sched_client id)
{
        for (unsigned i = 0; i < w->o.clients; i++)
                if (w->p[i].id == id)
                        return &w->p[i];
        return NULL;
}

/* Checks invariant 2 against the bytes that are really backed when the daemon decides. */
static void check_grant(struct world *w, struct process *p)
{
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];

                if (g->backed < MIN(g->need_delivered, g->allocated) && !p->hostile)
                        fail(w, "granted with memory that is not resident", number(w, p));
                g->need_delivered = 0;
        }
}

/* True if q, or a process that runs together with it, is overdue or frozen. */
static bool cannot_be_asked(const struct world *w, const struct process *q)
{
        struct sched_client_view v;

        for (unsigned i = 0; i < w->o.clients; i++) {
                const struct process *r = &w->p[i];

                if (are_one(w, q, r) && r->id &&
                    sched_client_view(w->s, r->id, w->now_ns, &v) == 0 &&
                    (v.flags & SCHED_OVERDUE || r->stands))
                        return true;
        }
        return false;
}

/* Checks that in exclusive mode no other client on the same GPUs holds a lease. Exempt are clients
 * that cannot be asked for it, processes that reconnected while running, and pairs of which the
 * daemon can preempt each. */
static void check_alone(struct world *w, struct process *p)
{
        struct sched_client_view v;

        if (w->mode != SCHED_MODE_EXCLUSIVE || w->attaching || p->hostile)
                return;
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *q = &w->p[i];
                bool shared = false;

                if (are_one(w, p, q) || are_one_job(w, p, q) || !q->id ||
                    (p->preemptible && q->preemptible) ||
                    sched_client_view(w->s, q->id, w->now_ns, &v) < 0)
                        continue;
                for (unsigned g = 0; g < w->o.gpus; g++)
                        shared |= p->gpu[g].known && q->gpu[g].known;
                if (shared && v.lease && !(v.flags & SCHED_LOST) && !cannot_be_asked(w, q))
                        fail(w, "two leases in exclusive mode", number(w, p));
        }
}

static void preempt(struct world *w, struct process *p, bool off)
{
        trace(w, p, off ? "is preempted" : "runs again", NULL);
        if (!p->preemptible)
                fail(w, "preempted, though the daemon cannot", number(w, p));
        if (p->preempted == off)
                fail(w, "told twice that it is preempted or runs", number(w, p));
        p->preempted = off;
        w->counts.preempted += off;
}

void perform(struct world *w, struct sched_actions *out)
{
        for (;;) {
                for (unsigned i = 0; i < out->n; i++) {
                        struct message m = {.type = DOWN_ACTION, .action = out->list[i]};
                        struct process *p = by_id(w, out->list[i].client);

                        if (p && out->list[i].type == SCHED_DO_GRANT) {
                                check_grant(w, p);
                                check_alone(w, p);
                        }
                        if (p && out->list[i].type == SCHED_DO_PREEMPT) {
                                preempt(w, p, out->list[i].preempt);
                        } else if (out->list[i].type == SCHED_DO_OVERDUE) {
                                w->counts.overdue++;
                                if (p && calm(w) && !p->failed && !p->lie)
                                        fail(w, "overdue, though it answers", number(w, p));
                        } else if (p && p->connected)
                                push(w, &p->down, &m);
                        else if (!p)
                                fail(w, "an action for a client that is gone", 0);
                }
                out->n = 0;
                if (!out->more)
                        return;
                sched_pump(w->s, w->now_ns, out);
        }
}

void tell_preemptible(struct world *w, struct process *p, bool yes)
{
        struct sched_actions out = {0};
        struct sched_client_view v;

        trace(w, p, yes ? "can be preempted" : "cannot be preempted", NULL);
        p->preemptible = yes;
        if (!yes)
                p->preempted = false; /* its channels are back on the GPU */
        if (sched_client_preemptible(w->s, p->id, yes, w->now_ns, &out) < 0)
                fail(w, "whether a client can be preempted was refused", number(w, p));
        perform(w, &out);
        if (sched_client_view(w->s, p->id, w->now_ns, &v) == 0 && v.preempted != p->preempted)
                fail(w, "it runs, and the scheduler believes that it does not", number(w, p));
}

static void garbage(struct world *w, struct process *p, struct sched_actions *out)
{
        uint64_t huge[] = {0,
                           1,
                           w->o.total_bytes,
                           UINT64_MAX,
                           UINT64_MAX - 1,
                           UINT64_MAX / 2,
                           below(w, w->o.total_bytes)};
        unsigned gpu = (unsigned)below(w, 18);

#define ANY huge[below(w, ARRAY_SIZE(huge))]
        struct sched_usage u = {ANY, ANY, ANY, ANY, ANY, ANY, ANY, chance(w, 500), chance(w, 500)};
        struct sched_request request = {
                ANY, ANY, ANY, chance(w, 500), chance(w, 500), chance(w, 500), (uint32_t)ANY};
        struct sched_attach at = {.usage = u,
                                  .unevictable_requested = ANY,
                                  .running = chance(w, 300),
                                  .run = chance(w, 500),
                                  .idle = chance(w, 500),
                                  .spare = chance(w, 500)};
        uint64_t lease = chance(w, 500) ? ANY : w->counts.grants;

        switch (below(w, 9)) {
        case 8:
                (void)sched_client_export(
                        w->s, p->id, gpu,
                        &(struct sched_export){ANY, chance(w, 500), (uint32_t)ANY}, w->now_ns, out);
                break;
        case 0:
                (void)sched_client_attach(w->s, p->id, gpu, &at, w->now_ns, out);
                break;
        case 1:
        case 2:
                (void)sched_client_usage(w->s, p->id, gpu, &u, (uint32_t)below(w, 10), 0, w->now_ns,
                                         out);
                break;
        case 3:
        case 4:
                (void)sched_client_request(w->s, p->id, gpu, &request, w->now_ns, out);
                break;
        case 5:
                (void)sched_client_idle(w->s, p->id, lease, chance(w, 500), w->now_ns, out);
                break;
        case 6:
                (void)sched_client_drained(w->s, p->id, lease, w->now_ns, out);
                break;
        case 7:
                (void)sched_client_drain_failed(w->s, p->id, lease, ANY, w->now_ns, out);
                break;
        }
#undef ANY
}

static void tell_stands(struct world *w, struct process *p, bool stands, struct sched_actions *out)
{
        perform(w, out);
        w->counts.stood += stands;
        trace(w, p, stands ? "stands" : "stands no more", NULL);
        p->stands = stands;
        if (sched_client_stands(w->s, p->id, stands, w->now_ns, out) < 0)
                fail(w, "a client may not stand still", number(w, p));
}

static bool drains(const struct world *w, const struct process *p, uint64_t lease)
{
        struct sched_client_view v;

        return sched_client_view(w->s, p->id, w->now_ns, &v) == 0 && v.state == SCHED_DRAINING &&
               v.lease == lease;
}

static void deliver_up(struct world *w, struct process *p, const struct message *m)
{
        struct sched_actions out = {0};
        bool stands;
        int r = 0;

        switch (m->type) {
        case UP_USAGE:
                /* The client may have freed memory since its request. */
                p->gpu[m->gpu].need_delivered =
                        MIN(p->gpu[m->gpu].need_delivered, m->usage.allocated);
                r = sched_client_usage(w->s, p->id, m->gpu, &m->usage, m->limit_sequence,
                                       m->poisoned ? SCHED_POISONED : 0, w->now_ns, &out);
                break;
        case UP_REQUEST:
                p->gpu[m->gpu].need_delivered = m->request.run ? m->request.need : 0;
                r = sched_client_request(w->s, p->id, m->gpu, &m->request, w->now_ns, &out);
                break;
        case UP_IDLE:
                r = sched_client_idle(w->s, p->id, m->lease, m->idle, w->now_ns, &out);
                break;
        case UP_DRAINED:
                p->failed = false; /* until now the daemon knows of the failed drain alone */
                r = sched_client_drained(w->s, p->id, m->lease, w->now_ns, &out);
                break;
        case UP_DRAIN_FAILED:
                stands = m->paused && p->paused && drains(w, p, m->lease);
                r = sched_client_drain_failed(w->s, p->id, m->lease, NSEC_PER_SEC, w->now_ns, &out);
                if (stands)
                        tell_stands(w, p, true, &out);
                break;
        case UP_SHORT:
                r = sched_client_short(w->s, p->id, m->gpu, m->bytes, w->now_ns, &out);
                break;
        case UP_ATTACH:
                p->gpu[m->gpu].known = true;
                w->attaching = m->attach.running;
                r = sched_client_attach(w->s, p->id, m->gpu, &m->attach, w->now_ns, &out);
                break;
        case UP_EXPORT:
                r = sched_client_export(w->s, p->id, m->gpu, &m->export, w->now_ns, &out);
                break;
        case UP_GARBAGE:
                garbage(w, p, &out);
                break;
        case DOWN_ACTION:
                break;
        }
        if (r < 0)
                fail(w, "an honest message was rejected", number(w, p));
        perform(w, &out);
        w->attaching = false;
}

/* Adds the counts of a daemon that ends to the sum. */
static void add_transitions(const struct world *w, struct sched_transitions *sum)
{
        struct sched_transitions t;

        if (!w->s)
                return;
        sched_transitions(w->s, &t);
        for (unsigned i = 0; i <= SCHED_STATES; i++)
                for (unsigned k = 0; k <= SCHED_STATES; k++)
                        sum->state[i][k] += t.state[i][k];
        for (unsigned i = 0; i < SCHED_FLAGS; i++) {
                sum->set[i] += t.set[i];
                sum->cleared[i] += t.cleared[i];
        }
}

static void new_daemon(struct world *w, bool restart)
{
        struct sched_config c = w->o.config;

        add_transitions(w, &w->counts.transitions);
        sched_free(w->s);
        c.restart_grace_ns = restart ? 2 * NSEC_PER_SEC : 0;
        c.mode = w->mode = SCHED_MODE_AUTO;
        w->s = sched_new(&c);
        if (!w->s)
                abort();
        for (unsigned i = 0; i < w->o.gpus; i++)
                if (sched_gpu_add(w->s, i, w->o.total_bytes) < 0)
                        abort();
        w->restart_until_ns = w->now_ns + c.restart_grace_ns;
}

/* ---- fate ---- */

static void restart_daemon(struct world *w)
{
        w->counts.restarts++;
        w->restarted_once = true;
        for (unsigned i = 0; i < w->o.clients; i++)
                w->p[i].id = w->p[i].preempted = w->p[i].preemptible = 0;
        new_daemon(w, true);
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *p = &w->p[i];

                if (!p->alive)
                        continue;
                disconnect(w, p);
                p->detached = true;
                p->reconnect_ns = w->now_ns + 50 * NSEC_PER_MSEC + below(w, 950 * NSEC_PER_MSEC);
        }
        w->foreign_pending = true;
        w->foreign_seen_ns = w->now_ns;
}

static void change_foreign(struct world *w)
{
        unsigned gpu = (unsigned)below(w, w->o.gpus);
        uint64_t others = w->foreign[gpu], bytes = 0;

        w->foreign[gpu] = 0;
        if (!others)
                bytes = below(w, w->o.total_bytes / 4);
        w->foreign[gpu] = MIN(bytes, really_free(w, gpu));
        w->foreign_ever |= w->foreign[gpu] != 0;
        w->yields[gpu] = below(w, w->o.total_bytes);
        w->foreign_pending = true;
        w->foreign_seen_ns = w->now_ns + below(w, NSEC_PER_SEC);
}

static void change_mode(struct world *w)
{
        struct sched_actions out = {0};
        const enum sched_mode modes[] = {SCHED_MODE_AUTO, SCHED_MODE_EXCLUSIVE,
                                         SCHED_MODE_EXCLUSIVE, SCHED_MODE_OFF};
        enum sched_mode mode = modes[below(w, ARRAY_SIZE(modes))];
        int r = sched_set_mode(w->s, mode, w->now_ns, &out);

        if (r == 0) {
                w->mode = mode;
                w->counts.modes[mode]++;
        } else if (r != -EBUSY || mode != SCHED_MODE_OFF)
                fail(w, "a mode was refused", 0);
        perform(w, &out);
}

/* Pauses or resumes a process. The daemon gives the order itself, so on a resume it tells the
 * scheduler at once that the process runs. */
static void pause_or_resume(struct world *w, struct process *p)
{
        struct sched_actions out = {0};

        if (!p->connected || p->hostile || p->stopped)
                return;
        w->counts.pauses += !p->paused;
        trace(w, p, p->paused ? "goes on" : p->parks ? "is parked" : "is paused", NULL);
        if (p->stands) {
                tell_stands(w, p, false, &out);
                perform(w, &out);
        }
        set_paused(w, p, !p->paused);
}

static void order_eviction(struct world *w, struct process *p)
{
        struct sched_actions out = {0};
        const int r = sched_client_evict(w->s, p->id, w->now_ns, &out);

        w->counts.evictions += r == 0;
        trace(w, p, r == 0 ? "is to be evicted" : "is not evicted", NULL);
        if (r != 0 && r != -EBUSY && r != -EAGAIN && r != -EPERM && r != -ENOMEM && r != -ESTALE)
                fail(w, "the order to evict was refused", number(w, p));
        perform(w, &out);
}

static void fate(struct world *w)
{
        struct process *p = &w->p[below(w, w->o.clients)];

        w->fate_ns = w->now_ns + below(w, 4 * NSEC_PER_SEC);
        if (w->o.foreigners && chance(w, 300))
                change_foreign(w);
        if (w->o.modes && chance(w, 300))
                change_mode(w);
        if (w->o.shares && chance(w, 50))
                portions_reload(w);
        if (w->o.preempts && p->connected && chance(w, 300))
                tell_preemptible(w, p, !p->preemptible);
        if (p->alive && chance(w, 50))
                end_process(w, p);
        if (!w->o.accidents || !p->alive)
                return;
        switch (below(w, 14)) {
        case 0:
                kill_process(w, p);
                break;
        case 1:
                if (p->connected) {
                        w->counts.returns++;
                        disconnect(w, p);
                        p->reconnect_ns = w->now_ns + below(w, NSEC_PER_SEC);
                }
                break;
        case 2:
                p->stopped = true;
                p->continue_ns = w->now_ns + below(w, 20 * NSEC_PER_SEC);
                break;
        case 3:
                p->stubborn = !p->stubborn;
                break;
        case 4:
                if (chance(w, 300))
                        restart_daemon(w);
                break;
        case 5:
                p->cramped = !p->cramped;
                agent(w, p);
                break;
        case 6:
                if (!p->paused)
                        p->parks = chance(w, 500);
                pause_or_resume(w, p);
                break;
        case 7:
                order_eviction(w, p);
                break;
        default:
                break;
        }
}

/* ---- what must hold ---- */

uint64_t headroom(const struct world *w)
{
        return MIN(512 * MIB, w->o.total_bytes / 100 * 3);
}

static void check_cards(struct world *w)
{
        if (w->foreign_ever || w->o.hostile)
                return;
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct sched_gpu_view v;

                if (really_free(w, i) < headroom(w))
                        fail(w, "more is really backed than the card has", 0);
                if (!w->restarted_once && sched_gpu_view(w->s, i, &v) == 0 &&
                    v.charged > w->o.total_bytes - headroom(w))
                        fail(w, "more is charged than the card has", 0);
        }
}

/* Checks that each lease that was granted and not given back still exists. */
static void check_leases(struct world *w)
{
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *p = &w->p[i];
                struct sched_client_view v;

                if (p->hostile || !p->connected || !p->lease || !p->lease_known)
                        continue;
                if (sched_client_view(w->s, p->id, w->now_ns, &v) == 0 && v.lease != p->lease)
                        fail(w, "a lease was taken away that was not given back", i);
        }
}

static bool extraordinary(const struct world *w)
{
        if (w->mode == SCHED_MODE_OFF || w->now_ns < w->restart_until_ns)
                return true;
        for (unsigned i = 0; i < w->o.gpus; i++)
                if (w->foreign[i])
                        return true;
        for (unsigned i = 0; i < w->o.clients; i++) {
                const struct process *p = &w->p[i];

                if (p->stopped || p->stubborn || p->cramped || p->paused || (!p->alive && p->id) ||
                    (p->alive && !p->connected))
                        return true;
        }
        return (w->foreign_pending && w->foreign_ever) || w->o.hostile;
}

static uint64_t wait_limit(const struct world *w)
{
        uint64_t handoff = (w->o.slow_bus || w->o.liars ? 20 : 2) * NSEC_PER_SEC;

        return w->o.clients * (w->o.config.quantum_max_ns + handoff) * 3 + 20 * NSEC_PER_SEC;
}

/* True if nothing extraordinary has happened for a while. */
bool calm(const struct world *w)
{
        return !w->ever_unordinary || w->calm_ns >= 15 * NSEC_PER_SEC;
}

static void check_waits(struct world *w, uint64_t passed_ns)
{
        int highest = INT32_MIN;

        w->ever_unordinary |= extraordinary(w);
        w->calm_ns = extraordinary(w) ? 0 : w->calm_ns + passed_ns;
        if (!calm(w))
                passed_ns = 0;
        for (unsigned i = 0; i < w->o.clients; i++)
                if (w->p[i].alive && w->p[i].wants_run && !is_held(w, &w->p[i]))
                        highest = MAX(highest, w->p[i].priority);
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *p = &w->p[i];
                bool waits = p->wants_run && !runs(p);

                for (unsigned g = 0; g < w->o.gpus; g++)
                        waits |= p->gpu[g].commit_asked || p->gpu[g].unevictable_asked ||
                                 p->gpu[g].export_asked;
                if (!p->alive || !waits || p->priority < highest || is_held(w, p) ||
                    (w->o.liars && is_excused(w, p))) {
                        p->waited_ns = 0;
                        continue;
                }
                p->waited_ns += passed_ns;
                w->counts.longest_wait_ns = MAX(w->counts.longest_wait_ns, p->waited_ns);
                if (p->waited_ns > wait_limit(w) && !p->lie)
                        fail(w, "waits longer than all turns before it can last", i);
        }
        check_stalls(w, highest, passed_ns);
}

/* ---- time ---- */

static uint64_t queue_next(const struct queue *q)
{
        return q->n ? q->list[q->first].at_ns : NEVER;
}

static struct message take(struct queue *q)
{
        q->n--;
        return q->list[q->first++];
}

enum what { CHOICE, DAEMON, FOREIGN, UP, DOWN, DRAIN, MOVE, CONTINUE, RECONNECT, GONE };

static void consider(uint64_t at, enum what what, struct process *p, uint64_t *best,
                     enum what *best_what, struct process **best_p)
{
        if (at < *best) {
                *best = at;
                *best_what = what;
                *best_p = p;
        }
}

/* Returns the foreign bytes as the daemon sees them: also those of clients it does not know. */
static uint64_t foreign_as_seen(const struct world *w, unsigned gpu)
{
        uint64_t bytes = w->foreign[gpu];
        struct sched_account_view v;

        for (unsigned i = 0; i < w->o.clients; i++) {
                const struct process *p = &w->p[i];

                if (!p->id || sched_account_view(w->s, p->id, gpu, &v) < 0)
                        bytes += p->gpu[gpu].backed + p->gpu[gpu].unevictable;
        }
        return bytes;
}

static void make_choice(struct world *w, const struct world_choice *c)
{
        struct process *p = &w->p[c->process];

        w->random = c->seed;
        switch (c->who) {
        case CHOOSE_START:
                if (!p->alive && p->gone_ns == NEVER) {
                        trace(w, p, "starts", NULL);
                        start_process(w, p);
                }
                break;
        case CHOOSE_THINK:
                if (p->alive && !p->stopped)
                        think(w, p);
                break;
        case CHOOSE_FATE:
                trace(w, NULL, "fate", NULL);
                fate(w);
                break;
        }
}

/* Returns the next choice and its time, in a world that plays no recorded choices. */
static struct world_choice new_choice(const struct world *w)
{
        struct world_choice c = {.at_ns = w->fate_ns, .who = CHOOSE_FATE};

        for (unsigned i = 0; i < w->o.clients; i++) {
                const struct process *p = &w->p[i];

                if (p->alive && !p->stopped && p->think_ns < c.at_ns)
                        c = (struct world_choice){
                                .at_ns = p->think_ns, .who = CHOOSE_THINK, .process = i};
                if (!p->alive && p->start_ns < c.at_ns)
                        c = (struct world_choice){
                                .at_ns = p->start_ns, .who = CHOOSE_START, .process = i};
        }
        c.at_ns = MAX(c.at_ns, w->now_ns);
        c.seed = mix(w->o.seed, w->n_choices);
        return c;
}

static bool next_choice(const struct world *w, struct world_choice *ret)
{
        if (!w->replaying) {
                *ret = new_choice(w);
                return true;
        }
        if (w->next_choice == w->n_choices)
                return false;
        *ret = w->choices[w->next_choice];
        return true;
}

static void note_choice(struct world *w, const struct world_choice *c)
{
        if (w->replaying) {
                w->next_choice++;
                return;
        }
        if (w->n_choices == w->size_choices) {
                w->size_choices = w->size_choices ? 2 * w->size_choices : 256;
                w->choices = realloc(w->choices, w->size_choices * sizeof(*w->choices));
                if (!w->choices)
                        abort();
        }
        w->choices[w->n_choices++] = *c;
}

static void happen(struct world *w, enum what what, struct process *p)
{
        struct sched_actions out = {0};
        struct message m;

        switch (what) {
        case CHOICE:
                break;
        case DAEMON:
                sched_tick(w->s, w->now_ns, &out);
                perform(w, &out);
                break;
        case FOREIGN:
                w->foreign_pending = w->restarted_once;
                w->foreign_seen_ns = w->now_ns + 300 * NSEC_PER_MSEC;
                for (unsigned i = 0; i < w->o.gpus; i++) {
                        sched_gpu_foreign(w->s, i, foreign_as_seen(w, i), w->now_ns, &out);
                        perform(w, &out);
                        sched_gpu_yield(w->s, i, w->yields[i], w->now_ns, &out);
                        perform(w, &out);
                }
                break;
        case UP:
                m = take(&p->up);
                trace(w, p, "->", &m);
                deliver_up(w, p, &m);
                break;
        case DOWN:
                m = take(&p->down);
                trace(w, p, "<-", &m);
                receive(w, p, &m.action);
                break;
        case DRAIN:
                drained(w, p);
                break;
        case MOVE:
                move(w, p);
                break;
        case CONTINUE:
                p->stopped = false;
                p->continue_ns = NEVER;
                agent(w, p);
                break;
        case RECONNECT:
                p->reconnect_ns = NEVER;
                connect_process(w, p);
                break;
        case GONE:
                bury(w, p);
                break;
        }
}

/* Finds the next event that follows from earlier choices; returns its time. */
static uint64_t next_event(struct world *w, enum what *ret_what, struct process **ret_who)
{
        uint64_t best = NEVER;

        consider(sched_next_ns(w->s), DAEMON, NULL, &best, ret_what, ret_who);
        if (w->foreign_pending)
                consider(w->foreign_seen_ns, FOREIGN, NULL, &best, ret_what, ret_who);
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *p = &w->p[i];

                consider(queue_next(&p->up), UP, p, &best, ret_what, ret_who);
                consider(p->reconnect_ns, RECONNECT, p, &best, ret_what, ret_who);
                consider(p->gone_ns, GONE, p, &best, ret_what, ret_who);
                consider(p->continue_ns, CONTINUE, p, &best, ret_what, ret_who);
                if (p->stopped)
                        continue;
                consider(queue_next(&p->down), DOWN, p, &best, ret_what, ret_who);
                consider(p->drain_ns, DRAIN, p, &best, ret_what, ret_who);
                consider(p->move_ns, MOVE, p, &best, ret_what, ret_who);
        }
        return best;
}

const char *world_step(struct world *w)
{
        uint64_t before = w->now_ns, best, *random;
        enum what what = DAEMON;
        struct process *who = NULL;
        struct world_choice choice;
        const char *broken;

        best = next_event(w, &what, &who);
        w->counts.steps++;
        if (next_choice(w, &choice) && choice.at_ns <= best) {
                w->now_ns = MAX(w->now_ns, choice.at_ns);
                note_choice(w, &choice);
                make_choice(w, &choice);
                who = &w->p[choice.process];
        } else if (best != NEVER) {
                w->now_ns = MAX(w->now_ns, best);
                random = who ? &who->random : &w->daemon_random;
                w->random = *random;
                happen(w, what, who);
                *random = w->random;
        }

        broken = sched_check(w->s, w->now_ns);
        if (broken)
                fail(w, broken, who ? number(w, who) : 99);
        check_cards(w);
        check_leases(w);
        check_waits(w, w->now_ns - before);
        check_maxima(w, w->now_ns - before);
        return w->broken;
}

/* ---- creation ---- */

void world_options_random(uint64_t seed, struct world_options *ret)
{
        uint64_t r = seed * 0x2545f4914f6cdd1d + 1;

        *ret = (struct world_options){
                .seed = seed,
                .clients = 2 + (unsigned)(next_random(&r) % (WORLD_CLIENTS_MAX - 1)),
                .gpus = 1 + (unsigned)(next_random(&r) % WORLD_GPUS_MAX),
                .total_bytes = (next_random(&r) % 2 ? UINT64_C(1) : UINT64_C(140)) << 30,
                .accidents = next_random(&r) % 2,
                .foreigners = next_random(&r) % 4 == 0,
                .priorities = next_random(&r) % 4 == 0,
                .modes = next_random(&r) % 4 == 0,
                .hostile = next_random(&r) % 8 == 0,
                .slow_bus = next_random(&r) % 4 == 0,
                .slow_socket = next_random(&r) % 4 == 0,
        };
        if (seed % 4 == 0) { /* a few clients live long enough to be waited for */
                ret->liars = true;
                ret->clients = 2 + ret->clients % 3;
                ret->accidents = ret->priorities = ret->foreigners = ret->modes = ret->hostile =
                        ret->slow_bus = false;
        }
        ret->shares = seed >= WORLD_SHARES_FROM;
        ret->preempts = seed % 3 == 1;
        ret->containers = seed % 4 == 1;
        if (seed % 4 == 2)
                ret->group = 2 + (unsigned)(seed / 4 % 2);
        if (seed % 4 == 3)
                ret->job = 2 + (unsigned)(seed / 4 % 2);
        sched_config_default(&ret->config);
        /* The maximum includes records of clients that have left. */
        ret->config.clients_max = 4 * WORLD_CLIENTS_MAX;
        ret->config.quantum_ns = next_random(&r) % 2 ? NSEC_PER_SEC : 0;
        ret->config.quantum_max_ns = 3 * NSEC_PER_SEC;
        ret->config.grace_ns = 2 * NSEC_PER_SEC;
        ret->config.patience_ns = 500 * NSEC_PER_MSEC;
        ret->config.idle_release_ns = next_random(&r) % 4 ? 0 : 300 * NSEC_PER_MSEC;
        ret->config.host_budget_bytes =
                next_random(&r) % 2 ? ret->total_bytes * 4 : ret->total_bytes / 2;
}

struct world *world_new(const struct world_options *o)
{
        struct world *w = calloc(1, sizeof(*w));

        if (!w)
                return NULL;
        w->o = *o;
        w->traced = getenv("SCHED_TRACE") != NULL;
        w->now_ns = w->fate_ns = NSEC_PER_SEC;
        w->daemon_random = mix(o->seed, 1000);
        portions_draw(w);
        new_daemon(w, false);
        for (unsigned i = 0; i < o->clients; i++) {
                struct process *p = &w->p[i];

                p->random = mix(o->seed, 2000 + i);
                p->up.random = mix(o->seed, 3000 + i);
                p->down.random = mix(o->seed, 4000 + i);
                p->start_ns = NSEC_PER_SEC;
                p->drain_ns = p->move_ns = p->continue_ns = p->reconnect_ns = p->gone_ns = NEVER;
        }
        return w;
}

struct world *world_replay(const struct world_options *o, const struct world_choice *list,
                           unsigned n)
{
        struct world *w = world_new(o);

        if (!w)
                return NULL;
        w->replaying = true;
        w->n_choices = n;
        w->choices = calloc(n + 1, sizeof(*list));
        if (!w->choices)
                abort();
        memcpy(w->choices, list, n * sizeof(*list));
        return w;
}

const struct world_choice *world_choices(const struct world *w, unsigned *ret_n)
{
        *ret_n = w->n_choices;
        return w->choices;
}

void world_trace(struct world *w, bool on)
{
        w->traced = on;
}

uint64_t world_now_ns(const struct world *w)
{
        return w->now_ns;
}

bool world_ended(struct world *w)
{
        enum what what;
        struct process *who;

        return w->replaying && w->next_choice == w->n_choices &&
               next_event(w, &what, &who) == NEVER;
}

void world_free(struct world *w)
{
        if (!w)
                return;
        sched_free(w->s);
        free(w->choices);
        for (unsigned i = 0; i < WORLD_CLIENTS_MAX; i++) {
                free(w->p[i].up.list);
                free(w->p[i].down.list);
        }
        free(w);
}

void world_counts(const struct world *w, struct world_counts *ret)
{
        *ret = w->counts;
        add_transitions(w, &ret->transitions);
}
