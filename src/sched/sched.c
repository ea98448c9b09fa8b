/* sched.c: owns the events. It checks an event's input, changes the state that the event names, and
 * lets settle() draw the consequences. Must never decide anything itself, and never allocate after
 * sched_new(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/internal.h"
#include "base/precondition.h"

/* ---- making and settings ---- */

void sched_config_default(struct sched_config *c)
{
        *c = (struct sched_config){
                .clients_max = 1024,
                .mode = SCHED_MODE_AUTO,
                .quantum_min_ns = 200 * NSEC_PER_MSEC,
                .quantum_max_ns = 60 * NSEC_PER_SEC,
                .handoff_permille = 50,
                .floor_permille = 50,
                .grace_ns = 5 * NSEC_PER_SEC,
                .patience_ns = 2 * NSEC_PER_SEC,
                .unevictable_permille = 50,
                .window_ns = 100 * NSEC_PER_MSEC,
        };
}

/* A person wrote the settings, so clamp them to values for which the arithmetic is defined. */
void config_clamp(struct sched_config *c)
{
        const uint64_t day = 24 * 3600 * NSEC_PER_SEC;

        c->clients_max = (unsigned)clamp_u64(c->clients_max, 1, 1 << 20);
        c->quantum_ns = MIN(c->quantum_ns, day);
        c->quantum_max_ns = clamp_u64(c->quantum_max_ns, 1, day);
        c->quantum_min_ns = MIN(c->quantum_min_ns, c->quantum_max_ns);
        c->handoff_permille = (unsigned)clamp_u64(c->handoff_permille, 1, 999);
        c->floor_permille = (unsigned)clamp_u64(c->floor_permille, 1, 500);
        c->grace_ns = clamp_u64(c->grace_ns, NSEC_PER_MSEC, day);
        c->idle_release_ns = MIN(c->idle_release_ns, day);
        c->patience_ns = clamp_u64(c->patience_ns, NSEC_PER_MSEC, day);
        c->host_budget_bytes = MIN(c->host_budget_bytes, BYTES_MAX);
        c->restart_grace_ns = MIN(c->restart_grace_ns, day);
        c->unevictable_permille = MIN(c->unevictable_permille, 900U);
        c->window_ns = clamp_u64(c->window_ns, 20 * NSEC_PER_MSEC, NSEC_PER_SEC);
}

struct sched *sched_new(const struct sched_config *config)
{
        struct sched *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        s->config = *config;
        config_clamp(&s->config);
        s->client = calloc(s->config.clients_max, sizeof(*s->client));
        s->attached = calloc(s->config.clients_max, 2 * SCHED_GPUS_MAX * sizeof(*s->attached));
        s->order = calloc(s->config.clients_max, 2 * sizeof(*s->order));
        s->dirty = calloc(s->config.clients_max, sizeof(*s->dirty));
        s->branch = calloc(BRANCHES(s), sizeof(*s->branch));
        s->holder = calloc(s->config.clients_max, sizeof(*s->holder));
        s->account = calloc(s->config.clients_max, SCHED_GPUS_MAX * sizeof(*s->account));
        s->unused = calloc(s->config.clients_max, SCHED_GPUS_MAX * sizeof(*s->unused));
        if (!s->client || !s->attached || !s->order || !s->dirty || !s->branch || !s->holder ||
            !s->account || !s->unused) {
                sched_free(s);
                errno = ENOMEM;
                return NULL;
        }
        s->next_ns = UINT64_MAX;
        s->random = config->seed ? config->seed : 1; /* xorshift would stay at 0 for ever */
        return s;
}

void sched_free(struct sched *s)
{
        if (!s)
                return;
        free(s->client);
        free(s->attached);
        free(s->order);
        free(s->dirty);
        free(s->branch);
        free(s->holder);
        free(s->account);
        free(s->unused);
        free(s);
}

static uint32_t one_gpu(unsigned gpu)
{
        return gpu < SCHED_GPUS_MAX ? UINT32_C(1) << gpu : 0;
}

static struct account *find_account(struct client *c, unsigned gpu)
{
        return gpu < SCHED_GPUS_MAX && c->accounts[gpu]->attached ? c->accounts[gpu] : NULL;
}

/* Begin a change by a client. NULL: the client is gone. */
static struct client *touch_client(struct sched *s, sched_client id, uint64_t now_ns)
{
        struct client *c = client_find(s, id);

        touch_begin(s, now_ns, client_gpus(c));
        return c && !c->lost ? c : NULL;
}

/* Begin a change of what a client has on a GPU. -ESTALE: the client is gone; -EINVAL: it has
 * nothing to do with that GPU. */
static int touch_account(struct sched *s, sched_client id, unsigned gpu, uint64_t now_ns,
                         struct client **ret_client, struct account **ret)
{
        *ret_client = touch_client(s, id, now_ns);
        if (!*ret_client)
                return -ESTALE;
        *ret = find_account(*ret_client, gpu);
        return *ret ? 0 : -EINVAL;
}

/* ---- GPUs ---- */

static bool gpu_is_known(const struct sched *s, unsigned gpu)
{
        return gpu < s->gpus && s->gpu[gpu].present;
}

int sched_gpu_add(struct sched *s, unsigned gpu, uint64_t total_bytes)
{
        struct client **list;

        PRECONDITION(gpu < SCHED_GPUS_MAX, -EINVAL);
        if (total_bytes == 0 || total_bytes > BYTES_MAX)
                return -EINVAL;
        if (s->gpu[gpu].present)
                return -EEXIST;
        list = s->attached + (size_t)2 * gpu * s->config.clients_max;
        s->gpu[gpu] = (struct gpu){.present = true,
                                   .total = total_bytes,
                                   .clients = list,
                                   .payers = list + s->config.clients_max,
                                   .next_ns = UINT64_MAX,
                                   .gib_guess_ns = GIB_GUESS_NS,
                                   .billed_ns = s->now_ns};
        s->gpus = MAX(s->gpus, gpu + 1);
        return 0;
}

void sched_gpu_total(struct sched *s, unsigned gpu, uint64_t total_bytes, uint64_t now_ns,
                     struct sched_actions *out)
{
        PRECONDITION(gpu_is_known(s, gpu), );
        touch_begin(s, now_ns, one_gpu(gpu));
        if (total_bytes && total_bytes <= BYTES_MAX) {
                s->gpu[gpu].total = total_bytes;
                s->gpu[gpu].foreign = MIN(s->gpu[gpu].foreign, total_bytes);
        }
        touch_end(s, out);
}

void sched_gpu_bus(struct sched *s, unsigned gpu, uint64_t bytes_per_s)
{
        PRECONDITION(gpu_is_known(s, gpu), );
        if (bytes_per_s)
                s->gpu[gpu].gib_guess_ns = clamp_u64(
                        (uint64_t)((double)GIB * (double)NSEC_PER_SEC / (double)bytes_per_s),
                        GIB_MIN_NS, GIB_MAX_NS);
}

int sched_gpu_remove(struct sched *s, unsigned gpu)
{
        PRECONDITION(gpu_is_known(s, gpu), -EINVAL);
        if (sched_gpu_in_use(s, gpu))
                return -EBUSY;
        s->gpu[gpu] = (struct gpu){0};
        return 0;
}

void sched_gpu_foreign(struct sched *s, unsigned gpu, uint64_t foreign_bytes, uint64_t now_ns,
                       struct sched_actions *out)
{
        PRECONDITION(gpu_is_known(s, gpu), );
        touch_begin(s, now_ns, one_gpu(gpu));
        s->gpu[gpu].foreign = MIN(foreign_bytes, s->gpu[gpu].total);
        s->gpu[gpu].shortage = 0;
        touch_end(s, out);
}

void sched_gpu_yield(struct sched *s, unsigned gpu, uint64_t bytes, uint64_t now_ns,
                     struct sched_actions *out)
{
        PRECONDITION(gpu_is_known(s, gpu), );
        touch_begin(s, now_ns, one_gpu(gpu));
        policy_yield(s, gpu, MIN(bytes, s->gpu[gpu].total));
        touch_end(s, out);
}

int sched_host_take(struct sched *s, uint64_t bytes, bool held, uint64_t now_ns,
                    struct sched_actions *out)
{
        touch_begin(s, now_ns, ALL_GPUS);
        if (!held && bytes > s->host_taken && bytes - s->host_taken > sched_host_free(s))
                return -ENOMEM;
        s->host_taken = bytes;
        touch_end(s, out);
        return 0;
}

uint64_t sched_host_free(const struct sched *s)
{
        return sub_sat(ledger_host_budget(s), ledger_host_spilled(s, NO_GPU));
}

/* ---- clients ---- */

int sched_client_add(struct sched *s, struct sched_origin origin, int priority, uint64_t now_ns,
                     sched_client *ret_id)
{
        unsigned slot;
        struct client *c;
        uint32_t generation;
        struct client old;

        touch_begin(s, now_ns, 0);
        for (slot = s->free; slot < s->clients && s->client[slot].used; slot++)
                ;
        s->free = slot;
        if (slot == s->config.clients_max)
                return -ENOSPC;
        s->clients = MAX(s->clients, slot + 1);
        c = &s->client[slot];
        generation = c->generation + 1 ? c->generation + 1 : 1;
        old = *c; /* the lists of dirty and of changed clients may still hold this slot */
        *c = (struct client){.used = true,
                             .generation = generation,
                             .dirty = old.dirty,
                             .changed = old.changed,
                             .changed_next = old.changed_next,
                             .priority = priority,
                             .since_ns = s->now_ns,
                             .clock_ns = s->now_ns};
        for (unsigned gpu = 0; gpu < SCHED_GPUS_MAX; gpu++)
                c->accounts[gpu] = &s->nothing;
        holder_add(holder_new(s, slot, &origin), c);
        s->transitions.state[SCHED_STATES][SCHED_IDLE]++;
        *ret_id = client_id(s, c);
        return 0;
}

static void request_unevictable_of(struct sched *s, struct client *c, struct account *a,
                                   uint64_t unevictable, bool spare, uint32_t sequence)
{
        unevictable = MIN(unevictable, BYTES_MAX);
        /* A repeated request keeps its age. */
        if (!a->unevictable_requested || a->unevictable_request != unevictable)
                a->unevictable_since_ns = s->now_ns;
        a->unevictable_requested = true;
        a->spare_requested = spare;
        a->unevictable_request = unevictable;
        a->unevictable_of = sequence;
        if (!c->unevictable_ticket)
                c->unevictable_ticket = ++s->tickets;
}

static void move_to(struct sched *s, struct client *c, struct holder *h)
{
        if (c->holder == h)
                return;
        holder_remove(s, c);
        holder_add(h, c);
}

int sched_client_returned(struct sched *s, sched_client id, sched_client previous)
{
        struct client *c = client_find(s, id), *p = client_find(s, previous);

        if (!c || !p)
                return -ESTALE;
        if (!p->lost || c == p || c->gpus)
                return -EINVAL;
        move_to(s, c, p->holder);
        c->previous = previous;
        return 0;
}

int sched_client_join(struct sched *s, sched_client id, sched_client other)
{
        struct client *c = client_find(s, id), *o = client_find(s, other);

        if (!c || !o)
                return -ESTALE;
        if (c->gpus || c->holder->above != o->holder->above)
                return -EINVAL;
        move_to(s, c, o->holder);
        return 0;
}

static void drop_account(struct sched *s, struct client *c, unsigned gpu)
{
        struct holder *h = c->holder;

        ledger_detach(s, c, gpu);
        if (!(h->gpus & UINT32_C(1) << gpu))
                fair_detach(h, gpu);
}

static void drop_accounts(struct sched *s, struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu)
                drop_account(s, c, gpu);
}

/* Ends the record of a client whose accounts are gone or taken over. */
static void forget(struct sched *s, struct client *c)
{
        holder_remove(s, c);
        s->transitions.state[c->state][SCHED_STATES]++;
        c->used = false;
        s->free = MIN(s->free, (unsigned)(c - s->client));
}

/* Deadlines of the earlier records of a returning process. */
struct debts {
        bool had_lease;
        uint64_t revoke_due_ns, due_ns; /* 0: none */
};

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
        return !a_ns ? b_ns : !b_ns ? a_ns : MIN(a_ns, b_ns);
}

/* Makes earlier records of a returning process give up their charge on this GPU. A new connection
 * renews no grace. */
static void take_over(struct sched *s, struct client *c, unsigned gpu, struct debts *d)
{
        sched_client *link = &c->previous;
        struct client *p;

        while (*link && (p = client_find(s, *link))) {
                if (p->lease)
                        d->revoke_due_ns = earlier(d->revoke_due_ns, p->revoke_due_ns);
                if (p->accounts[gpu]->attached) {
                        d->due_ns = earlier(d->due_ns, p->accounts[gpu]->due_ns);
                        drop_account(s, p, gpu);
                }
                if (p->gpus) {
                        link = &p->previous;
                } else {
                        *link = p->previous;
                        forget(s, p);
                }
        }
}

static bool evicts(const struct client *c)
{
        return ANY_GPU_OF(c, gpu, c->accounts[gpu]->evicting);
}

/* A client that returns running has its gate open already; the grant only numbers its lease. If it
 * had one before its connection was lost, its turn continues. Otherwise its turn is over at once,
 * or a client could jump the queue, or get a new turn, by connecting anew. */
static void come_back_running(struct sched *s, struct client *c, const struct debts *d)
{
        struct holder *h = c->holder;
        const uint64_t granted_ns = h->granted_ns, turn_end_ns = h->turn_end_ns;

        if (!h->lease) {
                holder_begin(s, h);
                h->granted_ns = d->had_lease ? granted_ns : s->now_ns;
                h->turn_end_ns = d->had_lease ? turn_end_ns : s->now_ns;
        }
        holder_grant(s, c);
        c->revoke_due_ns = d->revoke_due_ns;
        h->revoke_due_ns = earlier(h->revoke_due_ns, d->revoke_due_ns);
}

/* True if a lost client of h has had a lease. */
static bool lost_a_lease(const struct holder *h)
{
        const struct client *c;

        FOR_EACH_CLIENT_OF (h, c) {
                if (c->lost && c->lease)
                        return true;
        }
        return false;
}

int sched_client_attach(struct sched *s, sched_client id, unsigned gpu,
                        const struct sched_attach *at, uint64_t now_ns, struct sched_actions *out)
{
        struct client *c = client_find(s, id);
        struct debts d = {0};
        struct account *a;

        touch_begin(s, now_ns, client_gpus(c) | one_gpu(gpu));
        if (!c || c->lost)
                return -ESTALE;
        if (gpu >= s->gpus || !s->gpu[gpu].present || at->usage.backed > at->usage.allocated)
                return -EINVAL;
        if (c->accounts[gpu]->attached)
                return -EEXIST;
        d.had_lease = lost_a_lease(c->holder);
        take_over(s, c, gpu, &d);
        ledger_attach(s, c, gpu, &at->usage);
        a = c->accounts[gpu];
        a->former_due_ns = d.due_ns;
        c->detached |= at->detached;
        a->limit_dirty = true;
        a->spare = at->spare;
        actions_mark(s, c);
        if (at->unevictable_requested > account_own_unevictable(a)) {
                request_unevictable_of(s, c, a, at->unevictable_requested, false, at->sequence);
                a->silent = a->usage.allocated == 0;
        }
        if (at->running && !c->lease && !evicts(c)) {
                come_back_running(s, c, &d);
                c->idle = at->idle;
                holder_update(s, c->holder);
        } else if (at->run || (at->running && !c->lease)) {
                a->run = true;
                a->need = a->usage.allocated;
        }
        holder_update_waiting(s, c->holder);
        touch_end(s, out);
        return 0;
}

int sched_client_usage(struct sched *s, sched_client id, unsigned gpu, const struct sched_usage *u,
                       uint32_t limit_sequence, unsigned flags, uint64_t now_ns,
                       struct sched_actions *out)
{
        struct client *c;
        struct account *a;
        int r = touch_account(s, id, gpu, now_ns, &c, &a);

        if (r < 0)
                return r;
        if (u->backed > u->allocated)
                return -EINVAL;
        ledger_set_usage(s, &s->gpu[gpu], c, a, u,
                         (limit_sequence == a->sequence && !a->limit_dirty) ||
                                 PLANTED(STALE_USAGE));
        late_answer(c, a, limit_sequence);
        a->need = MIN(a->need, a->usage.allocated); /* a waiting client can free memory */
        c->poisoned = flags & SCHED_POISONED;
        holder_update_waiting(s, c->holder);
        touch_end(s, out);
        return 0;
}

void sched_client_unevictable(struct sched *s, sched_client id, unsigned gpu,
                              uint64_t unevictable_bytes, uint64_t now_ns,
                              struct sched_actions *out)
{
        struct client *c = client_find(s, id);

        touch_begin(s, now_ns, client_gpus(c));
        if (c && find_account(c, gpu))
                ledger_set_unevictable_measured(s, c, gpu, unevictable_bytes);
        touch_end(s, out);
}

static void request_commit_of(struct sched *s, struct client *c, unsigned gpu, uint64_t commit,
                              uint32_t sequence)
{
        struct account *a = c->accounts[gpu];

        a->commit_requested = s->gpu[gpu].commit_requested = true;
        a->commit_request = MIN(commit, BYTES_MAX);
        a->commit_of = sequence;
}

int sched_client_request(struct sched *s, sched_client id, unsigned gpu,
                         const struct sched_request *w, uint64_t now_ns, struct sched_actions *out)
{
        struct client *c;
        struct account *a;
        int r = touch_account(s, id, gpu, now_ns, &c, &a);

        if (r < 0)
                return r;
        if (a->silent && !a->unevictable_requested) {
                a->silent =
                        false; /* c stays attached although its unevictable bytes were refused */
                actions_mark(s, c);
        }
        if (w->commit)
                request_commit_of(s, c, gpu, w->commit, w->sequence);
        if (w->spare || (w->spare_requested && w->unevictable &&
                         w->unevictable <= account_own_unevictable(a))) {
                a->spare = true;
        } else if (!w->spare_requested) { /* a grant of requested bytes may cross this message */
                a->spare = a->spare_dirty = false;
                a->spare_asked_ns = 0;
        }
        if (w->unevictable && a->unevictable_requested &&
            w->unevictable <= account_own_unevictable(a))
                unevictable_done(c, &a->unevictable_requested);
        if (w->unevictable > account_own_unevictable(a)) {
                request_unevictable_of(s, c, a, w->unevictable, w->spare_requested, w->sequence);
        } else if (w->unevictable && w->unevictable != a->unevictable_allowed) {
                /* The request is for fewer bytes, or for bytes that are charged already because
                 * they were measured or reported before the request. */
                ledger_set_unevictable_allowed(s, c, gpu, w->unevictable);
        } else if (w->unevictable) {
                a->limit_dirty = true;
                actions_mark(s, c);
        }
        a->run = w->run;
        a->need = w->need;
        if (PLANTED(ASKING_IS_WORK))
                c->holder->last_active_ns = s->now_ns;
        holder_update_waiting(s, c->holder);
        touch_end(s, out);
        return 0;
}

int sched_client_export(struct sched *s, sched_client id, unsigned gpu,
                        const struct sched_export *p, uint64_t now_ns, struct sched_actions *out)
{
        struct client *c;
        struct account *a;
        int r = touch_account(s, id, gpu, now_ns, &c, &a);

        if (r < 0)
                return r;
        if (p->bytes > a->exported && !p->held) {
                a->export_requested = true;
                a->export_request = MIN(p->bytes, s->gpu[gpu].total);
                a->export_of = p->sequence;
                a->export_since_ns = s->now_ns;
                if (!c->unevictable_ticket)
                        c->unevictable_ticket = ++s->tickets;
        } else {
                if (a->export_requested)
                        unevictable_done(c, &a->export_requested);
                ledger_set_exported(s, c, gpu, MIN(p->bytes, MAX(a->usage.backed, a->exported)));
        }
        touch_end(s, out);
        return 0;
}

int sched_client_commit(struct sched *s, sched_client id, unsigned gpu, uint64_t commit,
                        uint32_t sequence, uint64_t now_ns, struct sched_actions *out)
{
        struct client *c;
        struct account *a;
        int r = touch_account(s, id, gpu, now_ns, &c, &a);

        if (r < 0)
                return r;
        request_commit_of(s, c, gpu, commit, sequence);
        touch_end(s, out);
        return 0;
}

int sched_client_idle(struct sched *s, sched_client id, uint64_t lease, bool idle, uint64_t now_ns,
                      struct sched_actions *out)
{
        struct client *c = touch_client(s, id, now_ns);

        if (!c)
                return -ESTALE;
        if (c->lease && c->lease == lease) {
                c->idle = idle;
                holder_update(s, c->holder);
        }
        touch_end(s, out);
        return 0;
}

int sched_client_drained(struct sched *s, sched_client id, uint64_t lease, uint64_t now_ns,
                         struct sched_actions *out)
{
        struct client *c = touch_client(s, id, now_ns);

        if (!c)
                return -ESTALE;
        if (c->lease && (c->lease == lease || PLANTED(STALE_LEASE))) {
                struct holder *h = c->holder;
                const bool asked = c->draining || c->revoke_due_ns; /* or its drain has failed */

                c->lease = 0;
                c->draining = c->idle = c->stands = false;
                c->handoffs += asked;
                holder_update(s, h);
                h->yielding |= asked;
                h->goes_on = !asked && !h->lease && holder_is_waited_for(s, h);
                s->gpu[h->revoke_gpu].handoffs += asked && !h->lease;
        }
        touch_end(s, out);
        return 0;
}

int sched_client_drain_failed(struct sched *s, sched_client id, uint64_t lease, uint64_t after_ns,
                              uint64_t now_ns, struct sched_actions *out)
{
        struct client *c = touch_client(s, id, now_ns);

        (void)after_ns; /* the scheduler knows the patience that it gave the client */
        if (!c)
                return -ESTALE;
        if (c->lease && c->lease == lease && c->draining) {
                c->draining = false;
                c->holder->failed = true;
                if (PLANTED(FAILURE_IS_ANSWER))
                        c->revoke_due_ns = 0;
                holder_update(s, c->holder);
        }
        touch_end(s, out);
        return 0;
}

/* Drains that failed because the client was frozen predict nothing. */
static void forgive(struct client *c)
{
        c->holder->drain_failures = 0;
        c->holder->retry_ns = c->holder->revoke_due_ns = c->revoke_due_ns = 0;
}

int sched_client_stands(struct sched *s, sched_client id, bool stands, uint64_t now_ns,
                        struct sched_actions *out)
{
        struct client *c = touch_client(s, id, now_ns);

        if (!c)
                return -ESTALE;
        if (c->stands && !stands)
                forgive(c);
        c->stands = stands && c->lease;
        holder_update(s, c->holder);
        touch_end(s, out);
        return 0;
}

int sched_client_evict(struct sched *s, sched_client id, uint64_t now_ns, struct sched_actions *out)
{
        struct client *c = touch_client(s, id, now_ns);
        int r;

        if (!c)
                return -ESTALE;
        r = evict_objection(s, c->holder);
        if (r == 0)
                c->holder->leaves = true;
        touch_end(s, out);
        return r;
}

int sched_client_short(struct sched *s, sched_client id, unsigned gpu, uint64_t bytes,
                       uint64_t now_ns, struct sched_actions *out)
{
        struct client *c;
        struct account *a;
        struct gpu *g;
        int r = touch_account(s, id, gpu, now_ns, &c, &a);

        if (r < 0)
                return r;
        g = &s->gpu[gpu];
        g->shortage = MIN(g->total, add_sat(g->shortage, bytes));
        /* The client first gives back the bytes that it could not back. With a lease it now waits
         * for them. */
        if (a->limit > a->usage.backed)
                ledger_set_limit(s, c, gpu, a->usage.backed);
        if (c->lease) {
                a->run = true;
                a->need = MAX(a->need, a->usage.allocated);
        }
        holder_update_waiting(s, c->holder);
        touch_end(s, out);
        return 0;
}

void sched_client_lost(struct sched *s, sched_client id, uint64_t now_ns, struct sched_actions *out)
{
        struct client *c = client_find(s, id);
        unsigned gpu;

        touch_begin(s, now_ns, client_gpus(c));
        if (c) {
                if (PLANTED(LOST_NOT_CHARGED))
                        drop_accounts(s, c);
                c->lost = true;
                c->draining = c->overdue = c->stands = c->restoring = false;
                c->unevictable_ticket = 0;
                FOR_EACH_GPU_OF (c, gpu) {
                        struct account *a = c->accounts[gpu];

                        a->run = a->unevictable_requested = a->export_requested =
                                a->commit_requested = a->top_up = false;
                        a->reserve = 0;
                }
                holder_update(s, c->holder);
                holder_update_waiting(s, c->holder);
                client_refresh(s, c);
        }
        touch_end(s, out);
}

void sched_client_gone(struct sched *s, sched_client id, uint64_t now_ns, struct sched_actions *out)
{
        struct client *c;

        touch_begin(s, now_ns, client_gpus(client_find(s, id)));
        for (; (c = client_find(s, id)); id = c->previous) {
                drop_accounts(s, c);
                forget(s, c);
        }
        touch_end(s, out);
}

/* ---- time and settings ---- */

uint64_t sched_next_ns(const struct sched *s)
{
        return s->next_ns;
}

void sched_tick(struct sched *s, uint64_t now_ns, struct sched_actions *out)
{
        touch_begin(s, now_ns, 0);
        touch_end(s, out);
}

static void put_off(uint64_t *at_ns, uint64_t ns, uint64_t most_ns)
{
        if (*at_ns)
                *at_ns = MIN(add_sat(*at_ns, ns), most_ns);
}

void sched_skip(struct sched *s, uint64_t ns, uint64_t now_ns)
{
        put_off(&s->restart_until_ns, ns, UINT64_MAX);
        for (unsigned i = 0; i < s->clients; i++) {
                struct client *c = &s->client[i];
                unsigned gpu;

                if (!c->used)
                        continue;
                put_off(&c->revoke_due_ns, ns, UINT64_MAX);
                FOR_EACH_GPU_OF (c, gpu) {
                        put_off(&c->accounts[gpu]->due_ns, ns, UINT64_MAX);
                        put_off(&c->accounts[gpu]->unevictable_since_ns, ns, now_ns);
                        put_off(&c->accounts[gpu]->export_since_ns, ns, now_ns);
                        put_off(&c->accounts[gpu]->spare_asked_ns, ns, now_ns);
                }
        }
        for (unsigned i = 0; i < s->config.clients_max; i++)
                put_off(&s->holder[i].give_back_ns, ns, UINT64_MAX);
}

void sched_pump(struct sched *s, uint64_t now_ns, struct sched_actions *out)
{
        touch_begin(s, now_ns, 0);
        actions_emit(s, out);
}
