/* ledger.c: owns every byte count: capacity, charge, commits, limits, host room. Must never decide
 * who gets bytes, and never let a sum wrap: clients may send hostile figures. */
#include <string.h>

#include "sched/internal.h"

#define HEADROOM_MAX     (512 * MIB)
#define HEADROOM_PERCENT 3
#define TRANSIT_MAX      (128 * MIB) /* the largest extent */
#define TRANSIT_MIN      (2 * MIB)   /* the driver's granularity */

uint64_t gpu_capacity(const struct gpu *g)
{
        return sub_sat(g->total, add_sat(g->foreign, g->shortage));
}

uint64_t gpu_move_ns(const struct gpu *g, uint64_t bytes)
{
        const uint64_t gib_ns = g->gib_ns.n ? g->gib_ns.median_ns : g->gib_guess_ns;

        return (uint64_t)((double)bytes / GIB * (double)gib_ns);
}

/* Returns the unit in which memory moves: the library's extents are no larger
 * (src/preload/heap/heap.h). */
uint64_t gpu_extent(const struct gpu *g)
{
        return clamp_u64(g->total / 16, TRANSIT_MIN, TRANSIT_MAX);
}

/* The headroom is a share of the total, so that it does not change with foreign use. */
uint64_t gpu_headroom(const struct gpu *g)
{
        return MIN(HEADROOM_MAX, g->total / 100 * HEADROOM_PERCENT);
}

uint64_t gpu_usable(const struct gpu *g)
{
        return sub_sat(gpu_capacity(g), gpu_headroom(g)) + PLANTED(HEADROOM_OFF_BY_ONE);
}

uint64_t gpu_unevictable_budget(const struct sched *s, const struct gpu *g)
{
        return g->total / 1000 * s->config.unevictable_permille;
}

/* The visible size is a share of the total, not of the capacity. A program reads the size of its
 * card once and plans with it, so the size must not change with a desktop's windows. Foreign use
 * counts when a program asks for room to allocate. */
uint64_t gpu_visible(const struct sched *s, const struct gpu *g)
{
        return sub_sat(g->total, gpu_headroom(g) + gpu_unevictable_budget(s, g));
}

bool account_resident(const struct client *c, const struct account *a)
{
        /* A lost client needs nothing, and what it has not answered must not stop its group. */
        return c->lost || (!a->evicting && !a->unsure &&
                           (PLANTED(GRANT_TOO_EARLY) || a->usage.backed >= account_need(c, a)));
}

uint64_t account_missing(const struct client *c, const struct account *a)
{
        /* The commit may have been lowered since the reserve was set. */
        return sub_sat(MAX(account_need(c, a), MIN(a->reserve, a->commit)), a->limit);
}

static uint64_t client_run_ns(const struct sched *s, const struct client *c)
{
        return c->run_ns + (c->counted_run ? s->now_ns - c->clock_ns : 0);
}

bool ledger_lacks(const struct holder *h, unsigned gpu)
{
        const struct client *c;

        FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                if (account_missing(c, c->accounts[gpu]))
                        return true;
        }
        return false;
}

/* The mark halves with each half-life, and sinks linearly within one. */
uint64_t account_mark(const struct sched *s, const struct client *c, const struct account *a)
{
        uint64_t ns = client_run_ns(s, c) - a->mark_run_ns, halves = ns / MARK_HALF_LIFE_NS;
        uint64_t mark = halves < 64 ? a->mark >> halves : 0;

        mark -= mark / 2000 * (ns % MARK_HALF_LIFE_NS / (MARK_HALF_LIFE_NS / 1000));
        return MAX(mark, a->usage.allocated);
}

/* Memory that a running client frees does not lower its mark, because its next peak will allocate
 * that memory again. */
static void update_mark(const struct sched *s, const struct client *c, struct account *a,
                        uint64_t allocated_before)
{
        uint64_t freed = c->lease ? 0 : sub_sat(allocated_before, a->usage.allocated);
        uint64_t mark = account_mark(s, c, a);

        if (!freed && a->usage.allocated < mark)
                return;
        a->mark = MAX(sub_sat(mark, freed), a->usage.allocated);
        a->mark_run_ns = client_run_ns(s, c);
}

uint64_t ledger_free(const struct gpu *g)
{
        return sub_sat(gpu_usable(g), g->charged);
}

static uint64_t available(const struct gpu *g, const struct account *a, uint64_t usable)
{
        /* Bytes that the client was asked for and has not yet given back are in its charge already.
         * Leaving these bytes to the client costs nothing, unless the card is overdrawn. */
        uint64_t own = sub_sat(account_held(a), a->limit);

        return sub_sat(add_sat(usable, own), g->charged);
}

uint64_t ledger_available(const struct gpu *g, const struct account *a)
{
        return available(g, a, gpu_usable(g));
}

/* Returns the most bytes of this GPU that host memory may have to hold at one time: all commits,
 * less the bytes that surely fit the card, plus one extent in transit, because a restore keeps the
 * host copy until it has ended. */
uint64_t ledger_host_spill(const struct sched *s, const struct gpu *g, uint64_t committed,
                           uint64_t unevictable)
{
        uint64_t room = sub_sat(gpu_usable(g), MAX(unevictable, gpu_unevictable_budget(s, g)));

        if (committed <= room)
                return 0; /* no byte will ever have to move */
        return sub_sat(add_sat(committed, gpu_extent(g)), room);
}

uint64_t ledger_host_spilled(const struct sched *s, unsigned beside)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < s->gpus; i++)
                if (i != beside && s->gpu[i].present)
                        sum += ledger_host_spill(s, &s->gpu[i], s->gpu[i].committed,
                                                 s->gpu[i].unevictable);
        return sum;
}

uint64_t ledger_host_budget(const struct sched *s)
{
        return sub_sat(s->config.host_budget_bytes, s->host_taken);
}

/* Returns the unevictable bytes, plus those that clients wait for: a commit must not take their
 * room. */
static uint64_t unevictable_promised(const struct sched *s, unsigned gpu)
{
        uint64_t sum = s->gpu[gpu].unevictable;
        const struct client *c;

        FOR_EACH_CLIENT_ON (s, gpu, c) {
                const struct account *a = c->accounts[gpu];

                if (a->unevictable_requested)
                        sum += sub_sat(a->unevictable_request, account_own_unevictable(a));
                if (a->export_requested)
                        sum += sub_sat(a->export_request, a->exported);
        }
        return sum;
}

uint64_t ledger_sum(const struct holder *h, unsigned gpu, uint64_t (*of)(const struct account *))
{
        const struct client *c;
        uint64_t sum = 0;

        FOR_EACH_CLIENT_OF_ON (h, gpu, c)
                sum += c->lost ? 0 : of(c->accounts[gpu]);
        return sum;
}

uint64_t ledger_immovable_beside(const struct sched *s, unsigned gpu, const struct holder *h)
{
        const struct client *c;
        uint64_t sum = s->gpu[gpu].immovable;

        FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                if (!c->lost && client_immovable(s, c))
                        sum -= account_movable(c->accounts[gpu]);
        }
        return sum;
}

/* True if the commit fits a card with so many usable bytes. Host memory is not considered. */
static bool fits_card(const struct sched *s, unsigned gpu, const struct client *c, uint64_t commit,
                      uint64_t usable)
{
        const struct gpu *g = &s->gpu[gpu];
        const struct account *a = c->accounts[gpu];
        const uint64_t beside =
                PLANTED(COMMITS_APART)
                        ? 0
                        : ledger_sum(c->holder, gpu, account_commit) - account_commit(a);
        const uint64_t unevictable = unevictable_promised(s, gpu);

        if (add_sat(commit, beside) > gpu_visible(s, g) ||
            beside + sub_sat(commit,
                             MAX(a->exported, a->export_requested ? a->export_request : 0)) >
                    sub_sat(usable, unevictable))
                return false;
        return s->config.mode != SCHED_MODE_OFF ||
               sub_sat(commit, a->limit) <= available(g, a, usable);
}

enum sched_lack ledger_commit_lacks(const struct sched *s, unsigned gpu, const struct client *c,
                                    uint64_t commit)
{
        const struct gpu *g = &s->gpu[gpu];

        if (fits_card(s, gpu, c, commit, gpu_usable(g)))
                return SCHED_LACKS_HOST;
        return fits_card(s, gpu, c, commit, sub_sat(g->total, gpu_headroom(g)))
                       ? SCHED_LACKS_FOREIGN
                       : SCHED_LACKS_CARD;
}

bool ledger_commit_fits(const struct sched *s, unsigned gpu, const struct client *c,
                        uint64_t commit)
{
        const struct gpu *g = &s->gpu[gpu];
        const struct account *a = c->accounts[gpu];
        uint64_t committed, spill;

        if (!fits_card(s, gpu, c, commit, gpu_usable(g)))
                return false;
        if (s->config.mode == SCHED_MODE_OFF)
                return true;
        committed = g->committed - account_commit(a) +
                    sub_sat(MAX(commit, a->commit_held), a->exported);
        spill = ledger_host_spill(s, g, committed, unevictable_promised(s, gpu));
        if (!PLANTED(HOST_ROOM_TWICE))
                spill += spill ? ledger_host_spilled(s, gpu) : 0;
        return spill <= ledger_host_budget(s) || spill == 0;
}

/* Between take_out() and put_in() the sums do not contain the account, so it may be changed. */
static void take_out(struct gpu *g, const struct account *a)
{
        g->charged -= account_charge(a);
        g->unevictable -= account_unevictable(a);
        g->committed -= account_commit(a);
}

static void put_in(struct gpu *g, const struct account *a)
{
        g->charged += account_charge(a);
        g->unevictable += account_unevictable(a);
        g->committed += account_commit(a);
}

static struct sched_usage clamp_usage(const struct gpu *g, const struct sched_usage *u)
{
        struct sched_usage r = *u;

        r.allocated = MIN(r.allocated, g->total);
        r.backed = MIN(r.backed, g->total);
        r.unevictable = MIN(r.unevictable, g->total);
        return r;
}

static void link_gpus(struct sched *s, const struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c->holder, gpu)
                s->gpu[gpu].linked |= c->holder->gpus;
}

/* Call it when a client that may have linked this GPU to others has left. */
static void unlink_gpu(struct sched *s, unsigned gpu)
{
        uint32_t others = s->gpu[gpu].linked | UINT32_C(1) << gpu;

        for (; others; others &= others - 1) {
                unsigned other = (unsigned)__builtin_ctz(others);
                const struct client *c;

                s->gpu[other].linked = 0;
                FOR_EACH_CLIENT_ON (s, other, c)
                        s->gpu[other].linked |= c->holder->gpus;
        }
}

/* Adds c behind the last client of its holder, or at the end. */
static void insert(struct gpu *g, struct client *c)
{
        unsigned at = g->n_clients;

        while (at && g->clients[at - 1]->holder != c->holder)
                at--;
        if (!at)
                at = g->n_clients;
        memmove(&g->clients[at + 1], &g->clients[at],
                (g->n_clients - at) * sizeof(struct client *));
        g->clients[at] = c;
        g->n_clients++;
}

void ledger_attach(struct sched *s, struct client *c, unsigned gpu, const struct sched_usage *u)
{
        struct gpu *g = &s->gpu[gpu];
        struct account *a = s->n_unused ? s->unused[--s->n_unused] : &s->account[s->n_accounts++];

        c->accounts[gpu] = a;
        *a = (struct account){.attached = true, .usage = clamp_usage(g, u)};
        insert(g, c);
        c->gpus |= UINT32_C(1) << gpu;
        c->holder->gpus |= c->gpus;
        link_gpus(s, c);
        a->commit = a->commit_held = a->usage.allocated;
        a->limit = a->held = a->usage.backed;
        a->unevictable_allowed = a->usage.unevictable;
        a->mark = a->usage.allocated;
        put_in(g, a);
}

void ledger_detach(struct sched *s, struct client *c, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct account *a = c->accounts[gpu];
        const struct client *other;
        unsigned at = 0;

        take_out(g, a);
        while (g->clients[at] != c)
                at++;
        g->n_clients--;
        memmove(&g->clients[at], &g->clients[at + 1],
                (g->n_clients - at) * sizeof(struct client *));
        *a = (struct account){0};
        s->unused[s->n_unused++] = a;
        c->accounts[gpu] = &s->nothing;
        c->gpus &= ~(UINT32_C(1) << gpu);
        c->holder->gpus = 0;
        FOR_EACH_CLIENT_OF (c->holder, other)
                c->holder->gpus |= other->gpus;
        unlink_gpu(s, gpu);
}

static uint64_t copied(const struct account *a)
{
        return add_sat(a->usage.moved_out, a->usage.moved_in);
}

void ledger_begin_move(const struct sched *s, struct account *a)
{
        a->copied_before = copied(a);
        a->backed_before = a->usage.backed;
        a->arena_before = a->usage.arena;
        a->moves_since_ns = MAX(s->now_ns, UINT64_C(1));
}

static void begin_evicting(const struct sched *s, struct account *a)
{
        if (!a->evicting)
                ledger_begin_move(s, a);
        a->evicting = true;
}

/* An eviction or a restore has ended. It tells how fast memory moves if enough of it was copied:
 * unchanged memory leaves without a copy, and new memory comes without one. A move for which the
 * client had to pin host memory tells nothing: the next ones will be faster. */
static void end_move(const struct sched *s, struct gpu *g, struct account *a)
{
        const uint64_t moved =
                MAX(a->usage.backed, a->backed_before) - MIN(a->usage.backed, a->backed_before);
        const uint64_t bytes = MIN(sub_sat(copied(a), a->copied_before), moved);
        const uint64_t ns = s->now_ns - a->moves_since_ns;

        if (a->moves_since_ns && a->usage.arena <= a->arena_before &&
            bytes >= MAX(g->total / 32, RATE_SAMPLE_MIN_BYTES))
                recent_note(&g->gib_ns, clamp_u64((uint64_t)((double)ns * GIB / (double)bytes),
                                                  GIB_MIN_NS, GIB_MAX_NS));
        a->moves_since_ns = 0;
}

/* Starts the grace period anew, on all GPUs: a client may move the memory of its GPUs one after the
 * other. */
static void renew_grace(struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu)
                c->accounts[gpu]->due_ns = 0;
}

/* Prolongs the grace period of a client that moved bytes, by the time that a far slower card would
 * need. Moves in the wrong direction shorten it as much. So a client that moves a few bytes now and
 * then becomes overdue. */
static void buy_time(struct sched *s, const struct gpu *g, struct client *c, uint64_t from,
                     uint64_t to)
{
        const uint64_t bytes = MAX(from, to) - MIN(from, to);
        const uint64_t guess_ns = bytes / (GIB / GIB_GUESS_NS);
        const uint64_t ns = SLOWEST_RATE_FACTOR * MAX(gpu_move_ns(g, bytes), guess_ns);
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                uint64_t *due_ns = &c->accounts[gpu]->due_ns;

                if (*due_ns && from <= to)
                        *due_ns = MIN(add_sat(*due_ns, ns), s->now_ns + holder_grace(s, c->holder));
                else if (*due_ns)
                        *due_ns = MAX(sub_sat(*due_ns, ns), UINT64_C(1));
        }
}

void ledger_set_usage(struct sched *s, struct gpu *g, struct client *c, struct account *a,
                      const struct sched_usage *u, bool acknowledged)
{
        uint64_t backed_before = a->usage.backed, allocated_before = a->usage.allocated;
        const bool evicting = backed_before > a->limit;
        uint64_t from, to; /* from <= to: the bytes moved in the right direction */
        bool gave = acknowledged && (a->held > a->limit || a->commit_held > a->commit);

        take_out(g, a);
        a->usage = clamp_usage(g, u);
        a->exported = MIN(a->exported, a->usage.allocated);
        update_mark(s, c, a, allocated_before);
        if (acknowledged) {
                c->answers |= a->sequence > 0;
                a->held = a->limit;
                /* The client keeps memory that it allocated before the lower commit arrived. */
                a->commit_held = clamp_u64(a->usage.allocated, a->commit, a->commit_held);
                if (a->commit < a->commit_held) {
                        a->commit = a->commit_held;
                        a->limit_dirty = true;
                }
                a->unsure = false;
                if (a->evicting && a->usage.backed <= a->limit) {
                        a->evicting = false;
                        end_move(s, g, a);
                }
        }
        if (a->usage.backed > a->limit) {
                if (!c->lease) {
                        begin_evicting(s, a);
                } else if (a->held == a->limit) {
                        /* A running client keeps the bytes that it backed before the lower limit
                         * arrived. */
                        a->limit = a->held = a->usage.backed;
                        a->limit_dirty = a->unsure = true;
                }
        }
        put_in(g, a);
        /* Memory that the program has freed did not move. */
        from = evicting ? a->usage.backed : MIN(backed_before, a->usage.allocated);
        to = evicting ? backed_before : a->usage.backed;
        if (!a->evicting && a->run && !c->lease && a->usage.backed >= account_need(c, a))
                end_move(s, g, a);
        if (gave || (PLANTED(A_BYTE_IS_PROGRESS) && backed_before != a->usage.backed))
                renew_grace(c);
        else if (!c->lease && /* a program that runs may free memory */
                 (from <= to ? !PLANTED(PROGRESS_IGNORED) : acknowledged)) /* else it may not know
                                                                              the limit */
                buy_time(s, g, c, from, to);
        if (a->limit_dirty)
                actions_mark(s, c);
}

static void tell_limit(struct sched *s, struct client *c, struct account *a)
{
        a->limit_dirty = true;
        actions_mark(s, c);
}

void ledger_set_commit(struct sched *s, struct client *c, unsigned gpu, uint64_t commit)
{
        struct account *a = c->accounts[gpu];

        take_out(&s->gpu[gpu], a);
        a->commit = commit;
        a->commit_held = MAX(a->commit_held, commit);
        put_in(&s->gpu[gpu], a);
        tell_limit(s, c, a);
        if (a->limit > commit)
                ledger_set_limit(s, c, gpu, MAX(commit, a->usage.backed));
}

void ledger_set_limit(struct sched *s, struct client *c, unsigned gpu, uint64_t limit)
{
        struct account *a = c->accounts[gpu];

        limit = MAX(limit, a->exported);
        if (limit == a->limit)
                return;
        take_out(&s->gpu[gpu], a);
        /* No caller lowers the limit of a client with a lease below its backed bytes. */
        if (limit < a->usage.backed && !c->lease)
                begin_evicting(s, a);
        /* The deadline stays. Otherwise small changes would keep an inactive client from ever being
         * late. */
        if (limit < a->limit)
                a->unsure = true;
        a->limit = limit;
        a->held = PLANTED(PROMISED_BYTES) ? limit : MAX(a->held, limit);
        put_in(&s->gpu[gpu], a);
        tell_limit(s, c, a);
}

void ledger_set_exported(struct sched *s, struct client *c, unsigned gpu, uint64_t exported)
{
        struct account *a = c->accounts[gpu];

        take_out(&s->gpu[gpu], a);
        a->exported = exported;
        put_in(&s->gpu[gpu], a);
        if (a->limit < exported)
                ledger_set_limit(s, c, gpu, exported);
}

void ledger_set_unevictable_allowed(struct sched *s, struct client *c, unsigned gpu,
                                    uint64_t unevictable)
{
        struct account *a = c->accounts[gpu];

        take_out(&s->gpu[gpu], a);
        a->unevictable_allowed = MIN(unevictable, s->gpu[gpu].total);
        put_in(&s->gpu[gpu], a);
        tell_limit(s, c, a);
}

void ledger_set_unevictable_measured(struct sched *s, struct client *c, unsigned gpu,
                                     uint64_t unevictable)
{
        struct account *a = c->accounts[gpu];

        take_out(&s->gpu[gpu], a);
        a->unevictable_measured = MIN(unevictable, s->gpu[gpu].total);
        put_in(&s->gpu[gpu], a);
}
