/* invariants.c: checks that the state is sound, with sums recomputed from scratch. Must never trust
 * a sum that the ledger keeps, nor change anything. */
#include "sched/internal.h"

struct sums {
        uint64_t charged, unevictable, committed, immovable, commit_max, spill;
        const struct holder *first; /* a holder with a lease that exclusive mode waits for */
        bool others;                /* holders outside its job have such a lease, too */
        bool busy;                  /* a client is giving bytes back, or has been asked to */
};

static struct sums recompute(const struct sched *s, unsigned gpu)
{
        struct sums r = {0};

        for (unsigned i = 0; i < s->clients; i++) {
                const struct client *c = &s->client[i];
                const struct account *a = c->accounts[gpu];

                if (!c->used || !a->attached)
                        continue;
                r.charged += account_charge(a);
                r.unevictable += account_unevictable(a);
                r.committed += account_commit(a);
                if (client_immovable(s, c))
                        r.immovable += account_movable(a);
                else if (c->draining || account_held(a) > a->limit)
                        r.busy = true;
        }
        for (unsigned i = 0; i < s->config.clients_max; i++) {
                const struct holder *h = &s->holder[i];

                if (!(h->gpus & UINT32_C(1) << gpu) || !h->first)
                        continue;
                r.commit_max = MAX(r.commit_max, ledger_sum(h, gpu, account_commit));
                if (!h->askable)
                        continue;
                r.others |= r.first && !holder_runs_beside(r.first, h);
                r.first = h;
        }
        return r;
}

static const char *check_gpu(const struct sched *s, unsigned gpu)
{
        const struct gpu *g = &s->gpu[gpu];
        struct sums r = recompute(s, gpu);

        if (r.charged != g->charged || r.unevictable != g->unevictable ||
            r.committed != g->committed)
                return "the ledger's sums are not the sums of its accounts";
        if (!r.first != !g->lease_first || r.others != g->lease_others)
                return "what is known of the leases on a GPU is wrong";
        /* Foreign use and returning clients can overdraw a card without the scheduler's doing. That
         * overdraft was there before this event granted anything, and no grant may add to it. */
        if (r.charged > gpu_usable(g) + g->over)
                return "invariant 1: more is charged than the card has";
        if (r.commit_max + r.unevictable > gpu_usable(g) + g->promise_over &&
            (!g->promise_over || r.commit_max + r.unevictable > g->total - gpu_headroom(g)))
                return "invariant 0: a holder may allocate more than could ever be made resident";
        return NULL;
}

static const char *check_host(const struct sched *s)
{
        if (s->config.mode == SCHED_MODE_OFF)
                return NULL;
        if (ledger_host_spilled(s, NO_GPU) > ledger_host_budget(s) + s->host_over)
                return "invariant 0: more could be evicted than host memory takes";
        return NULL;
}

static const char *check_account(const struct sched *s, const struct client *c, unsigned gpu)
{
        const struct account *a = c->accounts[gpu];

        if (a->limit > a->held)
                return "a limit is above the highest one not given back";
        if (a->limit < a->exported)
                return "a limit is below what is exported";
        if (a->commit > a->commit_held)
                return "a commit is above the highest one not given back";
        if (a->usage.backed > a->limit && !a->evicting && !c->lost && !c->lease &&
            a->held == a->limit)
                return "a client without a lease backs more than its limit and is not evicting";
        if (c->lease && !c->lost && a->evicting)
                return "invariant 2: memory of a client with a lease is being evicted";
        return NULL;
}

/* True if all that h needs is on its cards: h must run unless a known reason prevents it. */
static bool ready(const struct sched *s, const struct holder *h)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (h, gpu) {
                const struct client *c;

                FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                        const struct account *a = c->accounts[gpu];

                        if (account_missing(c, a) || !account_resident(c, a))
                                return false;
                }
                if (s->gpu[gpu].head && holder_outranks(s->gpu[gpu].head, h))
                        return false;
        }
        return true;
}

static bool takes_turns(const struct sched *s, const struct holder *h)
{
        return ANY_GPU_OF(h, gpu, s->gpu[gpu].exclusive);
}

static const char *check_holder(const struct sched *s, const struct holder *h)
{
        const struct client *c;
        bool leased = false;

        FOR_EACH_CLIENT_OF (h, c) {
                if (c->holder != h || !c->used)
                        return "a holder has a client that is none of its own";
                if (c->lost || !c->lease)
                        continue;
                leased = true;
                if (!h->lease)
                        return "a client has a lease, and its holder none";
        }
        if (h->lease && !leased)
                return "a holder has a lease that none of its clients has";
        if (s->config.mode == SCHED_MODE_AUTO && !takes_turns(s, h) && h->waiting && !h->lease &&
            !h->stuck && ready(s, h))
                return "invariant 4: a holder that has all it needs was not granted a lease";
        return NULL;
}

static const char *check_client(const struct sched *s, const struct client *c)
{
        const char *broken;
        unsigned gpu;

        if (c->lease > s->leases)
                return "a lease that was never given";
        if (c->draining && !c->lease)
                return "a client drains without a lease";
        if (c->waiting && c->lost)
                return "a lost client is in the queue";
        FOR_EACH_GPU_OF (c, gpu) {
                broken = check_account(s, c, gpu);
                if (broken)
                        return broken;
        }
        return NULL;
}

/* True if o may keep its bytes although the head waits: o outranks the head, or o waits itself and
 * lacks bytes, perhaps on another GPU, whose head is checked in the same way. */
static bool may_keep(const struct sched *s, const struct holder *o, const struct holder *head)
{
        if (holder_outranks(o, head))
                return true;
        if (!o->waiting || o->lease || o->stuck)
                return false;
        return takes_turns(s, o) ||
               ANY_GPU_OF(o, gpu, ledger_lacks(o, gpu)); /* or only the lease */
}

/* Checks that the head of a GPU's queue can expect its bytes. Either bytes are being returned, or a
 * client will be asked at a set time, or the holders may keep their bytes. */
static const char *check_progress(const struct sched *s, unsigned gpu)
{
        const struct gpu *g = &s->gpu[gpu];
        const struct holder *h = g->head;

        if (!h || s->config.mode == SCHED_MODE_OFF || recompute(s, gpu).busy)
                return NULL;
        if (s->next_ns != UINT64_MAX && s->next_ns > s->now_ns)
                return NULL;
        for (unsigned i = 0; i < s->clients; i++) {
                const struct client *c = &s->client[i];

                if (c->used && c->holder != h && c->accounts[gpu]->attached &&
                    account_charge(c->accounts[gpu]) && may_keep(s, c->holder, h))
                        return NULL;
        }
        return "invariant 4: somebody waits, and nobody is making room nor will be asked to";
}

/* Checks that the next bytes of a GPU go to the first client in the order of turns.c. An overdrawn
 * card is exempt, because it takes bytes from clients early in the queue, too. */
static const char *check_order(const struct sched *s, unsigned gpu)
{
        struct holder *head = s->gpu[gpu].head, *h;
        struct entry first, e;

        if (!head || s->gpu[gpu].head_unevictable || head->lease || s->gpu[gpu].over ||
            s->now_ns != s->settled_ns || !(s->touched & UINT32_C(1) << gpu))
                return NULL;
        first = turns_wanted(s, head);
        FOR_EACH_HOLDER_ON (s, gpu, h) {
                if (h == head || !h->waiting || h->lease || h->stuck || !ledger_lacks(h, gpu))
                        continue;
                e = turns_wanted(s, h);
                if (e.priority > first.priority)
                        return "somebody of a lower priority is first in the queue";
                if (e.kind == WAIT_RUN && first.kind == WAIT_RUN && turns_before(&e, &first))
                        return "somebody with a debt or a later deadline is first in the queue";
        }
        return NULL;
}

/* ---- the division of the time ---- */

/* What remains of the sums of all divisions when each share is subtracted. All is 0 if the sums are
 * right. */
struct rest {
        unsigned active;
        uint64_t parts, weights;
        int64_t sum_ns;
};

static void add_division(struct rest *r, const struct division *d)
{
        r->active += d->active;
        r->parts += d->parts;
        r->weights += d->weights;
        r->sum_ns += d->sum_ns;
}

/* Returns the sum of the division's promised minima, in thousandths of its time. */
static uint64_t promised(const struct division *d)
{
        uint64_t minima = 0;

        for (const struct share *m = d->with_minimum; m; m = m->next)
                minima += m->minimum;
        return minima;
}

/* True if m counts for its minimum. Its parts are rounded down. */
static bool keeps_minimum(const struct division *d, const struct share *m)
{
        return promised(d) >= 1000 || (m->parts + 1) * 1000 >= m->minimum * d->parts;
}

static const char *take_share(struct rest *r, const struct division *d, const struct share *m)
{
        if (!m->active)
                return NULL;
        r->active--;
        r->parts -= m->parts;
        r->weights -= weight_of(m);
        r->sum_ns -= m->service_ns;
        return m->minimum && !keeps_minimum(d, m)
                       ? "invariant 5: a minimum is not kept beside the others' weights"
                       : NULL;
}

static const char *check_divisions(const struct sched *s, unsigned gpu)
{
        struct rest r = {0};
        const char *broken = NULL;

        add_division(&r, &s->branch->on[gpu].below);
        for (unsigned i = 1; i < BRANCHES(s) && !broken; i++) {
                const struct branch *b = &s->branch[i];

                if (!b->parent)
                        continue;
                add_division(&r, &b->on[gpu].below);
                broken = take_share(&r, &b->parent->on[gpu].below, &b->on[gpu].share);
        }
        for (unsigned i = 0; i < s->config.clients_max && !broken; i++) {
                const struct holder *h = &s->holder[i];

                if (h->first)
                        broken = take_share(&r, &h->above->on[gpu].below, &h->on[gpu].share);
        }
        if (!broken && (r.active || r.parts || r.weights || r.sum_ns))
                return "invariant 5: the sums of the divisions are not the sums of their shares";
        return broken;
}

/* ---- which side runs ---- */

/* What the clients of a side do on one GPU. */
struct doing {
        bool works, can, runs;
};

static bool is_of(const struct side *side, const struct holder *h)
{
        return h->job ? side->job == h->job : side->only == h;
}

static bool could_run(const struct client *c)
{
        return c->lease && !c->lost && !c->idle && !c->draining && !preempt_overdue(c) &&
               !(c->holder->used_up && c->preemptible);
}

static struct doing look_at(const struct sched *s, unsigned gpu, const struct side *side)
{
        struct doing r = {.can = true};
        const struct client *c;

        FOR_EACH_CLIENT_ON (s, gpu, c) {
                if (!c->lease || !is_of(side, c->holder))
                        continue;
                r.can &= c->preemptible && !c->draining && !c->stands && !c->lost && !c->mps &&
                         c->gpus == UINT32_C(1) << gpu;
                r.works |= could_run(c);
                r.runs |= could_run(c) && !c->preempted;
        }
        return r;
}

/* True if side `low` runs although a higher priority works, without time that was saved for it. */
static bool runs_before(const struct gpu *g, const struct side *low, const struct side *high)
{
        return low->priority < high->priority && g->piece_end_ns == 0;
}

static const char *check_sides(const struct sched *s, unsigned gpu)
{
        const struct gpu *g = &s->gpu[gpu];
        const unsigned n = MIN(g->n_sides, SLICE_SIDES);
        struct doing d[SLICE_SIDES] = {0};
        unsigned running = 0, could = 0, run = 0;

        for (unsigned i = 0; i < n; i++) {
                d[i] = look_at(s, gpu, &g->sides[i]);
                run += d[i].runs;
                could += d[i].works;
                running += d[i].works && d[i].can && d[i].runs;
        }
        if (could && !run)
                return "invariant 6: sides could run on a GPU, and none does";
        if (g->serial && running > 1)
                return "invariant 6: two sides run on a serial GPU";
        if (g->piece_end_ns > s->now_ns + 10 * NSEC_PER_MSEC)
                return "invariant 6: a lower priority runs for too long";
        for (unsigned i = 0; i < n && s->config.mode != SCHED_MODE_OFF; i++)
                for (unsigned k = 0; k < n; k++)
                        if (d[i].works && d[i].can && d[i].runs && d[k].works && d[k].can &&
                            runs_before(g, &g->sides[i], &g->sides[k]))
                                return "invariant 6: a lower priority runs before a higher one";
        return NULL;
}

static const char *check_preempted(const struct sched *s, const struct client *c)
{
        if (!c->preempted)
                return NULL;
        if (!c->preemptible || s->config.mode == SCHED_MODE_OFF)
                return "invariant 6: a client is preempted that cannot be";
        if (!c->lease || c->lost || c->idle)
                return "invariant 6: a client without work is preempted";
        if (!c->overdue && (c->draining || c->stands || c->mps))
                return "invariant 6: a client that must run is preempted";
        return NULL;
}

const char *sched_check(const struct sched *s, uint64_t now_ns)
{
        const char *broken;
        bool restarting = s->now_ns < s->restart_until_ns;

        (void)now_ns;
        for (unsigned gpu = 0; gpu < s->gpus; gpu++) {
                if (!s->gpu[gpu].present)
                        continue;
                broken = check_gpu(s, gpu);
                if (!broken && !restarting)
                        broken = check_progress(s, gpu);
                if (!broken && !restarting)
                        broken = check_order(s, gpu);
                if (!broken)
                        broken = check_divisions(s, gpu);
                if (!broken && !restarting)
                        broken = check_sides(s, gpu);
                if (broken)
                        return broken;
        }
        for (unsigned i = 0; i < s->clients && !restarting; i++) {
                if (!s->client[i].used)
                        continue;
                broken = check_client(s, &s->client[i]);
                if (!broken)
                        broken = check_preempted(s, &s->client[i]);
                if (broken)
                        return broken;
        }
        for (unsigned i = 0; i < s->config.clients_max && !restarting; i++) {
                broken = s->holder[i].first ? check_holder(s, &s->holder[i]) : NULL;
                if (broken)
                        return broken;
        }
        return check_host(s);
}
