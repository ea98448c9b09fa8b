/* settle.c: owns the consequences of an event: service, victims, states. One pass in queue order
 * suffices, because bytes become free only when a client says so in a new event. */
#include "sched/internal.h"

/* ---- the state before anything is given ---- */

static bool wants_alone(const struct sched *s, const struct holder *h)
{
        bool alone = h->top->terms.exclusive;
        const struct client *c;

        FOR_EACH_CLIENT_OF (h, c)
                alone |= c->alone;
        return alone && s->config.mode != SCHED_MODE_OFF && (h->lease || h->waiting);
}

static void survey_gpu(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        const bool was_exclusive = g->exclusive;
        struct holder *h = NULL;
        const struct client *c;

        g->immovable = 0;
        g->drains = false;
        g->allocated = g->ahead = 0;
        g->lease_first = NULL;
        g->lease_others = false;
        g->exclusive = g->preemptible = false;
        g->wanted = g->lower_waits = g->claimed = false;
        g->top_priority = INT32_MIN;
        g->head = g->lease_head = NULL;
        g->head_unevictable = NULL;
        g->head_missing = 0;
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                const struct account *a = c->accounts[gpu];

                if (client_immovable(s, c))
                        g->immovable += account_movable(a);
                g->drains |= c->holder->draining || (c->overdue && a->evicting);
                g->allocated += a->usage.allocated;
                g->preemptible |= c->preemptible;
                if (c->holder == h)
                        continue;
                h = c->holder;
                if (!turns_over(s, h) && holder_can_be_asked(s, h))
                        g->ahead += h->on[gpu].ahead;
                if (h->askable && !(PLANTED(DRAINING_IS_GONE) && h->draining))
                        holder_note_lease(g, h);
                g->top_priority = MAX(g->top_priority, h->priority);
                g->exclusive |= wants_alone(s, h);
        }
        hold(s, g->allocated + g->unevictable > gpu_usable(g), &g->oversubscribed,
             &g->oversubscribed_until_ns);
        g->beside = s->config.mode == SCHED_MODE_EXCLUSIVE && preempt_shares_exclusive(s, gpu);
        g->exclusive |= s->config.mode == SCHED_MODE_EXCLUSIVE && !g->beside;
        if (g->exclusive && !was_exclusive)
                FOR_EACH_HOLDER_ON (s, gpu, h)
                        turns_shorten(s, h);
        if (g->handoff_since_ns && (!g->for_whom->waiting || g->for_whom->held))
                g->handoff_since_ns = 0;
}

static void survey(struct sched *s)
{
        unsigned gpu;

        FOR_EACH_TOUCHED_GPU (s, gpu)
                survey_gpu(s, gpu);
}

/* Returns the largest commit of a holder. One walk over the list is fast: every event comes
 * here. */
static uint64_t commit_max(const struct sched *s, unsigned gpu)
{
        const struct holder *h = NULL;
        const struct client *c;
        uint64_t max = 0, sum = 0;

        FOR_EACH_CLIENT_ON (s, gpu, c) {
                sum = c->holder == h ? sum : 0;
                sum += c->lost ? 0 : account_commit(c->accounts[gpu]);
                h = c->holder;
                max = MAX(max, sum);
        }
        return max;
}

/* Notes how far use exceeds the capacity before this event grants anything. */
static void note_excess(struct sched *s)
{
        unsigned gpu;

        FOR_EACH_TOUCHED_GPU (s, gpu) {
                struct gpu *g = &s->gpu[gpu];

                g->commit_max = commit_max(s, gpu);
                g->over = sub_sat(g->charged, gpu_usable(g));
                g->promise_over = sub_sat(g->commit_max + g->unevictable, gpu_usable(g));
        }
        s->host_over = sub_sat(ledger_host_spilled(s, NO_GPU), ledger_host_budget(s));
}

/* ---- room to allocate ---- */

static void refuse_commit(struct sched *s, struct client *c, unsigned gpu)
{
        struct account *a = c->accounts[gpu];

        a->refuse_commit = true;
        a->refuse_commit_lacks = ledger_commit_lacks(s, gpu, c, a->commit_request);
        a->refuse_commit_of = a->commit_of;
        actions_mark(s, c);
}

static void answer_commit(struct sched *s, struct client *c, unsigned gpu)
{
        struct account *a = c->accounts[gpu];

        a->commit_requested = false;
        if (a->commit_request < a->commit) {
                uint64_t floor = MAX(a->commit_request, a->usage.allocated);

                ledger_set_commit(s, c, gpu, MIN(a->commit, floor));
        } else if (a->commit_request == a->commit) {
                a->limit_dirty = true; /* the client seems not to know its commit */
                actions_mark(s, c);
        } else if (ledger_commit_fits(s, gpu, c, a->commit_request)) {
                ledger_set_commit(s, c, gpu, a->commit_request);
                s->gpu[gpu].commit_max =
                        MAX(s->gpu[gpu].commit_max, ledger_sum(c->holder, gpu, account_commit));
                a->top_up = true;
        } else {
                refuse_commit(s, c, gpu);
        }
}

/* Answers at once: whether a commit fits does not depend on which clients are on the card. */
static void answer_commits(struct sched *s)
{
        struct client *c;
        unsigned gpu;

        FOR_EACH_TOUCHED_GPU (s, gpu) {
                if (!s->gpu[gpu].commit_requested)
                        continue;
                s->gpu[gpu].commit_requested = false;
                FOR_EACH_CLIENT_ON (s, gpu, c) {
                        if (!c->lost && c->accounts[gpu]->commit_requested)
                                answer_commit(s, c, gpu);
                }
        }
}

/* Takes back the unallocated part of commits above cap before a client uses it: the card has become
 * smaller, or its unevictable bytes have grown. */
static void trim_commits_of(struct sched *s, struct holder *h, unsigned gpu, uint64_t cap)
{
        uint64_t excess = 0;
        struct client *c;

        FOR_EACH_CLIENT_OF_ON (h, gpu, c)
                excess += sub_sat(c->accounts[gpu]->commit, c->accounts[gpu]->exported);
        excess = sub_sat(excess, cap);
        FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                struct account *a = c->accounts[gpu];
                const uint64_t cut = MIN(excess, sub_sat(a->commit, a->usage.allocated));

                if (c->lost || !cut)
                        continue;
                excess -= cut;
                ledger_set_commit(s, c, gpu, a->commit - cut);
                s->again |= h->waiting && a->reserve > a->commit; /* it waits for less now */
        }
}

void settle_trim_commits(struct sched *s, unsigned gpu, uint64_t cap)
{
        struct holder *h;

        FOR_EACH_HOLDER_ON (s, gpu, h)
                trim_commits_of(s, h, gpu, cap);
}

/* ---- room to run ---- */

uint64_t settle_needs(const struct sched *s, const struct holder *h, unsigned gpu, bool *ret_lacks)
{
        const struct client *c;
        uint64_t needs = 0;

        *ret_lacks = false;
        FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                const struct account *a = c->accounts[gpu];
                uint64_t need = account_need(c, a);

                if (c->lost)
                        continue;
                *ret_lacks |= need > a->limit;
                if (c->overdue) /* it gives nothing back */
                        need = MAX(need, account_held(a));
                else if (h->lease) /* no client gives way to another one of its holder */
                        need = MAX(need, MIN(a->limit, policy_slack_floor(s, c, a)));
                needs += sub_sat(need, a->exported);
        }
        return needs;
}

/* If there is no room for h even when all others give way, bytes kept for h would be wasted: others
 * could use them. */
bool settle_fits(const struct sched *s, const struct holder *h, bool without_foreign)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct gpu *g = &s->gpu[gpu];
                const uint64_t usable =
                        without_foreign ? sub_sat(g->total, gpu_headroom(g)) : gpu_usable(g);
                bool lacks;
                const uint64_t needs = settle_needs(s, h, gpu, &lacks);

                if (lacks &&
                    add_sat(needs, g->unevictable + ledger_immovable_beside(s, gpu, h)) > usable)
                        return false;
        }
        return true;
}

static void grant(struct sched *s, struct holder *h)
{
        struct client *c;

        holder_begin(s, h);
        FOR_EACH_CLIENT_OF (h, c) {
                if (c->waiting)
                        holder_grant(s, c);
        }
        holder_update_waiting(s, h);
}

/* An exclusive card grants leases strictly in queue order. Otherwise resident clients could
 * overtake another client for ever. */
static bool lease_is_free(struct sched *s, struct holder *h)
{
        bool is_free = true;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                struct gpu *g = &s->gpu[gpu];

                if (!g->exclusive)
                        continue;
                if (g->claimed)
                        is_free = false;
                else if (g->lease_first &&
                         (g->lease_others || !holder_runs_beside(g->lease_first, h))) {
                        g->lease_head = h;
                        g->wanted = true;
                        is_free = false;
                }
        }
        return is_free;
}

static bool outranked(const struct sched *s, const struct holder *h)
{
        return ANY_GPU_OF(h, gpu, s->gpu[gpu].head && holder_outranks(s->gpu[gpu].head, h));
}

/* Sets the room that each client of h needs for its turn, by its high-water mark. Judged by its
 * present use, a client would be admitted between two peaks, and evict another one at the next
 * peak. Neither immovable bytes nor bytes that clients of h need now count as room for a mark. */
static void set_reserve(struct sched *s, struct holder *h)
{
        const bool none = h->lease || h->stuck || s->config.mode == SCHED_MODE_OFF;
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct gpu *g = &s->gpu[gpu];
                uint64_t room =
                        sub_sat(gpu_usable(g), g->unevictable + ledger_immovable_beside(s, gpu, h));
                struct client *c;

                FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                        struct account *a = c->accounts[gpu];

                        a->reserve = none ? 0 : MAX(account_need(c, a), a->exported);
                        room = sub_sat(room, sub_sat(a->reserve, a->exported));
                }
                FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                        struct account *a = c->accounts[gpu];
                        const uint64_t most = none || c->lost ? 0 : account_mark(s, c, a);
                        const uint64_t more = MIN(room, sub_sat(MIN(most, a->commit), a->reserve));

                        a->reserve += more;
                        room -= more;
                }
        }
}

/* Lets an overdue client keep the bytes that its host has no room for; they are in its charge
 * already. After its acknowledgement it waits for its moved bytes like any other client. A client
 * that is only slow gets nothing back. */
static void keep_what_it_holds(struct sched *s, struct client *c)
{
        unsigned gpu;

        if (c->draining)
                return;
        FOR_EACH_GPU_OF (c, gpu) {
                const struct account *a = c->accounts[gpu];

                if (a->silent || a->unsure || a->commit_held > a->commit)
                        return;
                if (account_held(a) > a->limit && !a->usage.stays)
                        return;
        }
        FOR_EACH_GPU_OF (c, gpu) {
                const struct account *a = c->accounts[gpu];
                uint64_t held = MIN(account_need(c, a), account_held(a));

                if (held <= a->limit)
                        continue;
                ledger_set_limit(s, c, gpu, held);
                /* Otherwise c would be asked for the same bytes again before it could answer. */
                c->holder->unpreemptible_until_ns = s->now_ns + UNPREEMPTIBLE_NS;
        }
}

/* True if h wants bytes for a client that has never answered. Granted bytes stay charged until an
 * answer gives them back, so a client gets no more bytes before it has acknowledged its first
 * LIMIT. */
static bool asks_and_never_answers(const struct holder *h)
{
        const struct client *c;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c) {
                if (c->answers)
                        continue;
                FOR_EACH_GPU_OF (c, gpu) {
                        const struct account *a = c->accounts[gpu];

                        if (account_need(c, a) > a->limit)
                                return true;
                }
        }
        return false;
}

/* Gives h the bytes of this GPU that are free and not kept for others before it. Returns true if it
 * then has all that it needs there. */
static bool give_bytes(struct sched *s, struct holder *h, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        const bool kept = g->head;
        struct client *c;
        uint64_t lacks = 0;
        bool ready = true;

        FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                struct account *a = c->accounts[gpu];
                uint64_t missing = account_missing(c, a), give;

                if (missing && !kept) {
                        give = MIN(missing, ledger_available(g, a));
                        /* Bytes that were freed ahead of growth stay free for it. */
                        if (give < missing && !h->lease && !gpu_hands_to(g, h))
                                give = sub_sat(give, g->ahead);
                        h->on[gpu].ahead = sub_sat(h->on[gpu].ahead, give);
                        if (give) {
                                ledger_set_limit(s, c, gpu, a->limit + give);
                                c->restoring = h->lacked = true;
                        }
                        missing -= give;
                        if (give && !missing) /* from now on it waits for nobody */
                                ledger_begin_move(s, a);
                }
                lacks += missing;
                if (!missing && !c->lease && (c->waiting || !h->lease) && !account_resident(c, a)) {
                        ready = false;
                        c->restoring = true;
                }
        }
        h->lacked |= lacks > 0;
        if (lacks && !kept) {
                g->head = h;
                g->head_missing = lacks;
        }
        return ready && !lacks;
}

/* True if all that c needs is on its GPUs. */
static bool is_resident(const struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                const struct account *a = c->accounts[gpu];

                if (account_missing(c, a) || !account_resident(c, a))
                        return false;
        }
        return true;
}

/* True if more clients of h may take part in its turn: not while the others drain, nor once their
 * revoke is due. On an exclusive card they may not run beside another holder. The other holder may
 * have a lease because the card has become exclusive, or because a client of it came back running.
 */
static bool may_take_part(const struct sched *s, const struct holder *h)
{
        if (h->awaited || (h->revoke_due_ns && s->now_ns >= h->revoke_due_ns))
                return false;
        return !ANY_GPU_OF(h, gpu, s->gpu[gpu].exclusive && s->gpu[gpu].lease_others);
}

/* Lets clients of h that have all they need take part in its lease. */
static void take_part(struct sched *s, struct holder *h)
{
        struct client *c;

        FOR_EACH_CLIENT_OF (h, c) {
                if (c->waiting && !c->lease && is_resident(c) && may_take_part(s, h))
                        holder_grant(s, c);
        }
        holder_update_waiting(s, h);
}

/* True if clients of h wait for a lease while others of h have one that cannot be asked for. The
 * waiting clients then get theirs in h's next turn: a client that is late may wait for their
 * work. */
static bool waits_beside_it(const struct holder *h)
{
        const struct client *c;

        if (h->askable)
                return false;
        FOR_EACH_CLIENT_OF (h, c) {
                if (c->waiting && !c->lease)
                        return true;
        }
        return false;
}

/* Gives h bytes, and the lease once it has all that it needs. */
static void serve_run(struct sched *s, struct holder *h)
{
        bool ready = true;
        struct client *c;
        unsigned gpu;

        h->stuck = false;
        FOR_EACH_CLIENT_OF (h, c) {
                if (c->overdue)
                        keep_what_it_holds(s, c);
                h->stuck |= c->overdue && (c->waiting || !c->lease);
        }
        h->stuck |= asks_and_never_answers(h) || !settle_fits(s, h, false);
        set_reserve(s, h);
        FOR_EACH_GPU_OF (h, gpu) {
                struct gpu *g = &s->gpu[gpu];

                FOR_EACH_CLIENT_OF_ON (h, gpu, c)
                        g->wanted |= account_missing(c, c->accounts[gpu]) > 0;
                g->lower_waits |= h->priority < g->top_priority;
        }
        if (h->stuck) {
                foreign_stuck(s, h);
                return;
        }
        h->give_back_ns = 0;
        FOR_EACH_GPU_OF (h, gpu)
                ready &= give_bytes(s, h, gpu);
        if (h->lease && !waits_beside_it(h)) {
                FOR_EACH_CLIENT_OF (h, c) {
                        FOR_EACH_GPU_OF (c, gpu)
                                c->accounts[gpu]->top_up |= c->lease && c->accounts[gpu]->run;
                }
                take_part(s, h);
        } else if (ready && h->yielding) {
                s->again = true; /* the holders for which h has drained take its bytes first */
        } else if (ready && !outranked(s, h) && lease_is_free(s, h)) {
                grant(s, h);
        } else {
                FOR_EACH_GPU_OF (h, gpu) {
                        s->gpu[gpu].claimed = true;
                }
        }
}

/* ---- the last steps for each client ---- */

/* Raises the limit by bytes that no client waits for, so that growth within the commit needs no
 * request. */
static void top_up(struct sched *s, struct client *c, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct account *a = c->accounts[gpu];

        if (!c->answers)
                return;
        a->top_up = false;
        if (a->evicting || (!c->lease && a->usage.allocated > a->limit))
                return; /* a higher limit would start a restore */
        if (s->config.mode != SCHED_MODE_OFF && (g->head || g->contested))
                return;
        if (a->limit < a->commit)
                ledger_set_limit(s, c, gpu,
                                 a->limit + MIN(a->commit - a->limit, ledger_available(g, a)));
}

static void set_contested(struct sched *s)
{
        unsigned gpu;

        FOR_EACH_TOUCHED_GPU (s, gpu) {
                struct gpu *g = &s->gpu[gpu];

                hold(s, g->head || g->lease_head, &g->contested, &g->contested_until_ns);
                slices_survey(s, gpu);
        }
}

/* Returns the throttle of c. While a client waits, work in flight must be short. It must be limited
 * even before a client comes: what is in flight then was submitted earlier. */
static enum sched_throttle throttle_of(const struct sched *s, const struct client *c)
{
        enum sched_throttle throttle = SCHED_THROTTLE_NONE;
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                const struct gpu *g = &s->gpu[gpu];

                if (g->contested)
                        return SCHED_THROTTLE_SHORT;
                if (s->config.mode == SCHED_MODE_OFF)
                        continue;
                if (c->holder->priority < g->top_priority)
                        return SCHED_THROTTLE_SHORT;
                if (g->oversubscribed)
                        throttle = SCHED_THROTTLE_AHEAD;
        }
        return throttle;
}

static enum sched_state state_of(const struct client *c)
{
        unsigned gpu;

        if (c->lease)
                return c->draining ? SCHED_DRAINING : SCHED_RUNNING;
        FOR_EACH_GPU_OF (c, gpu) {
                const struct account *a = c->accounts[gpu];

                if (a->evicting && account_held(a) > a->limit)
                        return SCHED_EVICTING;
        }
        if (c->waiting || c->restoring)
                return c->restoring ? SCHED_RESTORING : SCHED_WAITING;
        return c->unevictable_ticket ? SCHED_WAITING : SCHED_IDLE;
}

/* Writes only what changes: most events change nothing for most clients. */
static void account_time(struct sched *s, struct client *c)
{
        const bool run = c->lease && !c->idle && !c->preempted, overdue = run && c->overdue,
                   wait = c->waiting || c->unevictable_ticket;
        const uint64_t ns = s->now_ns - c->clock_ns;

        if (run == c->counted_run && overdue == c->counted_overdue && wait == c->counted_wait)
                return;
        if (c->counted_run)
                c->run_ns += ns;
        if (c->counted_overdue)
                c->overdue_ns += ns;
        if (c->counted_wait)
                c->waited_ns += ns;
        c->clock_ns = s->now_ns;
        c->counted_run = run;
        c->counted_overdue = overdue;
        c->counted_wait = wait;
}

static void enter_state(struct sched *s, struct client *c)
{
        enum sched_state state = state_of(c);
        unsigned flags = client_flags(s, c), changed = flags ^ c->flags;

        if (state != c->state) {
                s->transitions.state[c->state][state]++;
                c->state = state;
                c->since_ns = s->now_ns;
        }
        for (; changed; changed &= changed - 1) {
                unsigned bit = (unsigned)__builtin_ctz(changed);

                if (flags & 1U << bit)
                        s->transitions.set[bit]++;
                else
                        s->transitions.cleared[bit]++;
        }
        c->flags = flags;
}

void client_refresh(struct sched *s, struct client *c)
{
        enter_state(s, c);
        account_time(s, c);
        habits_count(s, c->holder);
        client_note_look(s, c);
}

static void ask(struct sched *s, struct client *c)
{
        unsigned gpu;

        if (!c->holder->awaited)
                c->holder->yielding = false;
        FOR_EACH_GPU_OF (c, gpu) {
                if (c->accounts[gpu]->top_up)
                        top_up(s, c, gpu);
        }
        late_set_deadlines(s, c);
}

static void conclude(struct sched *s, struct client *c)
{
        const enum sched_throttle throttle = throttle_of(s, c);
        const uint64_t slice_ns = slices_of(s, c);
        const bool prompt = preempt_prompt(s, c);

        if (throttle != c->throttle || slice_ns != c->slice_ns || prompt != c->prompt) {
                c->prompt = prompt;
                c->throttle = throttle;
                c->slice_ns = slice_ns;
                if (!c->lost)
                        actions_mark(s, c);
        }
        if (c == c->holder->first)
                limits_wake(s, c->holder);
        client_refresh(s, c);
}

/* Which clients run is decided after the last REVOKE. A second walk over all clients would be slow,
 * so it is made only where clients can be preempted. */
static void finish(struct sched *s)
{
        bool apart = false;
        struct client *c;
        unsigned gpu;

        FOR_EACH_TOUCHED_GPU (s, gpu)
                apart |= s->gpu[gpu].preemptible;
        FOR_EACH_TOUCHED_CLIENT (s, c) {
                ask(s, c);
                if (!apart)
                        conclude(s, c);
        }
        FOR_EACH_TOUCHED_GPU (s, gpu)
                preempt_decide(s, gpu);
        if (!apart)
                return;
        FOR_EACH_TOUCHED_CLIENT (s, c)
                conclude(s, c);
}

static void pass(struct sched *s)
{
        struct client *c;
        unsigned gpu;

        s->again = false;
        s->passes++;
        s->wake_ns = UINT64_MAX;
        if (s->now_ns < s->restart_until_ns) {
                /* The ledger is incomplete: nothing is granted, and no client is asked. */
                wake_at(s, s->restart_until_ns);
                FOR_EACH_TOUCHED_GPU (s, gpu)
                        preempt_end(s, gpu);
                FOR_EACH_TOUCHED_CLIENT (s, c)
                        client_refresh(s, c);
                survey(s);
                return;
        }
        late_check(s);
        survey(s);
        answer_commits(s);
        limits_check(s);
        evict_check(s);
        policy_sort(s);
        for (unsigned i = 0; i < s->n_order; i++) {
                if (s->order[i].kind == WAIT_UNEVICTABLE)
                        unevictable_serve(s, s->order[i].c);
                else
                        serve_run(s, s->order[i].h);
        }
        FOR_EACH_TOUCHED_GPU (s, gpu) {
                struct gpu *g = &s->gpu[gpu];

                if (g->commit_max > sub_sat(gpu_usable(g), g->unevictable))
                        settle_trim_commits(s, gpu, sub_sat(gpu_usable(g), g->unevictable));
                policy_reclaim_lease(s, gpu);
                policy_reclaim(s, gpu);
        }
        set_contested(s);
        finish(s);
}

void settle(struct sched *s)
{
        unsigned gpu;

        s->settled_ns = s->now_ns;
        note_excess(s);
        do
                pass(s);
        while (s->again); /* this ends: each pass lowers some commit, or nobody yields any more */
        FOR_EACH_TOUCHED_GPU (s, gpu) {
                s->gpu[gpu].next_ns = s->wake_ns;
                fair_weigh(s, gpu);
        }
        s->next_ns = UINT64_MAX;
        for (gpu = 0; gpu < s->gpus; gpu++)
                if (s->gpu[gpu].present)
                        s->next_ns = MIN(s->next_ns, s->gpu[gpu].next_ns);
}
