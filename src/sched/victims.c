/* victims.c: owns the queue and the choice of victims. Must never change a byte count except
 * through the ledger, and never ask for more bytes than are missing, except ahead of growth. */
#include "sched/internal.h"

/* ---- the queue ---- */

static bool served_before(const struct entry *a, const struct entry *b)
{
        if (PLANTED(LATEST_FIRST) && a->priority == b->priority && a->kind == b->kind)
                return turns_before(b, a);
        return turns_before(a, b);
}

static void sift_down(struct entry *heap, unsigned n, unsigned i)
{
        for (;;) {
                unsigned last = i, l = 2 * i + 1, r = l + 1;
                struct entry tmp;

                if (l < n && served_before(&heap[last], &heap[l]))
                        last = l;
                if (r < n && served_before(&heap[last], &heap[r]))
                        last = r;
                if (last == i)
                        return;
                tmp = heap[i];
                heap[i] = heap[last];
                heap[last] = tmp;
                i = last;
        }
}

/* Gives one waiting holder of a lower priority a turn before everybody, if the floor has time. */
static void promote(struct sched *s, struct entry *o, unsigned n)
{
        struct entry *best = NULL;

        for (unsigned i = 0; i < n; i++) {
                const struct holder *h = o[i].h;
                uint64_t wait_ns;

                if (o[i].kind == WAIT_UNEVICTABLE || h->lease || h->promoted || h->stuck)
                        continue;
                wait_ns = MAX(turns_floor_wait(s, h), sub_sat(h->last_until_ns, s->now_ns));
                if (wait_ns > 0 && wait_ns != UINT64_MAX)
                        wake_at(s, add_sat(s->now_ns, wait_ns));
                else if (wait_ns == 0 && (!best || turns_before(&o[i], best)))
                        best = &o[i];
        }
        if (!best || PLANTED(NO_FLOOR))
                return;
        best->h->promoted = true;
        best->priority = holder_rank(best->h);
}

static struct entry unevictable_entry(struct client *c)
{
        return (struct entry){.h = c->holder,
                              .c = c,
                              .priority = holder_rank(c->holder),
                              .kind = WAIT_UNEVICTABLE,
                              .deadline_ns = INT64_MAX, /* it interrupts no turn */
                              .ticket = c->unevictable_ticket};
}

/* Heap sort: qsort(3) may allocate. */
static void sort(struct entry *o, unsigned n)
{
        for (unsigned i = n / 2; i-- > 0;)
                sift_down(o, n, i);
        while (n > 1) {
                struct entry tmp = o[0];

                o[0] = o[--n];
                o[n] = tmp;
                sift_down(o, n, 0);
        }
}

void policy_sort(struct sched *s)
{
        struct entry *o = s->order;
        struct client *c;
        unsigned n = 0;

        FOR_EACH_TOUCHED_CLIENT (s, c) {
                struct holder *h = c->holder;

                if (c->unevictable_ticket)
                        o[n++] = unevictable_entry(c);
                if (h->waiting && !h->held && h->pass != s->passes)
                        o[n++] = turns_wanted(s, h);
                h->pass = s->passes;
        }
        promote(s, o, n);
        s->n_order = n;
        sort(o, n);
}

unsigned policy_queue(struct sched *s, unsigned gpu)
{
        struct holder *h;
        unsigned n = 0;

        FOR_EACH_HOLDER_ON (s, gpu, h) {
                if (h->waiting && !h->lease && !h->held && !h->stuck)
                        s->order[n++] = turns_wanted(s, h);
        }
        sort(s->order, n);
        return n;
}

/* ---- who gives way ---- */

/* Victims are asked in this order. */
enum victim_class {
        VICTIM_YIELDING,     /* clients that have just drained for another client */
        VICTIM_IDLE,         /* idle clients; the least recently active goes first */
        VICTIM_WAITER,       /* clients behind the head, without a lease; the last goes first */
        VICTIM_STALLED,      /* clients behind the head, with a lease, that wait for growth */
        VICTIM_LOWER,        /* running clients of a lower priority; the lowest goes first */
        VICTIM_EXPIRED_IDLE, /* idle clients past their turn; the earliest end goes first */
        VICTIM_EXPIRED,      /* busy clients past their turn; the earliest end goes first */
        VICTIM_EARLY,        /* busy clients within their turn; the latest deadline goes first */
        VICTIM_NONE,
};

/* The demand for which a victim is chosen. */
struct demand {
        struct holder *head; /* NULL: nobody waits, the card is overdrawn */
        struct entry entry;  /* the head's place in the queue */
        unsigned gpu;
        uint64_t missing;
        bool interrupts; /* the head may interrupt turns, but not before credit_ns, when the credit
                            suffices */
        uint64_t credit_ns;
        bool lease_only; /* exclusive mode: only the lease is needed, no byte */
        bool foreign;    /* the bytes are for foreign processes: only idle clients give way */
        const struct holder *judged; /* the holder for which idle_end_ns was computed */
        uint64_t idle_end_ns;
};

struct victim {
        struct client *c;
        enum victim_class class;
        uint64_t key;       /* rank within most classes: the smallest goes first */
        struct entry entry; /* rank within the other classes: the last place goes first */
};

/* True if the head grows during its turn. */
static bool grows(const struct demand *d)
{
        return d->head && d->entry.kind == WAIT_GROWTH;
}

/* Returns the bytes of v that a hand-off would move. Growth comes in pieces, but v loses its turn
 * with the first, so all its memory counts. A head that has hardly run yet will grow, too. */
static uint64_t at_stake(const struct sched *s, const struct holder *v, const struct demand *d)
{
        const struct client *c;
        uint64_t backed = 0;

        if (d->lease_only)
                return 0;
        FOR_EACH_CLIENT_OF_ON (v, d->gpu, c)
                backed += c->accounts[d->gpu]->usage.backed;
        if (grows(d) || (d->head && habits_run_ns(s, d->head) < STARTS_NS))
                return backed;
        return MIN(d->missing, backed);
}

static uint64_t compute_idle_end(const struct sched *s, const struct holder *v,
                                 const struct demand *d)
{
        uint64_t cost = 2 * gpu_move_ns(&s->gpu[d->gpu], at_stake(s, v, d));
        uint64_t wait = cost; /* the longest time that habits_release() returns */

        if (cost && holder_idle_release(s, v))
                wait = holder_idle_release(s, v);
        else if (s->now_ns < add_sat(v->last_active_ns, cost))
                wait = habits_release(v, cost);
        /* A holder of a higher priority keeps its memory between two bursts of work. */
        if (d->head && holder_outranks(v, d->head))
                wait = MAX(wait, MAX(cost, habits_handoff_cost(s, v)));
        return add_sat(v->last_active_ns, wait);
}

/* Keeps the last result: clients of one holder are judged one after the other. */
static uint64_t idle_until(const struct sched *s, const struct holder *v, struct demand *d)
{
        if (d->judged != v) {
                d->judged = v;
                d->idle_end_ns = compute_idle_end(s, v, d);
        }
        return d->idle_end_ns;
}

/* True if the waiting holder of r->c is behind the head. Sets its place in the queue. */
static bool is_behind(struct sched *s, struct victim *r, const struct demand *d)
{
        r->entry = turns_wanted(s, r->c->holder);
        return !d->head || r->c->holder->stuck || turns_before(&d->entry, &r->entry);
}

/* The head may interrupt turns if its burst is known to be short and it has no debt. Sets the time
 * from which on the card has credit for the hand-off. */
static void judge_head(struct sched *s, struct demand *d)
{
        const struct gpu *g = &s->gpu[d->gpu];

        d->interrupts = false;
        if (!d->lease_only && (g->head_unevictable || g->lease_head))
                return;
        if (!d->head || (!habits_burst(s, d->head) && !PLANTED(UNKNOWN_INTERRUPTS)))
                return;
        if (d->entry.debtor) {
                wake_at(s, s->now_ns + MAX(fair_wait(d->head), DEBT_CHECK_NS));
                return;
        }
        d->interrupts = true;
        d->credit_ns = s->now_ns + fair_credit_wait(s, g, gpu_move_ns(g, d->missing));
}

/* True if the head interrupts v's turn: its deadline is earlier. */
static bool is_interrupted(struct sched *s, struct victim *r, const struct demand *d)
{
        struct holder *v = r->c->holder;
        const uint64_t at_ns = MAX(v->granted_ns + s->config.quantum_min_ns, d->credit_ns);

        if (!d->interrupts || (v->idle && holder_idle_release(s, v)))
                return false;
        r->entry = turns_held(s, v, d->head);
        if (d->entry.deadline_ns + (int64_t)habits_handoff_cost(s, v) >= r->entry.deadline_ns) {
                if (!v->idle) /* its burst may outlast what is expected of it */
                        wake_at(s, add_sat(s->now_ns, add_sat(habits_left(s, v, d->head), 1)));
                return false;
        }
        if (s->now_ns < at_ns)
                wake_at(s, at_ns);
        return s->now_ns >= at_ns;
}

/* Judges a running holder of the head's priority. If its turn is over, and it comes before the head
 * again, it begins another turn. */
static void judge_turn(struct sched *s, struct victim *r, const struct demand *d)
{
        struct holder *v = r->c->holder;
        struct entry held;

        if (turns_over(s, v)) {
                held = turns_held(s, v, v);
                if (!d->head || turns_before(&d->entry, &held)) {
                        r->class = v->idle ? VICTIM_EXPIRED_IDLE : VICTIM_EXPIRED;
                        r->key = v->turn_end_ns;
                        return;
                }
                turns_begin(s, v);
        } else if (is_interrupted(s, r, d)) {
                r->class = VICTIM_EARLY;
        }
        if (!PLANTED(NO_WAKE))
                wake_at(s, v->turn_end_ns);
}

/* Judges a client whose holder has a turn: all clients of the holder give way, or none. */
static struct victim judge_in_turn(struct sched *s, struct client *c, struct demand *d)
{
        struct victim r = {.c = c, .class = VICTIM_NONE};
        struct holder *v = c->holder;
        uint64_t idle_end;

        if (v->awaited)
                return r;
        v->promoted &= !turns_over(s, v);
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
        if (d->head && holder_outranks(v, d->head)) {
                if (v->promoted)
                        wake_at(s, v->turn_end_ns);
                return r;
        }
        /* Within its quantum, a client that grows is served before clients without a lease. So a
         * client behind the head is past its quantum, or it is the later of two growing clients
         * that block each other. */
        if (v->waiting && is_behind(s, &r, d)) {
                r.class = VICTIM_STALLED;
                return r;
        }
        if (d->head && holder_outranks(d->head, v)) {
                r.class = VICTIM_LOWER;
                r.key = (uint64_t)((int64_t)holder_rank(v) - INT_MIN);
                return r;
        }
        judge_turn(s, &r, d);
        return r;
}

static struct victim judge(struct sched *s, struct client *v, struct demand *d)
{
        const struct account *a = v->accounts[d->gpu];
        const struct holder *h = v->holder;
        struct victim r = {.c = v, .class = VICTIM_NONE};
        uint64_t idle_end;

        if (h == d->head || client_immovable(s, v))
                return r;
        if (d->foreign && (h->waiting || (h->lease && !h->idle) || a->usage.backed <= a->exported))
                return r;
        if (h->askable) {
                if (!d->lease_only && a->limit <= a->exported)
                        return r;
                return judge_in_turn(s, v, d);
        }
        if (d->lease_only || a->limit <= a->exported)
                return r;
        if (h->waiting && !is_behind(s, &r, d))
                return r; /* clients before the head keep their bytes even if they just drained */
        if (h->yielding && !d->foreign) {
                r.class = VICTIM_YIELDING;
        } else if (h->waiting) {
                r.class = VICTIM_WAITER;
        } else {
                idle_end = idle_until(s, h, d);
                if (s->now_ns < idle_end) {
                        wake_at(s, idle_end);
                        return r;
                }
                r.class = VICTIM_IDLE;
                r.key = h->last_active_ns;
        }
        return r;
}

static bool rather(const struct victim *v, const struct victim *than)
{
        if (v->class != than->class)
                return v->class < than->class;
        if (v->class == VICTIM_WAITER || v->class == VICTIM_STALLED || v->class == VICTIM_EARLY)
                return turns_before(&than->entry, &v->entry);
        return v->key < than->key;
}

/* Returns the bytes that c can be made to give. */
static uint64_t givable(const struct account *a)
{
        return sub_sat(a->limit, a->exported);
}

/* Busy clients give way only if all clients together can give the missing bytes. Otherwise the
 * bytes of the first one would lie idle until the last one's turn is over. */
static struct victim choose(struct sched *s, struct demand *d)
{
        struct victim best = {.class = VICTIM_NONE};
        struct client *c;
        uint64_t sum = 0;

        d->judged = NULL;
        FOR_EACH_CLIENT_ON (s, d->gpu, c) {
                struct victim v = judge(s, c, d);

                if (d->foreign && v.class != VICTIM_IDLE)
                        continue;
                if (v.class == VICTIM_NONE)
                        continue;
                sum += givable(c->accounts[d->gpu]);
                if (rather(&v, &best))
                        best = v;
        }
        if (d->head && !d->lease_only && best.class > VICTIM_YIELDING && sum < d->missing &&
            !PLANTED(TOO_FEW_VICTIMS))
                best.class = VICTIM_NONE;
        return best;
}

/* ---- making room ---- */

/* Returns the bytes below which a cut of c's limit would cost work: the backed bytes; for a running
 * client also those it has allocated or will allocate again (its high-water mark); for a waiting
 * client also those it has been given for its turn. */
uint64_t policy_slack_floor(const struct sched *s, const struct client *c, const struct account *a)
{
        uint64_t soon = 0;

        if (c->lease)
                soon = c->idle ? a->usage.allocated : account_mark(s, c, a);
        else if (c->holder->waiting)
                soon = MAX(account_need(c, a), a->reserve);
        return MAX(a->usage.backed, soon);
}

/* True if the bytes are for c itself, so that its slack is no gain. */
static bool is_for(const struct demand *d, const struct client *c)
{
        if (c->holder != d->head)
                return false;
        return d->entry.c ? c == d->entry.c : account_missing(c, c->accounts[d->gpu]) > 0;
}

static void trim(struct sched *s, struct demand *d)
{
        struct client *c;

        FOR_EACH_CLIENT_ON (s, d->gpu, c) {
                struct account *a = c->accounts[d->gpu];
                uint64_t slack, floor;

                if (!d->missing)
                        return;
                if (c->lost || c->overdue || is_for(d, c))
                        continue;
                floor = MAX(policy_slack_floor(s, c, a), a->exported);
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

/* Returns the bytes that clients have been told to return. *ret_busy: a client drains or evicts for
 * them now. */
static uint64_t pending(const struct sched *s, unsigned gpu, bool *ret_busy)
{
        const struct client *c;
        uint64_t sum = 0;
        bool busy = false;

        FOR_EACH_CLIENT_ON (s, gpu, c) {
                const struct account *a = c->accounts[gpu];
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

void policy_yield(struct sched *s, unsigned gpu, uint64_t bytes)
{
        bool busy;

        s->gpu[gpu].yield = sub_sat(bytes, pending(s, gpu, &busy));
}

/* Makes one idle client give way to foreign processes. Called only if no client lacks bytes on this
 * GPU. */
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
        if (v.c->holder->askable) {
                holder_revoke(s, v.c->holder, gpu);
                return;
        }
        a = v.c->accounts[gpu];
        backed = MIN(a->usage.backed, a->limit);
        limit = MAX(sub_sat(backed, g->yield), a->exported);
        g->yield = sub_sat(g->yield, sub_sat(backed, limit));
        g->yielded += sub_sat(backed, limit);
        ledger_set_limit(s, v.c, gpu, limit);
}

/* Returns the bytes that clients will give back once all clients of their holder have drained. */
static uint64_t draining(const struct sched *s, unsigned gpu)
{
        const struct client *c;
        uint64_t sum = 0;

        FOR_EACH_CLIENT_ON (s, gpu, c) {
                if (c->holder->awaited && !client_immovable(s, c))
                        sum += givable(c->accounts[gpu]);
        }
        return sum;
}

/* A hand-off that interrupts a turn costs credit. On an exclusive card the next turn is for
 * lease_head. A hand-off for a head behind it would let that head overtake it, again and again. */
static void handoff_begins(struct sched *s, const struct demand *d, enum victim_class class)
{
        struct gpu *g = &s->gpu[d->gpu];

        if (!d->head || g->handoff_since_ns || (g->lease_head && g->lease_head != d->head))
                return;
        g->handoff_since_ns = MAX(s->now_ns, UINT64_C(1));
        g->for_whom = d->head;
        if (class >= VICTIM_LOWER)
                fair_spend(g, gpu_move_ns(g, d->missing));
}

/* A head that grows during its turn is likely to go on, as it fills its memory. So clients without
 * a lease give at once as many bytes as this growth has taken so far. Returns how many of these are
 * beyond the missing bytes. */
static uint64_t growth_ahead(const struct demand *d)
{
        return grows(d) ? sub_sat(d->head->on[d->gpu].grown, d->missing) : 0;
}

/* Takes the missing bytes from a client without a lease, and up to *ahead more for growth. */
static void take_from(struct sched *s, struct demand *d, struct client *v, uint64_t *ahead)
{
        const struct account *a = v->accounts[d->gpu];
        const uint64_t bytes = MIN(givable(a), d->missing + *ahead);

        if (grows(d)) {
                d->head->on[d->gpu].grown += bytes;
                d->head->on[d->gpu].ahead += bytes;
        }
        *ahead -= sub_sat(bytes, d->missing);
        d->missing = sub_sat(d->missing, bytes);
        ledger_set_limit(s, v, d->gpu, a->limit - bytes);
}

void policy_reclaim(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct demand d = {.gpu = gpu, .head = g->head};
        struct victim v;
        uint64_t request, ahead;
        bool busy;

        if (s->config.mode == SCHED_MODE_OFF)
                return;
        /* request is the charge after all pending bytes are back. An overdrawn card is relieved
         * before waiting clients are served. */
        request = g->charged - pending(s, gpu, &busy);
        if (request > gpu_usable(g)) {
                d.head = NULL;
        } else if (g->head) {
                d.entry = g->head_unevictable ? unevictable_entry(g->head_unevictable)
                                              : turns_wanted(s, g->head);
                request = add_sat(request, g->head_missing);
        }
        d.missing = sub_sat(request, gpu_usable(g));
        trim(s, &d);
        if (!d.missing && !busy && g->yield && !g->head)
                yield(s, gpu);
        if (g->drains)
                d.missing = sub_sat(d.missing, draining(s, gpu));
        if (d.missing && d.head && !g->head_unevictable && holder_comes_last(s, d.head)) {
                wake_at(s, d.head->last_until_ns);
                return;
        }
        if (d.missing)
                judge_head(s, &d);
        ahead = growth_ahead(&d);
        while (d.missing) {
                v = choose(s, &d);
                if (v.class == VICTIM_NONE)
                        return;
                handoff_begins(s, &d, v.class);
                if (v.c->holder->askable) {
                        holder_revoke(s, v.c->holder, gpu);
                        d.missing = sub_sat(d.missing, ledger_sum(v.c->holder, gpu, givable));
                } else {
                        take_from(s, &d, v.c, &ahead);
                }
        }
}

/* Returns the holder of the latest of several leases; NULL: none can be asked now. All but the
 * oldest give way when the card has become exclusive or several clients came back running. */
static struct holder *surplus_lease(struct sched *s, unsigned gpu)
{
        struct holder *latest = NULL, *h;

        FOR_EACH_HOLDER_ON (s, gpu, h) {
                if (!holder_can_be_asked(s, h))
                        continue;
                if (s->now_ns < h->retry_ns)
                        wake_at(s, h->retry_ns);
                else if (!latest || h->lease > latest->lease)
                        latest = h;
        }
        return latest;
}

/* On an exclusive card one holder or job has leases at a time, so a resident client may lack only
 * the lease. */
void policy_reclaim_lease(struct sched *s, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct demand d = {.gpu = gpu, .head = g->lease_head, .lease_only = true};
        struct victim v = {.class = VICTIM_NONE};
        struct holder *h;
        bool busy;

        if (!g->exclusive || (!g->lease_others && !d.head))
                return;
        (void)pending(s, gpu, &busy);
        if (busy)
                return;
        if (g->lease_others) {
                h = surplus_lease(s, gpu);
        } else {
                d.entry = turns_wanted(s, g->lease_head);
                judge_head(s, &d);
                v = choose(s, &d);
                h = v.c ? v.c->holder : NULL;
        }
        if (!h)
                return;
        handoff_begins(s, &d, v.class);
        holder_revoke(s, h, gpu);
}
