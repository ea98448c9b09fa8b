/* internal.h: the scheduler's state, shared by its files and by the tests' planted bugs; no other
 * file includes it.
 *
 * Each file owns something: touch.c which GPUs an event changes, ledger.c every byte count (the
 * totals of a GPU change nowhere else), holder.c the leases, sched_unevictable.c the answers to
 * requests for unevictable bytes, fair.c the division of time, habits.c what is known of each
 * holder, turns.c the length and order of turns, victims.c the queue and the victims,
 * ordered_evictions.c evictions by order, late.c the overdue clients, slices.c the GPU's time
 * slices, preempt.c which clients with leases the GPU runs now, settle.c the consequences of an
 * event, look.c what each client does now, sched.c the events, actions.c the messages. */
#pragma once

#include <limits.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sched/planted.h"
#include "sched/sched.h"

/* Byte counts of clients are clamped to their card's total, and totals to BYTES_MAX, so that no
 * 64-bit sum over all clients of all GPUs can wrap. */
#define BYTES_MAX (UINT64_C(1) << 50)

#define CONTESTED_HOLD_NS     (2 * NSEC_PER_SEC)  /* time from the last wait to CONTESTED(0) */
#define UNPREEMPTIBLE_NS      (10 * NSEC_PER_SEC) /* pause in REVOKE after DRAIN_FAILURES_MAX */
#define DRAIN_FAILURES_MAX    3
#define DOUBLINGS_MAX         5U         /* patience and restore penalties grow at most 32 times */
#define GIB_GUESS_NS          (GIB / 20) /* 20 GB/s, for a card whose bus is not known */
#define GIB_MIN_NS            NSEC_PER_MSEC
#define GIB_MAX_NS            (10 * NSEC_PER_SEC)
#define BURSTS_MIN            3U /* fewer bursts tell nothing: the first one fills the memory */
#define WEIGHT_MAX            100000U /* thousandths */
#define RECENT_MAX            5U
#define STARTS_NS             NSEC_PER_SEC /* a program that has run for less is still starting */
#define GAP_BUCKETS           44U          /* 1 ms to 1 h, in half octaves */
#define DEBT_CHECK_NS         (10 * NSEC_PER_MSEC) /* time between two looks at a debt, at least */
#define GAPS_MAX              256U                 /* at this number all counts are halved */
#define GAPS_MIN              5U                   /* fewer gaps tell nothing */
#define SLOWEST_RATE_FACTOR   10U /* a client may move memory that much more slowly than others */
#define RATE_SAMPLE_MIN_BYTES (16 * MIB) /* smaller moves measure the latency, not the bus */

/* Running time after which the high-water mark of a client has halved. */
#define MARK_HALF_LIFE_NS (10 * NSEC_PER_SEC)

struct client;

/* division.c: the part of a card that is due to a class, a user, a container or a holder, and what
 * it has received. */
struct share {
        bool active;        /* it waits or runs */
        bool raised;        /* its weight alone would give it less than its minimum */
        unsigned weight;    /* thousandths; 0: 1000 */
        unsigned minimum;   /* thousandths of the division's time; 0: none */
        uint64_t parts;     /* while active: its weight, or more if its minimum needs it */
        int64_t service_ns; /* while active: real time above the base; else virtual time */
        struct share *next; /* while active, with a minimum: another such share */
        uint64_t counted;   /* preempt.c: the last count that it was part of */
};

/* division.c: the division of a card's time among shares. */
struct division {
        unsigned active;
        uint64_t parts, weights;    /* sums over the active shares */
        int64_t base_ns;            /* virtual time */
        int64_t sum_ns;             /* sum over the active shares, in real time */
        int64_t uncontested_ns;     /* virtual time in which nobody waited */
        struct share *with_minimum; /* list of the active shares that have a minimum */
        /* preempt.c: the parts of the shares that work, as of that count. */
        uint64_t working_parts, counted;
};

/* limits.c: the time of a card that a class, a user or a holder may still use. */
struct bucket {
        unsigned maximum; /* thousandths of the card's time; 0: no limit */
        bool empty;       /* nothing is left, so it waits until enough is saved for a turn */
        bool windowed;    /* it is filled once in each window, and its holders keep their leases */
        bool used, can;   /* limits_check(): somebody runs or waits; all of them can be preempted */
        int64_t left_ns;
        uint64_t filled_ns, used_ns; /* when it was filled last, and up to when use is counted */
};

/* habits.c: how many gaps had each length, by bucket; the counts are halved now and then. */
struct gaps {
        unsigned n, in[GAP_BUCKETS];
};

/* habits.c: the last measurements of one kind of duration. */
struct recent {
        unsigned n;
        uint64_t ns[RECENT_MAX];
        uint64_t median_ns, longest_ns;
};

/* One client on one GPU. What every pass reads comes first. */
struct account {
        bool attached;
        bool run;      /* the last REQUEST has RUN, and the client still waits for it */
        bool evicting; /* memory must move out, and no acknowledgement says yet that it has */
        bool unsure;   /* a lower limit was sent: its acknowledgement will say how much is backed */
        bool limit_dirty; /* a LIMIT is to be sent */
        bool silent; /* no LIMIT is sent yet: a new client waits for its unevictable bytes first */
        bool top_up; /* raise the limit to the commit if no other client waits for the bytes */
        bool commit_requested;      /* the client waits for the answer to REQUEST.commit */
        bool unevictable_requested; /* the client waits for unevictable bytes */
        bool spare_requested;       /* the client can do without the requested unevictable bytes */
        bool spare;                 /* the client holds unevictable bytes that it can do without */
        bool spare_dirty;           /* SPARE is to be sent */
        bool export_requested;      /* the client waits for bytes to be exported */
        bool export_dirty;          /* EXPORTED is to be sent */
        bool refuse_commit, refuse_unevictable, refuse_export; /* refusals to be sent */
        enum sched_lack refuse_commit_lacks;

        uint64_t limit;       /* bytes that the client may have on the card */
        uint64_t held;        /* the highest limit that the client has not given back yet */
        uint64_t commit;      /* bytes that the client may allocate */
        uint64_t commit_held; /* the highest commit that the client has not given back yet */
        struct sched_usage usage;
        uint64_t need;
        uint64_t due_ns; /* when the client is overdue without progress; 0: it owes nothing */
        uint64_t former_due_ns; /* due_ns of an earlier connection: a new one does not prolong it */
        uint64_t weight;        /* fair.c: share of the card's bill; 0: the client pays nothing */
        uint64_t paid_ns;       /* fair.c: what it was billed for the card in all */
        uint64_t exported;      /* allocated bytes that count as unevictable, within the limit */
        uint64_t unevictable_allowed, unevictable_measured;

        uint64_t mark;        /* high-water mark of the allocated bytes */
        uint64_t mark_run_ns; /* run time of the client when the mark was set */
        uint64_t reserve;     /* limit that a waiting client must reach before its turn */

        uint32_t sequence; /* number of the last LIMIT that was sent */
        uint32_t answered; /* number of the last LIMIT that was acknowledged */
        uint32_t commit_of, unevictable_of, export_of;
        uint32_t refuse_commit_of, refuse_unevictable_of, refuse_export_of;
        uint64_t commit_request, unevictable_request, export_request;
        uint64_t unevictable_since_ns, export_since_ns;
        uint64_t spare_asked_ns; /* when SPARE was sent; 0: it was not sent */
        /* Figures at the begin of an eviction, or of a restore's last part; 0: neither goes on. */
        uint64_t copied_before, backed_before, arena_before, moves_since_ns;
};

/* fair.c: a class, a user, or a container with programs of a user. Its part of a card's time is
 * divided between the branches and holders right below it. */
struct branch {
        struct branch *parent; /* for a class, or a user without a class: the first record */
        enum branch_kind { BRANCH_CLASS, BRANCH_USER, BRANCH_CONTAINER } kind;
        uint64_t number;          /* number of the class or the container, or the uid */
        unsigned holders;         /* how many are below it */
        struct gaps gaps;         /* gaps of all holders of a user */
        struct sched_terms terms; /* terms of a class, or of a user without a class */
        struct branch_on {
                struct share share;
                struct bucket bucket;
                struct division below;
                int64_t seen_ns;  /* uncontested_ns of the division above that `below` contains */
                int64_t floor_ns; /* with a minimum: time that it may claim before all priorities */
        } on[SCHED_GPUS_MAX];
};

/* A holder has a turn, a place in the queue and a share of the time. It is one client, or several
 * that run together. */
struct holder {
        struct client *first; /* its clients, each linked by `next`; NULL: the record is free */
        struct branch *top;   /* its class, or its user if it has no class */
        struct branch *user, *above; /* above: its container, or its user */
        int priority;
        uint32_t gpus; /* mask of the GPUs that its clients use */
        uint64_t job;  /* 0: it belongs to no job */

        uint64_t lease; /* number of the first lease of its turn; 0: none of its clients has one */
        bool askable;   /* a client with a lease can be asked for it: neither late nor frozen */
        bool idle;      /* no client with a lease works, and no other one waits for a lease */
        bool draining;  /* a client has not answered REVOKE yet */
        bool awaited;   /* a client has not answered REVOKE yet, and is neither late nor frozen */
        bool failed;    /* a client could not drain, and others have not answered yet */
        bool overdue;   /* a client is overdue */
        bool yielding;  /* it has just drained for another: no idle time precedes its eviction */
        bool waiting;   /* it is in the queue to run, or to grow while it has the lease */
        bool lacked;    /* it lacked bytes while it waited */
        bool goes_on;   /* it gave its lease back unasked while others waited */
        bool promoted;  /* the floor gives it a turn before all priorities */
        bool stuck;     /* it waits for bytes that no client can be made to give */
        bool held;      /* it has used all the time that a maximum leaves it, and waits */
        bool used_up;   /* it has used its maximum's part of a window, and is preempted */
        bool leaves;    /* ordered_evictions.c: its eviction is ordered, but has not begun */

        bool counted_run; /* habits.c: the time since clock_ns will be added to run_ns */

        uint64_t turn_end_ns;
        uint64_t unpreemptible_until_ns;
        uint64_t clock_ns, run_ns;
        uint64_t pass;          /* the last pass in which it was put into the queue */
        uint64_t last_until_ns; /* until then it comes last, and nobody makes room for it */
        uint64_t ticket;
        uint64_t granted_ns; /* the turn begins with the grant */
        uint64_t last_active_ns;
        uint64_t revoke_due_ns; /* when it is late with the lease; 0: the lease was not asked for */
        unsigned revoke_gpu, drain_failures;
        uint64_t retry_ns;
        uint64_t give_back_ns;  /* when a holder without room beside foreign processes gives back
                                   its bytes; 0: no such time is set */
        unsigned slow_restores; /* restores in a row that were too slow */

        /* habits.c */
        uint64_t burst_run_ns;   /* run_ns when the burst began */
        uint64_t rests_since_ns; /* since when it has had no work; 0: it has work */
        struct recent bursts, costs;

        struct holder_on {
                struct share share;   /* fair.c */
                struct bucket bucket; /* limits.c */
                uint64_t grown;       /* bytes taken from others for growth in this turn */
                uint64_t ahead;       /* the part of `grown` that the growth has not used yet */
        } on[SCHED_GPUS_MAX];
        struct gaps gaps;
};

struct client {
        bool used;
        uint32_t generation;
        struct holder *holder;
        int priority;
        bool alone;            /* nobody else has a lease of its cards while it wants one */
        bool mps;              /* it takes part in MPS */
        bool preemptible;      /* the daemon can preempt it */
        struct client *next;   /* the next one of the same holder */
        uint32_t gpus;         /* mask with one bit per attached GPU */
        sched_client previous; /* an earlier connection of the same process */

        bool lost, detached, poisoned, overdue;
        bool answers;  /* the client has acknowledged a LIMIT of this connection */
        bool idle;     /* the client has a lease, and nothing is in flight */
        bool stands;   /* the client is frozen with a lease */
        bool draining; /* REVOKE was sent and is not answered */
        bool waiting;  /* the client asks to run, or to grow while it has a lease */
        bool restoring;

        uint64_t lease;              /* 0: none */
        uint64_t revoke_due_ns;      /* when it is overdue; 0: it was not asked to drain */
        uint64_t late_ns;            /* when it became overdue, if it is */
        uint64_t unevictable_ticket; /* 0: the client does not wait for unevictable bytes */

        enum sched_state state;
        unsigned flags; /* enum sched_flags, as of the last event */
        uint64_t since_ns;
        bool changed;                /* in the list of sched_take_changed() */
        unsigned look;               /* look.c: the look as of the last event */
        struct client *changed_next; /* the next client in the list of sched_take_changed() */
        /* Counters to which the time since clock_ns will be added. Overdue time also counts as run
         * time. */
        bool counted_run, counted_overdue, counted_wait;
        uint64_t clock_ns, run_ns, overdue_ns, waited_ns, handoffs;

        /* Messages that are to be sent to the client. */
        bool dirty, send_grant, send_revoke, send_overdue;
        bool preempted, preempt_sent; /* preempt.c */
        enum sched_throttle throttle, throttle_sent;
        uint64_t slice_ns, slice_sent_ns; /* slices.c */
        bool prompt, prompt_sent;         /* preempt.c */
        uint64_t revoke_patience_ns;

        struct account *accounts[SCHED_GPUS_MAX]; /* &sched.nothing for an unused GPU */
};

/* slices.c: a job, or a holder without a job, that has leases of a GPU. */
struct side {
        uint64_t job;
        const struct holder *only; /* NULL: a job */
        unsigned clients;          /* how many have a lease */
        bool busy;                 /* a client is not idle */

        /* preempt.c */
        bool idles;        /* all clients are idle, or are asked to give way */
        bool works;        /* one is not, and its maximum leaves it time */
        bool can;          /* it can be preempted */
        bool competes;     /* it works, can be preempted, and none such has a higher priority */
        bool runs;         /* it is the one that has the GPU's time */
        bool off;          /* it is preempted for another side */
        bool gapless;      /* it has worked for a while almost without idling */
        int priority;      /* the lowest of its holders with a lease */
        uint64_t since_ns; /* when it began to work */
        int64_t gaps_ns;   /* how long it has idled lately */
        uint64_t ran_ns;   /* when it last had the GPU's time */
        uint64_t window;   /* number of the last window in which it got its part */
        double part;       /* of the time of the sides that compete */
        bool minimum;      /* a share that competes has a minimum */
        int64_t budget_ns; /* its part of a window */
        int64_t left_ns;   /* what is left of that; below 0: overdrawn */
};
#define SLICE_SIDES 16U
/* The most gaps that are kept in mind, and what a new side begins with. */
#define PREEMPT_GAPS_NS ((int64_t)(50 * NSEC_PER_MSEC))

struct gpu {
        bool present;
        struct client **clients; /* the attached ones; clients of one holder are adjacent */
        unsigned n_clients;
        uint32_t linked;  /* mask of the GPUs that those clients use */
        uint64_t next_ns; /* the next time at which this GPU needs a look */
        uint64_t total, foreign;
        uint64_t shortage; /* bytes reported in SHORT since the foreign use was last measured */
        uint64_t yield;    /* bytes that idle clients still have to give up for foreign processes */
        uint64_t yielded;  /* bytes that they have given up so far */
        bool commit_requested; /* a client may wait for the answer to REQUEST.commit */

        /* Sums over the accounts; ledger.c alone writes them. */
        uint64_t charged, unevictable, committed;

        /* Results of the last settle. */
        uint64_t immovable;    /* movable bytes of clients that cannot be asked now */
        uint64_t over;         /* charge above the usable bytes before anything was granted */
        uint64_t commit_max;   /* largest commit of a holder, without exported bytes */
        uint64_t promise_over; /* commit_max above its room before anything was granted */
        uint64_t allocated;    /* allocated bytes of all attached clients, evicted ones included */
        struct holder *head;   /* the first holder that lacks bytes here; NULL: none does */
        struct client *head_unevictable; /* its client that waits for unevictable or exported bytes;
                                            NULL: the head waits to run */
        uint64_t head_missing;           /* bytes that the head lacks */
        const struct holder *lease_first; /* a holder with a lease that exclusive mode waits for;
                                             NULL: there is none */
        bool lease_others; /* holders outside the job of lease_first have such leases, too */
        bool lower_waits;  /* a holder waits whose priority is below top_priority */
        uint64_t ahead;    /* bytes that were freed ahead of growth, and are not used yet */
        bool wanted;       /* a client waits for bytes or the lease, even if in vain */
        bool exclusive;    /* only one holder or job has leases at a time: the mode or one of the
                              holders demands it */
        bool claimed;      /* exclusive: a client waits to run here */
        struct holder *lease_head; /* exclusive: the first holder that lacks only the lease */
        bool contested;            /* a client waits, or did a moment ago */
        bool oversubscribed;       /* not all allocated memory fits, or did not a moment ago */
        /* When `contested` and `oversubscribed` end; 0: the condition still holds. */
        uint64_t contested_until_ns, oversubscribed_until_ns;
        int top_priority;               /* highest priority of the clients attached to this GPU */
        struct side sides[SLICE_SIDES]; /* slices.c */
        unsigned n_sides, side_most;    /* side_most: the most clients of a side; 0: too many sides,
                                           or one of them takes part in MPS */
        bool preemptible;               /* a client is preemptible */
        bool windowed;                  /* limits.c: a maximum holds in each window */
        bool beside;               /* mode exclusive, but leases exist side by side (preempt.c) */
        bool divided;              /* two sides work, or did a moment ago */
        uint64_t divided_until_ns; /* as contested_until_ns */

        struct recent gib_ns;      /* times to move a GiB */
        uint64_t gib_guess_ns;     /* time to move a GiB, while none is measured */
        uint64_t handoff_since_ns; /* when the current hand-off began; 0: there is none */
        struct holder *for_whom;   /* the beneficiary of the current hand-off */
        uint64_t handoffs;
        uint64_t handoffs_timed, handoff_ns; /* count of measured hand-offs; duration of the last */
        uint64_t quantum_ns; /* the longest turn of the holder that was granted a lease last */

        /* fair.c */
        /* preempt.c */
        bool serial;               /* one side runs at a time */
        bool alone;                /* no other side competes with the one that runs */
        bool lower_off;            /* sides of lower priorities are preempted for a higher one */
        uint64_t preempt_ns;       /* up to when the GPU's time is charged to sides */
        uint64_t window;           /* number of the current window */
        uint64_t window_ns;        /* when it began */
        uint64_t window_length_ns; /* of the time that the sides divide now */
        uint64_t piece_end_ns;     /* until then a lower priority runs; 0: none does so */
        int64_t piece_saved_ns;    /* time that the lower priorities have saved */
        int64_t gap_ns;            /* how long no higher priority has preempted them */

        bool promoted;          /* a holder that pays has its turn from the floor */
        bool drains;            /* a client drains, or is overdue with its eviction */
        struct client **payers; /* clients whose account has a weight, as of the last event */
        unsigned n_payers;
        uint64_t weights;   /* sum over the accounts */
        uint64_t billed_ns; /* the time up to which all bills are written */
        int64_t credit_ns;  /* time that hand-offs may cost now */
        int64_t floor_ns;   /* time that lower priorities may claim now */
};

/* A place in the queue: of a holder for the right to run, or of a client for unevictable bytes. */
struct entry {
        struct holder *h;
        struct client *c; /* it waits for unevictable bytes; NULL: h waits to run */
        int priority;
        uint16_t kind;       /* an enum wait_kind; within a priority the smallest kind goes first */
        uint16_t debtor;     /* then the smallest: highest level with a debt, plus 1; 0: no debt */
        int64_t debt_ns;     /* then the smallest debt on that level */
        int64_t deadline_ns; /* then the earliest deadline, relative to the virtual time */
        uint64_t ticket;
};

enum wait_kind {
        WAIT_UNEVICTABLE, /* first: a process that cannot create its context cannot even queue */
        WAIT_GROWTH,      /* second: the client's turn would otherwise be wasted */
        WAIT_HANDOFF,     /* third: memory moves for this client already */
        WAIT_RUN,
};

struct sched {
        struct sched_config config;
        uint64_t now_ns, next_ns;
        uint64_t wake_ns;    /* the next time at which this event's cards need a look */
        uint32_t touched;    /* mask of the GPUs that this event may change */
        uint64_t settled_ns; /* time of the last event that was no error */
        bool started;        /* the first event has come */
        bool again; /* another pass is due: somebody who was already served can now get more */
        uint64_t restart_until_ns;
        uint64_t leases, tickets;
        uint64_t random;
        struct branch *branch; /* array of BRANCHES() */
        uint64_t host_taken;   /* bytes of host memory used for other purposes than evictions */
        uint64_t host_over; /* bytes of commits that the host had no room for before this event */
        unsigned gpus;      /* number of the highest present GPU, plus one */
        struct gpu gpu[SCHED_GPUS_MAX];
        unsigned clients; /* number of the highest slot ever used, plus one */
        unsigned free;    /* no slot below this one is free */
        struct client *client;
        struct holder *holder;         /* array of clients_max */
        struct account *account;       /* array; the accounts in use lie close to each other */
        struct account **unused;       /* accounts that were given back */
        unsigned n_accounts, n_unused; /* n_accounts: how many were ever used */
        struct account nothing;        /* stays 0 */
        uint64_t passes;               /* number of the current pass */
        uint64_t counts;               /* preempt.c: number of the last count of parts */
        struct client **attached;      /* two arrays of clients_max for each GPU */
        struct entry *order;           /* array of 2 * clients_max */
        unsigned n_order;
        uint32_t *dirty; /* slots of the clients that need a message */
        unsigned n_dirty, first_dirty;
        struct client *changed; /* list of clients for sched_take_changed() */
        struct sched_transitions transitions;
};

#define BRANCHES(s) (3 * (s)->config.clients_max + 1)

/* Iterates over every GPU that client c uses. The caller declares v, an unsigned. */
#define FOR_EACH_GPU_OF(c, v)                                                                \
        for (uint32_t _left = (c)->gpus; _left && ((v) = (unsigned)__builtin_ctz(_left), 1); \
             _left &= _left - 1)

/* True if the condition holds for a GPU that c uses. The condition may use v, the GPU's number. */
#define ANY_GPU_OF(c, v, condition)                 \
        ({                                          \
                bool any_ = false;                  \
                unsigned v;                         \
                                                    \
                FOR_EACH_GPU_OF (c, v)              \
                        any_ = any_ || (condition); \
                any_;                               \
        })

/* Iterates over every client of holder h. The caller declares c. */
#define FOR_EACH_CLIENT_OF(h, c) for ((c) = (h)->first; (c); (c) = (c)->next)

/* Iterates over every client of holder h that uses the GPU. The caller declares c. */
#define FOR_EACH_CLIENT_OF_ON(h, number, c)          \
        for ((c) = (h)->first; (c); (c) = (c)->next) \
                if ((c)->accounts[number]->attached)

/* Iterates over every client that is attached to the GPU. The caller declares c. */
#define FOR_EACH_CLIENT_ON(s, number, c) \
        for (unsigned _at = 0;           \
             _at < (s)->gpu[number].n_clients && ((c) = (s)->gpu[number].clients[_at], 1); _at++)

/* Iterates over every holder that uses the GPU. The caller declares h. */
#define FOR_EACH_HOLDER_ON(s, number, h)                                                           \
        for (unsigned _at = 0;                                                                     \
             _at < (s)->gpu[number].n_clients && ((h) = (s)->gpu[number].clients[_at]->holder, 1); \
             _at++)                                                                                \
                if (!_at || (s)->gpu[number].clients[_at - 1]->holder != (h))

/* Iterates over the GPUs that this event may change. The caller declares v, an unsigned. */
#define FOR_EACH_TOUCHED_GPU(s, v)                                                              \
        for (uint32_t _gpus = (s)->touched; _gpus && ((v) = (unsigned)__builtin_ctz(_gpus), 1); \
             _gpus &= _gpus - 1)

/* Iterates over the clients of the touched GPUs, each once: under its lowest touched GPU. */
struct touched {
        uint32_t gpus; /* the GPUs that are left */
        unsigned at;   /* the next client, on the lowest of these GPUs */
};

static inline struct client *touched_next(const struct sched *s, struct touched *t)
{
        for (; t->gpus; t->gpus &= t->gpus - 1, t->at = 0) {
                const unsigned gpu = (unsigned)__builtin_ctz(t->gpus);
                const struct gpu *g = &s->gpu[gpu];

                while (t->at < g->n_clients) {
                        struct client *c = g->clients[t->at++];

                        if ((unsigned)__builtin_ctz(c->gpus & s->touched) == gpu)
                                return c;
                }
        }
        return NULL;
}

#define FOR_EACH_TOUCHED_CLIENT(s, c) \
        for (struct touched _t = {(s)->touched, 0}; ((c) = touched_next(s, &_t));)

static inline sched_client client_id(const struct sched *s, const struct client *c)
{
        return (uint64_t)c->generation << 32 | (uint64_t)(c - s->client);
}

/* Returns the client with this id; NULL: it is gone. */
static inline struct client *client_find(const struct sched *s, sched_client id)
{
        const uint32_t slot = (uint32_t)id;
        struct client *c;

        if (slot >= s->clients)
                return NULL;
        c = &s->client[slot];
        return c->used && client_id(s, c) == id ? c : NULL;
}

/* Returns the GPUs that an event of the client is about; c may be NULL. */
static inline uint32_t client_gpus(const struct client *c)
{
        return c ? c->holder->gpus : 0;
}

/* True if memory of this GPU is being handed over to h. */
static inline bool gpu_hands_to(const struct gpu *g, const struct holder *h)
{
        return g->handoff_since_ns && g->for_whom == h;
}

/* True if h has restored too slowly, and waits behind all others for a time. */
static inline bool holder_comes_last(const struct sched *s, const struct holder *h)
{
        return s->now_ns < h->last_until_ns;
}

/* True if somebody waits on any GPU of h, as of the last event. */
static inline bool holder_is_waited_for(const struct sched *s, const struct holder *h)
{
        return ANY_GPU_OF(h, gpu, s->gpu[gpu].wanted);
}

static inline uint64_t clamp_u64(uint64_t v, uint64_t low, uint64_t high)
{
        return v < low ? low : v > high ? high : v;
}

static inline void wake_at(struct sched *s, uint64_t ns)
{
        s->wake_ns = MIN(s->wake_ns, ns);
}

/* Keeps *held true for a moment after is_so has become false, because the condition comes and goes
 * with every allocation. *until_ns: when that moment ends; 0: is_so still holds. */
static inline void hold(struct sched *s, bool is_so, bool *held, uint64_t *until_ns)
{
        if (is_so) {
                *held = true;
                *until_ns = 0;
        } else if (*held) {
                if (!*until_ns)
                        *until_ns = s->now_ns + CONTESTED_HOLD_NS;
                if (s->now_ns >= *until_ns)
                        *held = false;
                else
                        wake_at(s, *until_ns);
        }
}

static inline bool client_unpreemptible(const struct sched *s, const struct client *c)
{
        return c->stands || s->now_ns < c->holder->unpreemptible_until_ns;
}

/* True if c cannot be made to give anything now: its movable bytes count as unevictable. */
static inline bool client_immovable(const struct sched *s, const struct client *c)
{
        return c->lost || c->overdue || client_unpreemptible(s, c);
}

/* True if h has a lease and can be asked for it now. */
static inline bool holder_can_be_asked(const struct sched *s, const struct holder *h)
{
        return h->askable && s->now_ns >= h->unpreemptible_until_ns;
}

static inline int holder_rank(const struct holder *h)
{
        return h->promoted ? INT_MAX : h->priority;
}

static inline bool holder_outranks(const struct holder *a, const struct holder *b)
{
        return holder_rank(a) > holder_rank(b);
}

static inline unsigned client_flags(const struct sched *s, const struct client *c)
{
        return (c->overdue ? SCHED_OVERDUE : 0) | (c->lost ? SCHED_LOST : 0) |
               (c->detached ? SCHED_DETACHED : 0) | (c->poisoned ? SCHED_POISONED : 0) |
               (client_unpreemptible(s, c) ? SCHED_UNPREEMPTIBLE : 0);
}

/* ---- the terms of a holder's class ---- */

static inline uint64_t term(uint64_t of_class, uint64_t usual)
{
        return of_class == UINT64_MAX ? 0 : of_class ? of_class : usual;
}

/* Returns the fixed length of h's turns; 0: automatic. */
static inline uint64_t holder_quantum(const struct sched *s, const struct holder *h)
{
        return term(h->top->terms.quantum_ns, s->config.quantum_ns);
}

static inline uint64_t holder_idle_release(const struct sched *s, const struct holder *h)
{
        return term(h->top->terms.idle_release_ns, s->config.idle_release_ns);
}

static inline uint64_t holder_grace(const struct sched *s, const struct holder *h)
{
        return term(h->top->terms.grace_ns, s->config.grace_ns);
}

/* ---- the bytes of an account ---- */

/* Returns the movable and exported bytes that count as the client's. */
static inline uint64_t account_held(const struct account *a)
{
        return MAX(a->held, a->usage.backed);
}

static inline uint64_t account_movable(const struct account *a)
{
        return sub_sat(account_held(a), a->exported);
}

/* Returns the unevictable bytes without the exported ones. */
static inline uint64_t account_own_unevictable(const struct account *a)
{
        uint64_t known = MAX(a->usage.unevictable, a->unevictable_measured);

        if (PLANTED(ALLOWED_NOT_CHARGED))
                return known;
        return MAX(a->unevictable_allowed, known);
}

static inline uint64_t account_unevictable(const struct account *a)
{
        return account_own_unevictable(a) + a->exported;
}

static inline uint64_t account_charge(const struct account *a)
{
        return account_movable(a) + account_unevictable(a);
}

/* Returns the part of the commit that may lie on the host. */
static inline uint64_t account_commit(const struct account *a)
{
        return sub_sat(a->commit_held, a->exported);
}

/* Returns the bytes that must be backed before c can run on, at most c's commit. A holder runs only
 * with all memory of all its clients on their cards. */
static inline uint64_t account_need(const struct client *c, const struct account *a)
{
        if (a->run)
                return MIN(a->need, a->commit_held);
        if (c->lease || c->lost || (c->holder->lease && !c->waiting))
                return 0;
        return MIN(a->usage.allocated, a->commit_held);
}

/* ---- ledger.c ---- */
uint64_t gpu_capacity(const struct gpu *g);
uint64_t gpu_move_ns(const struct gpu *g, uint64_t bytes); /* at the measured rate */
uint64_t gpu_extent(const struct gpu *g);
uint64_t gpu_headroom(const struct gpu *g);
uint64_t gpu_usable(const struct gpu *g); /* capacity less headroom */
uint64_t gpu_unevictable_budget(const struct sched *s, const struct gpu *g);
uint64_t gpu_visible(const struct sched *s, const struct gpu *g);
/* True if it is certain that all needed bytes are on the card. */
bool account_resident(const struct client *c, const struct account *a);
uint64_t account_missing(const struct client *c, const struct account *a);
/* Returns the high-water mark of c's bytes, halved with each MARK_HALF_LIFE_NS of running. */
uint64_t account_mark(const struct sched *s, const struct client *c, const struct account *a);
/* Returns the sum of of() over the clients of h that are not lost. */
uint64_t ledger_sum(const struct holder *h, unsigned gpu, uint64_t (*of)(const struct account *));
/* Returns the bytes that cannot be moved now, without h's own bytes. Bytes of h's lost clients
 * count, because h cannot use them. */
uint64_t ledger_immovable_beside(const struct sched *s, unsigned gpu, const struct holder *h);
uint64_t ledger_free(const struct gpu *g);
/* True if a client of h lacks bytes of the GPU. */
bool ledger_lacks(const struct holder *h, unsigned gpu);
/* Starts timing an eviction, or the last part of a restore. */
void ledger_begin_move(const struct sched *s, struct account *a);
/* Returns by how much a's limit may rise now: free bytes plus bytes that a has not given back. */
uint64_t ledger_available(const struct gpu *g, const struct account *a);
uint64_t ledger_host_spill(const struct sched *s, const struct gpu *g, uint64_t committed,
                           uint64_t unevictable);
/* Returns the sum of ledger_host_spill() over all GPUs but this one; NO_GPU: over all. */
#define NO_GPU UINT_MAX
uint64_t ledger_host_spilled(const struct sched *s, unsigned beside);
/* Returns the most bytes that may be spilled to the host. */
uint64_t ledger_host_budget(const struct sched *s);
bool ledger_commit_fits(const struct sched *s, unsigned gpu, const struct client *c,
                        uint64_t commit);
/* Returns what is lacking for a commit that does not fit. */
enum sched_lack ledger_commit_lacks(const struct sched *s, unsigned gpu, const struct client *c,
                                    uint64_t commit);

void ledger_attach(struct sched *s, struct client *c, unsigned gpu, const struct sched_usage *u);
void ledger_detach(struct sched *s, struct client *c, unsigned gpu);
void ledger_set_usage(struct sched *s, struct gpu *g, struct client *c, struct account *a,
                      const struct sched_usage *u, bool acknowledged);
void ledger_set_commit(struct sched *s, struct client *c, unsigned gpu, uint64_t commit);
void ledger_set_limit(struct sched *s, struct client *c, unsigned gpu, uint64_t limit);
void ledger_set_exported(struct sched *s, struct client *c, unsigned gpu, uint64_t exported);
void ledger_set_unevictable_allowed(struct sched *s, struct client *c, unsigned gpu,
                                    uint64_t unevictable);
void ledger_set_unevictable_measured(struct sched *s, struct client *c, unsigned gpu,
                                     uint64_t unevictable);

/* ---- touch.c ---- */
#define ALL_GPUS UINT32_MAX
void touch_begin(struct sched *s, uint64_t now_ns, uint32_t gpus);
void touch_end(struct sched *s, struct sched_actions *out);
/* Clamps settings to values for which the arithmetic is defined. */
void config_clamp(struct sched_config *c);

/* ---- holder.c ---- */
struct holder *holder_new(struct sched *s, unsigned slot, const struct sched_origin *origin);
void holder_add(struct holder *h, struct client *c);
/* Gives h the lowest priority of its clients: a client gains no priority by joining a group. */
void holder_prioritize(struct holder *h);
/* Takes c out of its holder, which ends with its last client. */
void holder_remove(struct sched *s, struct client *c);
/* Updates h after a change of one of its clients. Whether h waits is left to
 * holder_update_waiting(). */
void holder_update(struct sched *s, struct holder *h);
/* True if a may run on an exclusive card while b does: a is b, or both are of one job. */
bool holder_runs_beside(const struct holder *a, const struct holder *b);
/* Notes that h has a lease which exclusive mode waits for. */
void holder_note_lease(struct gpu *g, const struct holder *h);
/* Begins a lease, without a client yet. */
void holder_begin(struct sched *s, struct holder *h);
/* Lets c take part in the lease of its holder. */
void holder_grant(struct sched *s, struct client *c);
/* Asks all clients of h with a lease to drain. */
void holder_revoke(struct sched *s, struct holder *h, unsigned gpu);
/* Like holder_revoke(), for a lease that nobody waits for, once h may be asked again. */
void holder_ask_back(struct sched *s, struct holder *h);
/* Finds out which clients of h ask to run, and so whether h waits. */
void holder_update_waiting(struct sched *s, struct holder *h);

/* ---- turns.c ---- */
/* Returns the length of h's longest turn. */
uint64_t turns_quantum(const struct sched *s, const struct holder *h);
/* Returns how long h's next turn may last. */
uint64_t turns_next(const struct sched *s, const struct holder *h);
void turns_begin(struct sched *s, struct holder *h);
/* Call it when quanta may have become shorter: a turn that has begun is shortened, too. */
void turns_shorten(const struct sched *s, struct holder *h);
bool turns_over(const struct sched *s, const struct holder *h);
uint64_t turns_floor_wait(struct sched *s, const struct holder *h);
bool turns_before(const struct entry *a, const struct entry *b);
/* Returns the place of a waiting holder in the queue. */
struct entry turns_wanted(const struct sched *s, struct holder *h);
/* Returns the place that a holder with a lease would have in the queue. During its turn it has no
 * debt. It asks for the rest of its turn, or of its burst if that ends first (habits_left()). */
struct entry turns_held(const struct sched *s, struct holder *h, const struct holder *other);

/* ---- habits.c ---- */
void habits_rest(const struct sched *s, struct holder *h);
void habits_work(const struct sched *s, struct holder *h);
/* Returns how long h has computed in all. */
uint64_t habits_run_ns(const struct sched *s, const struct holder *h);
/* Begins or ends the counting of h's computing time. */
void habits_count(const struct sched *s, struct holder *h);
uint64_t habits_burst(const struct sched *s, const struct holder *h);
uint64_t habits_left(const struct sched *s, const struct holder *h, const struct holder *other);
uint64_t habits_release(const struct holder *h, uint64_t cost);
void recent_note(struct recent *r, uint64_t ns); /* 0 counts as 1 */
void habits_note_handoff(struct holder *h, uint64_t ns);
uint64_t habits_handoff_cost(const struct sched *s, const struct holder *h);

/* ---- victims.c ---- */
void policy_sort(struct sched *s);
/* Puts the holders that wait for a turn on this GPU into s->order, and returns their number. */
unsigned policy_queue(struct sched *s, unsigned gpu);
void policy_reclaim(struct sched *s, unsigned gpu);
/* Returns the bytes below which a cut of c's limit would cost work. */
uint64_t policy_slack_floor(const struct sched *s, const struct client *c, const struct account *a);
/* Makes idle clients give up so many bytes of this GPU, less the bytes already being returned. */
void policy_yield(struct sched *s, unsigned gpu, uint64_t bytes);
void policy_reclaim_lease(struct sched *s, unsigned gpu);

/* ---- division.c ---- */
static inline uint64_t weight_of(const struct share *m)
{
        return m->weight && !PLANTED(WEIGHTS_IGNORED) ? m->weight : 1000;
}
/* Returns the virtual time. */
int64_t division_mean(const struct division *d);
void division_join(struct division *d, struct share *m);
void division_leave(struct division *d, struct share *m);
/* Notes that m has received ns of time. */
void division_charge(struct division *d, struct share *m, uint64_t ns);
/* Notes ns of time in which nobody waited. All active shares are served by their weights: their
 * debts to each other stay, and those of absent ones shrink. */
void division_pass(struct division *d, int64_t ns);
/* Returns what m has received beyond its part; below 0: what it lacks. */
int64_t division_debt(const struct division *d, const struct share *m);
/* Returns the time until m has no more debt, if the others are served alone until then. */
int64_t division_wait(const struct division *d, const struct share *m);
/* Returns how many times more slowly than the mean share m is served: 1 if all have one weight. */
double division_slowness(const struct division *d, const struct share *m);
void division_set(struct division *d, struct share *m, unsigned weight, unsigned minimum);

/* ---- limits.c ---- */
/* Counts the time since the last bill as used, once for each maximum. */
void limits_use(struct sched *s, unsigned gpu);
/* Finds out which holders have used up their maximum, and asks them for their lease. */
void limits_check(struct sched *s);
/* Sets the wake-up for when h has used all its time, or has saved enough for a turn. */
void limits_wake(struct sched *s, struct holder *h);

/* ---- fair.c ---- */
/* One step on the way from a holder up to the whole card: a share, its maximum, and the branch
 * whose part of the time it belongs to. */
struct level {
        struct share *share;
        struct bucket *bucket;
        struct branch *above;
};

static inline struct level level_first(struct holder *h, unsigned gpu)
{
        return (struct level){&h->on[gpu].share, &h->on[gpu].bucket, h->above};
}

static inline struct level level_next(struct level l, unsigned gpu)
{
        return (struct level){&l.above->on[gpu].share, &l.above->on[gpu].bucket, l.above->parent};
}

/* Iterates over the levels of holder h. The caller declares l, a struct level. */
#define FOR_EACH_LEVEL_OF(h, gpu, l) \
        for ((l) = level_first(h, gpu); (l).above; (l) = level_next(l, gpu))

void fair_join(struct sched *s, struct holder *h, const struct sched_origin *origin);
void fair_leave(struct sched *s, struct holder *h);
/* Sets the share of h's class or, if h has no class, of its user. */
void fair_set_class(struct sched *s, struct holder *h, const struct sched_origin *origin);
/* Moves h to another class, user or container. */
void fair_move(struct sched *s, struct holder *h, const struct sched_origin *origin);
/* Sets h's share of the time of its container, user or class. */
void fair_set_share(struct holder *h, const struct sched_share *share);
/* Ends h's part in the division of a GPU's time. */
void fair_detach(struct holder *h, unsigned gpu);
/* Says that h began or ceased to wait or to have a lease. */
void fair_update(struct holder *h);
void fair_bill(struct sched *s, unsigned gpu);
/* Sets what part of the card's bill each client will pay from now on. */
void fair_weigh(struct sched *s, unsigned gpu);

/* The levels of the division, the highest last. */
enum {
        LEVEL_HOLDER,
        LEVEL_CONTAINER,
        LEVEL_USER,
        LEVEL_CLASS,
        LEVELS,
};

/* The debts of h, its container, its user and its class in their divisions, and how many times more
 * slowly than the mean each is served. The worst of h's GPUs counts. */
struct lag {
        int64_t ns[LEVELS]; /* 0 without a container or class */
        double slowness[LEVELS];
};
struct lag fair_lag(struct holder *h);
uint64_t fair_wait(struct holder *h);
/* Returns the time until the floor of h's GPUs has time for so long a turn. UINT64_MAX: nobody
 * there has a higher priority. */
uint64_t fair_floor_wait(struct sched *s, const struct holder *h, uint64_t turn_ns);
uint64_t fair_credit_wait(const struct sched *s, const struct gpu *g, uint64_t cost_ns);
void fair_spend(struct gpu *g, uint64_t cost_ns);

/* ---- late.c ---- */
void late_check(struct sched *s);
void late_set_deadlines(struct sched *s, struct client *c);
/* Notes that c has read the LIMIT with that sequence number. */
void late_answer(struct client *c, struct account *a, uint32_t sequence);

/* ---- preempt.c ---- */
/* True if c is late with its lease, and leaves the GPU's time to others. */
bool preempt_overdue(const struct client *c);
/* True if all clients of h that run or wait to run can be preempted. */
bool preempt_can(const struct holder *h);
/* True if in mode exclusive all that run or wait to run may have leases at a time, because the GPU
 * can run one of them at a time, and no byte must move. */
bool preempt_shares_exclusive(const struct sched *s, unsigned gpu);
/* Charges the time since the last event to the sides that had it. */
void preempt_use(struct sched *s, unsigned gpu);
/* Decides which clients with leases the GPU runs until the next event. */
void preempt_decide(struct sched *s, unsigned gpu);
/* True if c is to say at once when it idles: others have the GPU's time then. */
bool preempt_prompt(const struct sched *s, const struct client *c);
/* Lets all clients of the GPU run. */
void preempt_end(struct sched *s, unsigned gpu);

/* ---- slices.c ---- */
/* Returns the side of a holder; NULL: the GPU does not have it. */
struct side *slices_side(struct gpu *g, const struct holder *h);
/* Brings the sides of a GPU up to date, after leases have changed. */
void slices_survey(struct sched *s, unsigned gpu);
/* Returns the time slice of c; 0: the driver's own. */
uint64_t slices_of(struct sched *s, const struct client *c);

/* ---- settle.c ---- */
void settle(struct sched *s);
/* Clears one of c's requests for unevictable or exported bytes. Without another such request c
 * leaves the queue for unevictable bytes. */
void unevictable_done(struct client *c, bool *wanted);
void unevictable_serve(struct sched *s, struct client *c);
/* Takes back the unallocated part of commits above cap. */
void settle_trim_commits(struct sched *s, unsigned gpu, uint64_t cap);
/* True if there would be room for h after every client that can be asked had given way.
 * without_foreign: as if there were no foreign processes. */
bool settle_fits(const struct sched *s, const struct holder *h, bool without_foreign);
/* Returns the movable bytes that h must have on the GPU to go on. *ret_lacks: some of them are not
 * granted yet. */
uint64_t settle_needs(const struct sched *s, const struct holder *h, unsigned gpu, bool *ret_lacks);
/* Updates c's state, flags and times. */
void client_refresh(struct sched *s, struct client *c);

/* ---- look.c ---- */
/* Puts c into the list of sched_take_changed() if its look has changed. */
void client_note_look(struct sched *s, struct client *c);

/* ---- ordered_evictions.c ---- */
/* Returns 0 if h can be evicted by an order, or the error that sched_client_evict() returns. */
int evict_objection(const struct sched *s, const struct holder *h);
/* Takes all movable bytes from a holder without a lease. */
void evict_holder(struct sched *s, struct holder *h);
/* Begins the evictions that were ordered. */
void evict_check(struct sched *s);

/* ---- foreign.c ---- */
/* True if h waits and would have room without foreign processes. */
bool foreign_blocks(const struct sched *s, const struct holder *h);
void foreign_stuck(struct sched *s, struct holder *h);

/* ---- actions.c ---- */
void actions_mark(struct sched *s, struct client *c);
void actions_emit(struct sched *s, struct sched_actions *out);
