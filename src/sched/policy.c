/* policy.c: owns the order of service, the choice of victims, and the time for which a lease is
 * safe. Must never change a byte count except through the ledger, and never start a second victim
 * before the first has finished. */
#include "sched/internal.h"

/* ---- the quantum ---- */

/* Hand-offs may cost handoff_permille (p) of the time, so a turn lasts (1000 - p) / p times the
 * cost of a hand-off. Before the first hand-off is measured, the cost is a guess: half a card moves
 * out while half a card moves in. */
uint64_t policy_quantum(const struct sched *s, const struct gpu *g)
{
        const struct sched_config *c = &s->config;
        uint64_t cost = g->handoff_ns, p = c->handoff_permille;

        if (c->quantum_ns)
                return c->quantum_ns;
        if (!cost)
                cost = g->total / 2 / (g->rate / 1000000) * 1000;
        /* Limiting the cost first keeps the product small; the clamp would limit it anyway. */
        cost = MIN(cost, c->quantum_max_ns);
        return clamp_u64(cost / p * (1000 - p), c->quantum_min_ns, c->quantum_max_ns);
}

uint64_t policy_client_quantum(const struct sched *s, const struct client *c)
{
        uint64_t q = 0;
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu)
                q = MAX(q, policy_quantum(s, &s->gpu[gpu]));
        return q;
}

static bool stalled(const struct client *c)
{
        return c->lease && c->waiting;
}

/* Time spent waiting for growth (stalled_ns) prolongs a turn, by one quantum at most. Otherwise a
 * client that waits for bytes of a higher-priority client would keep its own bytes for ever. */
static uint64_t turn_end(const struct sched *s, const struct client *c, uint64_t stalled_ns)
{
        uint64_t quantum = policy_client_quantum(s, c);

        return add_sat(c->granted_ns, sub_sat(quantum, c->cut_ns) + MIN(stalled_ns, quantum));
}

uint64_t policy_turn_end(const struct sched *s, const struct client *c)
{
        return turn_end(s, c, c->stalled_ns + (stalled(c) ? s->now_ns - c->stalled_since_ns : 0));
}

/* An overrun shortens the next turns, each by at most half a turn. Kernels run between REVOKE and
 * DRAINED, too; without this, a client with long kernels would get more time than others. */
void policy_turn_begins(struct sched *s, struct client *c)
{
        uint64_t quantum = policy_client_quantum(s, c);

        c->cut_ns = MIN(c->overrun_ns, quantum / 2);
        c->overrun_ns -= c->cut_ns;
        c->granted_ns = s->now_ns;
        c->stalled_ns = c->revoked_ns = 0;
        c->turn_run_ns = client_run_ns(s, c);
        fair_begin(s, c);
}

void policy_turn_is_over(struct sched *s, struct client *c)
{
        uint64_t quantum = policy_client_quantum(s, c), asked = c->revoked_ns;

        if (asked && !c->idle) {
                uint64_t end = MAX(asked, policy_turn_end(s, c));

                c->overrun_ns = MIN(c->overrun_ns + sub_sat(s->now_ns, end), quantum);
        }
        fair_settle(c, client_run_ns(s, c) - c->turn_run_ns);
}

/* A wait for growth moves the end of the turn, so the wake-up is set to the last possible end. */
static void wake_at_turn_end(struct sched *s, const struct client *c)
{
        if (!PLANTED(NO_WAKE))
                wake_at(s, turn_end(s, c, stalled(c) ? UINT64_MAX : c->stalled_ns));
}

/* ---- the queue ---- */

/* Users are ordered by the turns that they have had (fair.c); among the processes of one user the
 * longest wait goes first. */
static bool entry_before(const struct entry *a, const struct entry *b)
{
        if (a->priority != b->priority)
                return a->priority > b->priority;
        if (a->kind != b->kind)
                return a->kind < b->kind;
        if (a->tag_ns != b->tag_ns)
                return a->tag_ns < b->tag_ns;
        return PLANTED(TICKET_ORDER) ? a->ticket > b->ticket : a->ticket < b->ticket;
}

static struct entry run_entry(const struct sched *s, struct client *c)
{
        struct entry e = {.c = c,
                          .priority = c->priority,
                          .kind = WAIT_RUN,
                          .tag_ns = c->tag_ns,
                          .ticket = c->ticket};

        if (c->lease && s->now_ns < policy_turn_end(s, c)) {
                e.kind = WAIT_GROWTH;
                e.tag_ns = 0;
        }
        return e;
}

static void sift_down(struct entry *heap, unsigned n, unsigned i)
{
        for (;;) {
                unsigned last = i, l = 2 * i + 1, r = l + 1;
                struct entry tmp;

                if (l < n && entry_before(&heap[last], &heap[l]))
                        last = l;
                if (r < n && entry_before(&heap[last], &heap[r]))
                        last = r;
                if (last == i)
                        return;
                tmp = heap[i];
                heap[i] = heap[last];
                heap[last] = tmp;
                i = last;
        }
}

/* Heap sort: qsort(3) may allocate. */
void policy_sort(struct sched *s)
{
        struct entry *o = s->order;
        unsigned n = 0;

        for (unsigned i = 0; i < s->clients; i++) {
                struct client *c = &s->client[i];

                if (!c->used)
                        continue;
                if (c->unevictable_ticket)
                        o[n++] = (struct entry){.c = c,
                                                .priority = c->priority,
                                                .kind = WAIT_UNEVICTABLE,
                                                .ticket = c->unevictable_ticket};
                if (c->waiting)
                        o[n++] = run_entry(s, c);
        }
        s->n_order = n;
        for (unsigned i = n / 2; i-- > 0;)
                sift_down(o, n, i);
        while (n > 1) {
                struct entry tmp = o[0];

                o[0] = o[--n];
                o[n] = tmp;
                sift_down(o, n, 0);
        }
}

/* ---- who gives way ---- */

/* Victims are asked in this order. */
enum victim_class {
        VICTIM_YIELDING,     /* clients that have just drained for another client */
        VICTIM_IDLE,         /* idle clients; the least recently active goes first */
        VICTIM_WAITER,       /* clients behind the head, without a lease; the last goes first */
        VICTIM_STALLED,      /* clients behind the head, with a lease, that wait for growth */
        VICTIM_LOWER,        /* running clients of a lower priority; the lowest goes first */
        VICTIM_EXPIRED_IDLE, /* idle clients past their quantum; the earliest end goes first */
        VICTIM_EXPIRED,      /* busy clients past their quantum; the earliest end goes first */
        VICTIM_NONE,
};

/* The demand for which a victim is chosen. */
struct demand {
        const struct client *head; /* NULL: no client waits, the card is overdrawn */
        struct entry entry;        /* the head's place in the queue */
        unsigned gpu;
        uint64_t missing;
        bool lease_only; /* exclusive mode: only the lease is needed, no byte */
        bool foreign;    /* the bytes are for foreign processes: only idle clients give way */
};

struct victim {
        struct client *c;
        enum victim_class class;
        uint64_t key;       /* rank within most classes: the smallest goes first */
        struct entry entry; /* rank within classes of waiting clients: the last place goes first */
};

/* Ski rental: an idle client gives way once staying resident has cost as much as leaving and coming
 * back. */
static uint64_t handoff_cost(const struct gpu *g, uint64_t bytes)
{
        return 2 * bytes / (g->rate / 1000000) * 1000;
}

static uint64_t idle_until(const struct sched *s, const struct client *v, const struct demand *d)
{
        const struct account *a = &v->accounts[d->gpu];
        const struct gpu *g = &s->gpu[d->gpu];
        uint64_t cost = d->lease_only ? 0 : handoff_cost(g, MIN(d->missing, a->usage.backed));
        uint64_t wait = s->config.idle_release_ns ? s->config.idle_release_ns : cost;

        if (cost == 0)
                wait = 0;
        /* A higher-priority client keeps its memory between two bursts of work. */
        if (d->head && client_outranks(v, d->head))
                wait = MAX(wait, cost > g->handoff_ns ? cost : g->handoff_ns);
        return add_sat(v->last_active_ns, wait);
}

static bool behind(const struct sched *s, struct client *v, const struct demand *d)
{
        struct entry e = run_entry(s, v);

        return !d->head || v->stuck || entry_before(&d->entry, &e);
}

static struct victim judge_leased(struct sched *s, struct client *v, const struct demand *d)
{
        struct victim r = {.c = v, .class = VICTIM_NONE};
        uint64_t end = policy_turn_end(s, v), idle_end;

        if (s->now_ns < v->retry_ns) {
                wake_at(s, v->retry_ns);
                return r;
        }
        if (v->idle) {
                idle_end = idle_until(s, v, d);
                if (s->now_ns >= idle_end) {
                        r.class = VICTIM_IDLE;
                        r.key = v->last_active_ns;
                        return r;
                }
                wake_at(s, idle_end);
        }
        if (d->head && client_outranks(v, d->head))
                return r;
        /* Within its quantum, a client that grows is served before clients without a lease. So a
         * client behind the head is past its quantum, or it is the later of two growing clients
         * that block each other. */
        if (v->waiting && behind(s, v, d)) {
                r.class = VICTIM_STALLED;
                r.entry = run_entry(s, v);
                return r;
        }
        if (d->head && client_outranks(d->head, v)) {
                r.class = VICTIM_LOWER;
                r.key = (uint64_t)((int64_t)v->priority - INT32_MIN);
                return r;
        }
        if (s->now_ns >= end) {
                r.class = v->idle ? VICTIM_EXPIRED_IDLE : VICTIM_EXPIRED;
                r.key = end;
                return r;
        }
        wake_at_turn_end(s, v);
        return r;
}

static struct victim judge(struct sched *s, struct client *v, const struct demand *d)
{
        const struct account *a = &v->accounts[d->gpu];
        struct victim r = {.c = v, .class = VICTIM_NONE};
        uint64_t idle_end;

        if (v == d->head || client_immovable(s, v))
                return r;
        if (d->foreign && (v->waiting || (v->lease && !v->idle) || a->usage.backed <= a->exported))
                return r;
        if (v->lease) {
                if (!d->lease_only && a->limit <= a->exported)
                        return r;
                return judge_leased(s, v, d);
        }
        if (d->lease_only || a->limit <= a->exported)
                return r;
        if (v->waiting && !behind(s, v, d))
                return r; /* clients before the head keep their bytes even if they just drained */
        if (v->yielding && !d->foreign) {
                r.class = VICTIM_YIELDING;
        } else if (v->waiting) {
                r.class = VICTIM_WAITER;
                r.entry = run_entry(s, v);
        } else {
                idle_end = idle_until(s, v, d);
                if (s->now_ns < idle_end) {
                        wake_at(s, idle_end);
                        return r;
                }
                r.class = VICTIM_IDLE;
                r.key = v->last_active_ns;
        }
        return r;
}

static bool rather(const struct victim *v, const struct victim *than)
{
        if (v->class != than->class)
                return v->class < than->class;
        if (v->class == VICTIM_WAITER || v->class == VICTIM_STALLED)
                return entry_before(&than->entry, &v->entry);
        return v->key < than->key;
}

static struct victim choose(struct sched *s, const struct demand *d)
{
        struct victim best = {.class = VICTIM_NONE};
        struct client *c;

        FOR_EACH_CLIENT_ON(s, d->gpu, c)
        {
                struct victim v = judge(s, c, d);

                if (d->foreign && v.class != VICTIM_IDLE)
                        continue;
                if (v.class != VICTIM_NONE && rather(&v, &best))
                        best = v;
        }
        return best;
}

void policy_revoke(struct sched *s, struct client *v, unsigned gpu, const struct client *for_whom)
{
        struct gpu *g = &s->gpu[gpu];
        unsigned doublings = MIN(v->drain_failures, PATIENCE_DOUBLINGS);

        v->draining = true;
        v->yielding = true;
        if (!v->revoked_ns)
                v->revoked_ns = s->now_ns;
        v->send_revoke = true;
        v->revoke_patience_ns = s->config.patience_ns << doublings;
        v->revoke_due_ns = add_sat(s->now_ns, add_sat(v->revoke_patience_ns, s->config.grace_ns));
        v->revoke_gpu = gpu;
        wake_at(s, v->revoke_due_ns);
        if (!g->revoked_ns && for_whom) {
                g->revoked_ns = s->now_ns;
                g->for_whom = client_id(s, for_whom);
        }
        actions_mark(s, v);
}

/* ---- making room ---- */

/* Returns the bytes below which a cut of c's limit would cost work: the backed bytes; for a running
 * client also those it has allocated or will allocate again (its high-water mark); for a waiting
 * client also those it has been given for its turn. */
static uint64_t slack_floor(const struct sched *s, const struct client *c, const struct account *a)
{
        uint64_t soon = 0;

        if (c->lease)
                soon = c->idle ? a->usage.allocated : account_mark(s, c, a);
        else if (c->waiting)
                soon = MAX(account_need(c, a), a->reserve);
        return MAX(a->usage.backed, soon);
}

static void trim(struct sched *s, struct demand *d)
{
        struct client *c;

        FOR_EACH_CLIENT_ON(s, d->gpu, c)
        {
                struct account *a = &c->accounts[d->gpu];
                uint64_t slack, floor;

                if (!d->missing)
                        return;
                if (c == d->head || c->lost || c->overdue)
                        continue;
                floor = MAX(slack_floor(s, c, a), a->exported);
                slack = MIN(d->missing, sub_sat(a->limit, floor));
                if (slack) {
                        ledger_set_limit(s, c, d->gpu, a->limit - slack);
                        d->missing -= slack;
                }
                /* The mark sinks while the client runs, so try again soon. */
                if (d->missing && c->lease && !c->idle && floor > a->usage.backed)
                        wake_at(s, s->now_ns + MARK_HALF_LIFE_NS / 16);
        }
}

/* Returns the bytes that clients have been told to return. ret_busy: a client is at work on it. */
static uint64_t pending(const struct sched *s, unsigned gpu, bool *ret_busy)
{
        const struct client *c;
        uint64_t sum = 0;
        bool busy = false;

        FOR_EACH_CLIENT_ON(s, gpu, c)
        {
                const struct account *a = &c->accounts[gpu];
                uint64_t on_the_way;

                if (c->lost || c->overdue)
                        continue;
                on_the_way = sub_sat(account_held(a), a->limit);
                sum += on_the_way;
                if (c->draining || (on_the_way && a->evicting))
                        busy = true;
        }
        *ret_busy = busy;
        return sum;
}

static struct entry head_entry(struct sched *s, struct client *c, bool unevictable)
{
        if (unevictable)
                return (struct entry){.c = c,
                                      .priority = c->priority,
                                      .kind = WAIT_UNEVICTABLE,
                                      .ticket = c->unevictable_ticket};
        return run_entry(s, c);
}

void policy_yield(struct sched *s, unsigned gpu, uint64_t bytes)
{
        bool busy;

        s->gpu[gpu].yield = sub_sat(bytes, pending(s, gpu, &busy));
}

/* Makes one idle client give way to foreign processes. No client lacks bytes on this GPU. */
static void yield(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct demand d = {.gpu = gpu, .missing = g->yield, .foreign = true};
        struct account *a;
        struct victim v;
        uint64_t backed, limit;

        v = choose(s, &d);
        if (v.class == VICTIM_NONE)
                return;
        if (v.c->lease) {
                policy_revoke(s, v.c, gpu, NULL);
                return;
        }
        a = &v.c->accounts[gpu];
        backed = MIN(a->usage.backed, a->limit);
        limit = MAX(sub_sat(backed, g->yield), a->exported);
        g->yield = sub_sat(g->yield, sub_sat(backed, limit));
        ledger_set_limit(s, v.c, gpu, limit);
}

void policy_reclaim(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct demand d = {.gpu = gpu, .head = g->head};
        struct victim v;
        uint64_t request;
        bool busy;

        if (s->config.mode == SCHED_MODE_OFF)
                return;
        /* request is the charge after all pending bytes are back. An overdrawn card is relieved
         * before waiting clients are served. */
        request = g->charged - pending(s, gpu, &busy);
        if (request > gpu_usable(g)) {
                d.head = NULL;
        } else if (g->head) {
                d.entry = head_entry(s, g->head, g->head_unevictable);
                request = add_sat(request, g->head_missing);
        }
        d.missing = sub_sat(request, gpu_usable(g));
        trim(s, &d);
        if (busy)
                return;
        if (!d.missing) {
                if (g->yield && !g->head)
                        yield(s, gpu);
                return;
        }

        v = choose(s, &d);
        if (v.class == VICTIM_NONE)
                return;
        if (v.c->lease) {
                policy_revoke(s, v.c, gpu, d.head);
        } else {
                struct account *a = &v.c->accounts[gpu];

                ledger_set_limit(s, v.c, gpu, sub_sat(a->limit, d.missing));
        }
}

/* Returns the latest of several lease holders. All but the longest holder give way when the mode
 * has changed or several clients came back running. */
static struct client *surplus_lease(struct sched *s, unsigned gpu)
{
        struct client *latest = NULL, *c;

        FOR_EACH_CLIENT_ON(s, gpu, c)
        {
                if (!c->lease || client_immovable(s, c))
                        continue;
                if (s->now_ns < c->retry_ns)
                        wake_at(s, c->retry_ns);
                else if (!latest || c->lease > latest->lease)
                        latest = c;
        }
        return latest;
}

/* Exclusive mode allows one lease per GPU, so a resident client may lack only the lease. */
void policy_reclaim_lease(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct demand d = {.gpu = gpu, .head = g->lease_head, .lease_only = true};
        struct victim v = {.class = VICTIM_NONE};
        bool busy;

        if (s->config.mode != SCHED_MODE_EXCLUSIVE || (g->leases < 2 && !d.head))
                return;
        (void)pending(s, gpu, &busy);
        if (busy)
                return;
        if (g->leases > 1) {
                v.c = surplus_lease(s, gpu);
        } else {
                d.entry = run_entry(s, g->lease_head);
                v = choose(s, &d);
        }
        if (v.c)
                policy_revoke(s, v.c, gpu, d.head);
}
