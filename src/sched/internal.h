/* internal.h: the scheduler's state, shared by its files and by the tests' planted bugs; no other
 * file includes it.
 *
 * Each file owns something: ledger.c every byte count (the sums of a GPU change nowhere else),
 * policy.c the order of service and the victims, fair.c the sharing of turns between users, late.c
 * who is overdue, settle.c the consequences of an event, sched.c the events, actions.c the
 * messages. */
#pragma once

#include "base/clock.h"
#include "base/macros.h"
#include "sched/planted.h"
#include "sched/sched.h"

/* Figures of clients are clamped to their card's total, and totals to this, so that no sum of
 * 64-bit counts over all clients of all GPUs can wrap. */
#define BYTES_MAX (UINT64_C(1) << 50)

#define CONTESTED_HOLD_NS     (2 * NSEC_PER_SEC) /* from the last wait to CONTESTED(0) */
#define UNPREEMPTIBLE_NS      (10 * NSEC_PER_SEC) /* not asked for so long after DRAIN_FAILURES_MAX */
#define DRAIN_FAILURES_MAX    3
#define PATIENCE_DOUBLINGS    5U /* patience grows to 32 times the configured one */
#define RATE_GUESS            (UINT64_C(20) * 1000 * 1000 * 1000) /* bytes/s, until measured */
#define RATE_MIN              (UINT64_C(100) * 1000 * 1000)
#define RATE_MAX              (UINT64_C(1000) * 1000 * 1000 * 1000)
#define RATE_SAMPLE_MIN_BYTES (16 * MIB) /* smaller moves measure the latency, not the bus */

/* The high-water mark by which a client is packed halves with so much time of running. */
#define MARK_HALF_LIFE_NS (10 * NSEC_PER_SEC)

struct client;

/* One client on one GPU. */
struct account {
        bool attached;
        bool run;      /* the last REQUEST has RUN and is not yet met */
        bool evicting; /* backed is above the limit, or was until the next acknowledgement */
        bool unsure; /* it was sent a lower limit: only its answer can say what it backs by then */
        bool limit_dirty; /* a LIMIT is to be sent */
        bool silent;      /* no LIMIT yet: the attach waits for its unevictable bytes */
        bool top_up;      /* raise the limit to the commit if no other client wants the bytes */
        bool commit_requested; /* deferred REQUEST.commit: the ledger is incomplete after a restart
                                */
        bool unevictable_requested; /* waits for unevictable bytes, ... */
        bool spare_requested;       /* ... which it can do without */
        bool spare;                 /* it holds such bytes */
        bool spare_dirty;           /* SPARE is to be sent */
        bool export_requested;      /* waits for bytes to be exported */
        bool export_dirty;          /* EXPORTED is to be sent */
        bool refuse_commit, refuse_unevictable, refuse_export; /* refusals to be sent */

        uint32_t sequence; /* of the last LIMIT sent */
        uint32_t commit_of, unevictable_of, export_of;
        uint32_t refuse_commit_of, refuse_unevictable_of, refuse_export_of;

        struct sched_usage usage;
        uint64_t commit, commit_held; /* sent; the highest one not yet given back */
        uint64_t limit, held;         /* the same for LIMIT.backed */
        uint64_t unevictable_allowed, unevictable_measured;
        uint64_t need;
        uint64_t commit_request, unevictable_request;
        uint64_t unevictable_since_ns;
        uint64_t spare_asked_ns; /* 0: it was not asked for bytes that it can do without */
        uint64_t exported;       /* of its allocated bytes: they count as unevictable, and the limit
                                    covers them */
        uint64_t export_request, export_since_ns;

        uint64_t mark, mark_run_ns; /* the most that it held, when it had run that long */
        uint64_t reserve;           /* waiting: its limit must reach this before its turn */

        uint64_t due_ns; /* overdue unless it makes progress before; 0: it owes nothing */
        uint64_t evict_from, evict_since_ns;
};

/* The clients of one uid. */
struct user {
        bool known;
        uint32_t uid;
        unsigned clients;
        uint64_t finish_ns; /* the virtual time at which its booked turns are over */
        uint64_t last_ns;   /* its last tag: a user's own processes stay in ticket order */
};

struct client {
        bool used;
        uint32_t generation;
        struct user *user;
        int priority;
        uint32_t gpus;         /* bit per attached GPU */
        sched_client previous; /* an earlier connection of the same process */

        bool lost, detached, poisoned, overdue;
        bool answers; /* has acknowledged a LIMIT of this connection */
        bool idle;    /* holds a lease, nothing in flight */
        bool stands; /* it holds the lease while its program stands still, and cannot give way until
                        it says otherwise */
        bool draining; /* REVOKE sent, not answered */
        bool yielding; /* it has just drained for another client: evict it without waiting for the
                          idle time */
        bool waiting;  /* in the queue to run, or to grow with the lease in hand */
        bool restoring;
        bool stuck; /* waits for bytes that no client can be made to give */

        uint64_t lease, granted_ns; /* granted_ns: when its turn began */
        uint64_t last_active_ns;
        uint64_t ticket, unevictable_ticket; /* unevictable_ticket 0: no unevictable wait */
        uint64_t tag_ns,
                booked_ns;    /* fair.c: its place among users, and the turn that it has booked */
        uint64_t turn_run_ns; /* run_ns when its turn began */

        uint64_t stalled_since_ns,
                stalled_ns;  /* the time of its turn in which it waited for growth */
        uint64_t overrun_ns; /* how long its turns lasted past their end */
        uint64_t cut_ns;     /* by how much this turn is shorter because of it */

        uint64_t revoked_ns; /* first REVOKE of this turn; 0: none */
        uint64_t revoke_due_ns;
        unsigned revoke_gpu, drain_failures;
        uint64_t retry_ns, unpreemptible_until_ns;
        uint64_t give_back_ns; /* foreign processes leave it no room: when it gives back what it
                                  has; 0: they leave room */

        enum sched_state state;
        unsigned flags; /* enum sched_flags, as of the last event */
        uint64_t since_ns;
        /* What the time since clock_ns is counted as. Overdue time is part of a turn. */
        bool counted_run, counted_overdue, counted_wait;
        uint64_t clock_ns, run_ns, overdue_ns, waited_ns, handoffs;

        /* to be told */
        bool dirty, send_grant, send_revoke, send_overdue;
        enum sched_bound bound, bound_sent;
        uint64_t revoke_patience_ns;

        struct account accounts[SCHED_GPUS_MAX];
};

struct gpu {
        bool present;
        uint64_t total, foreign;
        uint64_t shortage; /* reported in SHORT since the foreign use was measured */
        uint64_t yield;    /* bytes that idle clients still have to give up for foreign processes */

        /* Sums over the accounts; ledger.c alone writes them. */
        uint64_t charged, unevictable, committed;

        /* Results of the last settle. */
        uint64_t immovable;    /* movable bytes of clients that cannot be asked now */
        uint64_t over;         /* charge above the usable bytes, before anything was granted */
        uint64_t promise_over; /* commits above what could be made resident, likewise */
        uint64_t allocated;    /* by all attached clients, wherever the bytes lie */
        struct client *head;   /* the first client that lacks bytes here; NULL: none */
        bool head_unevictable;
        uint64_t head_missing;     /* it lacks unevictable bytes; otherwise bytes up to its limit */
        unsigned leases;           /* held by attached clients that answer */
        bool claimed;              /* exclusive: a client waits to run here */
        struct client *lease_head; /* exclusive: the first client that lacks only the lease */
        bool contested;            /* a client waits, or did a moment ago */
        bool oversubscribed;       /* not all allocated memory fits, or did not a moment ago */
        uint64_t contested_until_ns, oversubscribed_until_ns; /* 0: it is so still */
        int top_priority;  /* of the clients attached to this GPU */
        bool promise_trim; /* commits may exceed what is left of the card */

        uint64_t rate;         /* bytes/s of evictions */
        uint64_t handoff_ns;   /* mean cost of the last hand-offs; 0: none yet */
        uint64_t revoked_ns;   /* when the hand-off under way began; 0: none */
        sched_client for_whom; /* its beneficiary */
        uint64_t handoffs;
};

/* A place in the queue. A client can have two: one for unevictable bytes, one for the right to run.
 */
struct entry {
        struct client *c;
        int priority;
        unsigned kind;   /* smaller first within a priority: enum wait_kind */
        uint64_t tag_ns; /* WAIT_RUN: among users */
        uint64_t ticket;
};

enum wait_kind {
        WAIT_UNEVICTABLE, /* small; a process that cannot create its context cannot even queue */
        WAIT_GROWTH,      /* holds a lease within its quantum, which would otherwise be wasted */
        WAIT_RUN,
};

struct sched {
        struct sched_config config;
        uint64_t now_ns, next_ns;
        bool started; /* the first event has come */
        bool again;   /* a client served in this pass lacks less now than at that time */
        uint64_t restart_until_ns;
        uint64_t leases, tickets;
        uint64_t virtual_ns; /* fair.c */
        uint64_t random;
        struct user *user;   /* clients_max of them */
        uint64_t host_taken; /* host memory used for other purposes */
        uint64_t host_over;  /* commits above the host's room, before anything was granted */
        unsigned gpus;       /* one past the highest present */
        struct gpu gpu[SCHED_GPUS_MAX];
        unsigned clients; /* one past the highest slot ever used */
        struct client *client;
        struct entry *order; /* 2 * clients_max */
        unsigned n_order;
        uint32_t *dirty; /* clients that need a message, by slot */
        unsigned n_dirty, first_dirty;
        struct sched_transitions transitions;
};

/* Every GPU that client c uses, in v, an unsigned of the caller's. */
#define FOR_EACH_GPU_OF(c, v)                                                                \
        for (uint32_t _left = (c)->gpus; _left && ((v) = (unsigned)__builtin_ctz(_left), 1); \
             _left &= _left - 1)

static inline sched_client client_id(const struct sched *s, const struct client *c)
{
        return (uint64_t)c->generation << 32 | (uint64_t)(c - s->client);
}

static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
        return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t clamp_u64(uint64_t v, uint64_t low, uint64_t high)
{
        return v < low ? low : v > high ? high : v;
}

static inline void wake_at(struct sched *s, uint64_t ns)
{
        s->next_ns = MIN(s->next_ns, ns);
}

static inline bool client_unpreemptible(const struct sched *s, const struct client *c)
{
        return c->stands || s->now_ns < c->unpreemptible_until_ns;
}

/* Nothing can be had from it now: its movable bytes count as unevictable. */
static inline bool client_immovable(const struct sched *s, const struct client *c)
{
        return c->lost || c->overdue || client_unpreemptible(s, c);
}

/* Exclusive mode does not wait for a holder that cannot be asked for its lease, or that keeps the
 * lease while it stands still. */
static inline bool client_bars(const struct client *c)
{
        return c->lease && !c->lost && !c->overdue && !c->stands;
}

static inline bool client_outranks(const struct client *a, const struct client *b)
{
        return a->priority > b->priority;
}

static inline unsigned client_flags(const struct sched *s, const struct client *c)
{
        return (c->overdue ? SCHED_OVERDUE : 0) | (c->lost ? SCHED_LOST : 0) |
               (c->detached ? SCHED_DETACHED : 0) | (c->poisoned ? SCHED_POISONED : 0) |
               (client_unpreemptible(s, c) ? SCHED_UNPREEMPTIBLE : 0);
}

/* ---- ledger.c ---- */
uint64_t gpu_capacity(const struct gpu *g);
uint64_t gpu_extent(const struct gpu *g);
uint64_t gpu_headroom(const struct gpu *g);
uint64_t gpu_usable(const struct gpu *g); /* capacity less headroom */
uint64_t gpu_unevictable_budget(const struct sched *s, const struct gpu *g);
uint64_t gpu_visible(const struct sched *s, const struct gpu *g);
uint64_t account_commit(const struct account *a);          /* that may have to lie on the host */
uint64_t account_held(const struct account *a);            /* movable and exported */
uint64_t account_movable(const struct account *a);         /* charge less unevictable */
uint64_t account_own_unevictable(const struct account *a); /* without what is exported */
uint64_t account_unevictable(const struct account *a);
uint64_t account_charge(const struct account *a);
uint64_t account_need(const struct client *c, const struct account *a);
/* As far as is certain. */
bool account_resident(const struct client *c, const struct account *a);
uint64_t account_missing(const struct client *c, const struct account *a);
/* What c is packed by: the most that it held, halved with each MARK_HALF_LIFE_NS of running. */
uint64_t account_mark(const struct sched *s, const struct client *c, const struct account *a);
uint64_t client_run_ns(const struct sched *s, const struct client *c);
uint64_t ledger_free(const struct gpu *g);
/* How far a's limit may rise now: free bytes, and those that it has not given back yet. */
uint64_t ledger_available(const struct gpu *g, const struct account *a);
uint64_t ledger_host_spill(const struct sched *s, const struct gpu *g, uint64_t committed,
                           uint64_t unevictable);
/* The sum over all GPUs as they are now, and its bound. */
uint64_t ledger_host_spilled(const struct sched *s);
uint64_t ledger_host_budget(const struct sched *s);
bool ledger_commit_fits(const struct sched *s, unsigned gpu, const struct account *a,
                        uint64_t commit);

void ledger_attach(struct gpu *g, struct account *a, const struct sched_usage *u);
void ledger_detach(struct gpu *g, struct account *a);
void ledger_set_usage(struct sched *s, struct gpu *g, struct client *c, struct account *a,
                      const struct sched_usage *u, bool acknowledged);
void ledger_set_commit(struct sched *s, struct client *c, unsigned gpu, uint64_t commit);
void ledger_set_limit(struct sched *s, struct client *c, unsigned gpu, uint64_t limit);
void ledger_set_exported(struct sched *s, struct client *c, unsigned gpu, uint64_t exported);
void ledger_set_unevictable_allowed(struct sched *s, struct client *c, unsigned gpu,
                                    uint64_t unevictable);
void ledger_set_unevictable_measured(struct sched *s, struct client *c, unsigned gpu,
                                     uint64_t unevictable);

/* ---- policy.c ---- */
uint64_t policy_quantum(const struct sched *s, const struct gpu *g);
uint64_t policy_client_quantum(const struct sched *s, const struct client *c);
void policy_sort(struct sched *s);
void policy_reclaim(struct sched *s, unsigned gpu);
/* Idle clients give up so many bytes of this GPU, less those on their way back already. */
void policy_yield(struct sched *s, unsigned gpu, uint64_t bytes);
void policy_reclaim_lease(struct sched *s, unsigned gpu);
void policy_revoke(struct sched *s, struct client *v, unsigned gpu, const struct client *for_whom);

/* When its turn ends; of a client that waits for growth, if the growth came now. */
uint64_t policy_turn_end(const struct sched *s, const struct client *c);
void policy_turn_begins(struct sched *s, struct client *c);
void policy_turn_is_over(struct sched *s, struct client *c);

/* ---- fair.c ---- */
void fair_join(struct sched *s, struct client *c, uint32_t uid);
void fair_leave(struct client *c);
void fair_book(struct sched *s, struct client *c);
void fair_stay(struct sched *s, struct client *c);
void fair_begin(struct sched *s, struct client *c);
void fair_settle(struct client *c, uint64_t used_ns);

/* ---- late.c ---- */
void late_check(struct sched *s);
void late_set_deadlines(struct sched *s, struct client *c);

/* ---- settle.c ---- */
void settle(struct sched *s);
/* c no longer waits for this: with the last such wait it leaves the queue for unevictable bytes. */
void settle_unevictable_done(struct client *c, bool *wanted);
void settle_grant(struct sched *s, struct client *c);
/* Would there be room for c if every client that can be asked gave way (and there were no foreign
 * processes)? */
bool settle_fits(const struct sched *s, const struct client *c, bool without_foreign);
void client_update_waiting(struct sched *s, struct client *c);
void client_new_ticket(struct sched *s, struct client *c);
void account_answer_commit(struct sched *s, struct client *c, unsigned gpu);

/* ---- foreign.c ---- */
/* c waits, and without foreign processes there would be room for it. */
bool foreign_blocks(const struct sched *s, const struct client *c);
void foreign_stuck(struct sched *s, struct client *c);

/* ---- actions.c ---- */
void actions_mark(struct sched *s, struct client *c);
void actions_emit(struct sched *s, struct sched_actions *out);
