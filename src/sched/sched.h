/* sched.h: who may hold how much memory and who may run, now.
 *
 * A pure state machine: events and the time go in, actions come out. It holds no descriptor, reads
 * no clock, does no I/O and allocates nothing after sched_new(). Not thread-safe: the daemon's loop
 * owns it. The same code runs in the daemon, the unit tests, the property test and the
 * discrete-event simulator.
 *
 * A client is one process. Memory is counted per client and GPU (an account); the lease is one per
 * client. The words and the meaning of every figure are those of docs/protocol.md; the rules are
 * docs/scheduler.md.
 *
 * Times are CLOCK_MONOTONIC nanoseconds and never go backwards from one call to the next. Sizes are
 * bytes.
 *
 * Every event function appends the actions that follow from it to `out`. The caller performs them
 * in order and empties the list (n = 0). Where more is set, it calls sched_pump() until it is not,
 * before the next event.
 *
 * Figures of clients are not trusted: they are clamped to the card's total, and none of them can
 * make a sum wrap. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHED_GPUS_MAX 16

struct sched;

/* Index in the low half, generation in the high half, so the id of a client that has ended matches
 * no other. 0: no client. */
typedef uint64_t sched_client;

enum sched_mode { SCHED_MODE_AUTO, SCHED_MODE_EXCLUSIVE, SCHED_MODE_OFF };

enum sched_state {
        SCHED_IDLE,
        SCHED_WAITING,
        SCHED_RESTORING,
        SCHED_RUNNING,
        SCHED_DRAINING,
        SCHED_EVICTING
};

enum sched_flags {
        SCHED_OVERDUE = 1 << 0,       /* did not drain or evict within the grace period */
        SCHED_LOST = 1 << 1,          /* connection gone, process alive as far as known */
        SCHED_DETACHED = 1 << 2,      /* came back from working without a daemon */
        SCHED_POISONED = 1 << 3,      /* a context has a sticky error */
        SCHED_UNPREEMPTIBLE = 1 << 4, /* drains keep failing, or it stands still with a
                                         lease (sched_client_stands): left alone for a while */
};

struct sched_config {
        unsigned clients_max;
        enum sched_mode mode;
        uint64_t quantum_ns;       /* 0: auto */
        uint64_t quantum_min_ns;   /* auto: 0.2 s */
        uint64_t quantum_max_ns;   /* auto: 60 s */
        unsigned handoff_permille; /* auto: share of the time that hand-offs may cost, 50 */
        uint64_t grace_ns;         /* overdue after this, 5 s */
        uint64_t idle_release_ns;  /* idle clients give way after this; 0: as long as their hand-off
                                      costs (ski rental) */
        uint64_t patience_ns;      /* first REVOKE's patience; doubled after each failed drain */
        uint64_t host_budget_bytes; /* Σ commit over all GPUs <= Σ capacity + this, less transit */
        uint64_t restart_grace_ns;  /* after a restart nothing is granted for this long from the
                                       first event; 0: a first start */
        unsigned unevictable_permille; /* budget for unevictable bytes, share of the card, 50 */
        uint64_t seed;                 /* two daemons on one card must not be in step */
};

/* All of the above, at the values named in the comments; patience 2 s, clients_max 1024, host
 * budget 0, mode auto. */
void sched_config_default(struct sched_config *c);

/* NULL with errno ENOMEM. */
struct sched *sched_new(const struct sched_config *config);
void sched_free(struct sched *s); /* NULL is a no-op */

/* What a client reports of itself on one GPU. */
struct sched_usage {
        uint64_t allocated, backed, unevictable, arena;
        uint64_t moved_out, moved_in; /* totals since the process began */
        uint64_t drain_ns;            /* its last drain */
        bool stays; /* bytes above its limit that it cannot move now, because the host has no room
                     */
};

enum sched_action_type {
        SCHED_DO_LIMIT,     /* send LIMIT: account figures below, with a new limit_sequence */
        SCHED_DO_GRANT,     /* send GRANT(lease) */
        SCHED_DO_REVOKE,    /* send REVOKE(lease, patience_ns) */
        SCHED_DO_REFUSE,    /* send REFUSED(code) to REQUEST or EXPORT number `of` */
        SCHED_DO_EXPORTED,  /* send EXPORTED(exported) */
        SCHED_DO_SPARE,     /* send SPARE */
        SCHED_DO_CONTESTED, /* send CONTESTED, with what the bound stands for */
        SCHED_DO_OVERDUE,   /* log it, kill if so configured */
};

/* How short a client must keep its work in flight. */
enum sched_bound {
        SCHED_UNBOUND,
        SCHED_BOUND_AHEAD, /* no client waits, but not all allocated memory fits: kernels must not
                              queue without end */
        SCHED_BOUND_SHORT, /* a client waits, or one of a higher priority may come */
};

struct sched_action {
        enum sched_action_type type;
        sched_client client;
        unsigned gpu; /* the daemon's GPU number; LIMIT, REFUSE, EXPORTED, SPARE */
        union {
                struct {
                        uint64_t commit, backed, unevictable, visible;
                        uint32_t sequence;
                } limit;
                struct {
                        uint64_t lease, patience_ns;
                } lease;
                struct {
                        uint32_t of;
                        int code; /* -ENOMEM: commit; -ENOSPC: unevictable; -EBUSY: exported */
                } refuse;
                uint64_t exported;
                enum sched_bound bound;
        };
};

#define SCHED_ACTIONS_MAX 256
struct sched_actions {
        unsigned n;
        bool more; /* the list was full: perform these actions, then call sched_pump() */
        struct sched_action list[SCHED_ACTIONS_MAX];
};

/* ---- GPUs ---- */

/* Declare GPU number gpu (0 .. SCHED_GPUS_MAX-1) with its total bytes. 0, -EINVAL, -EEXIST. */
int sched_gpu_add(struct sched *s, unsigned gpu, uint64_t total_bytes);
/* The card's total turns out to be another: NVML's figure replaces a client's. */
void sched_gpu_total(struct sched *s, unsigned gpu, uint64_t total_bytes, uint64_t now_ns,
                     struct sched_actions *out);
/* A client is attached to it. */
bool sched_gpu_in_use(const struct sched *s, unsigned gpu);
/* Its number may be used again. 0, -EBUSY: a client is attached to it, -EINVAL. */
int sched_gpu_remove(struct sched *s, unsigned gpu);
/* Bytes used by foreign processes, as last measured. Capacity = total - foreign. */
void sched_gpu_foreign(struct sched *s, unsigned gpu, uint64_t foreign_bytes, uint64_t now_ns,
                       struct sched_actions *out);

/* The bytes by which foreign use exceeds what the first client that waits for it would need. 0: no
 * client waits for foreign bytes. */
uint64_t sched_gpu_lacks(const struct sched *s, unsigned gpu);
/* A foreign process waits for so many bytes. Idle clients give up as many, once, as for a waiting
 * client; other clients do not, and no bytes are kept free. 0: it no longer waits. */
void sched_gpu_yield(struct sched *s, unsigned gpu, uint64_t bytes, uint64_t now_ns,
                     struct sched_actions *out);

/* Host memory used for other purposes than evicted memory (mapped to kernels): an absolute figure,
 * of all clients together. 0, or -ENOMEM: what evictions may need does not leave so much more, and
 * nothing has changed. Lower figures and those already held always succeed. */
int sched_host_take(struct sched *s, uint64_t bytes, bool held, uint64_t now_ns,
                    struct sched_actions *out);
/* How much more could be taken now. */
uint64_t sched_host_free(const struct sched *s);

/* ---- clients ---- */

/* 0, -ENOSPC at clients_max. Higher priority goes first; 0 is normal. */
int sched_client_add(struct sched *s, uint32_t uid, int priority, uint64_t now_ns,
                     sched_client *ret_id);

/* The process behind this new client was the lost client `previous` before it came back to this
 * daemon. What that one is charged for on a GPU passes over in the very event of the attach:
 * counted twice, others would be evicted for it; not counted for a moment, others would be given
 * it. A record with nothing left on it is gone by itself; sched_client_gone() takes all former
 * records of a client along. 0, -ESTALE (either unknown), -EINVAL (previous is not lost). */
int sched_client_returned(struct sched *s, sched_client id, sched_client previous);

/* Use a GPU, with the client's true state. unevictable_requested: room to keep for the context that
 * is about to be created. running: it came back with its gate open (a new GRANT follows). run: it
 * has work (as in request). 0, -EINVAL, -EEXIST, -ESTALE (no such client). The first LIMIT comes
 * when the unevictable room is there. */
struct sched_attach {
        struct sched_usage usage;
        uint64_t unevictable_requested;
        bool running, run, idle, detached;
        bool spare;        /* as in request */
        uint32_t sequence; /* of the message, for a refusal */
};
int sched_client_attach(struct sched *s, sched_client id, unsigned gpu,
                        const struct sched_attach *a, uint64_t now_ns, struct sched_actions *out);

/* New figures. limit_sequence acknowledges a LIMIT. flags: SCHED_POISONED or 0. 0, -EINVAL (no such
 * account, backed > allocated), -ESTALE. */
int sched_client_usage(struct sched *s, sched_client id, unsigned gpu, const struct sched_usage *u,
                       uint32_t limit_sequence, unsigned flags, uint64_t now_ns,
                       struct sched_actions *out);

/* What NVML says of the client's unevictable bytes; overrides what the client reports when greater.
 */
void sched_client_unevictable(struct sched *s, sched_client id, unsigned gpu,
                              uint64_t unevictable_bytes, uint64_t now_ns,
                              struct sched_actions *out);

/* spare: some of its unevictable bytes it can do without; when others need the budget, it is asked
 * for them. spare_requested: so it could without those that it wants more, which are refused unless
 * all unevictable bytes stay within their budget. */
struct sched_request {
        uint64_t commit, unevictable, need;
        bool run, spare, spare_requested;
        uint32_t sequence; /* of the message, for a refusal */
};
int sched_client_request(struct sched *s, sched_client id, unsigned gpu,
                         const struct sched_request *w, uint64_t now_ns, struct sched_actions *out);

/* So many of its allocated bytes are to stay on the card for good: they count like unevictable
 * ones, and its limit never falls below them. What is asked for past what is exported is answered
 * when its limit covers it and everybody could still run, or refused; less takes effect at once.
 * held: they are in use so already, as of a client that came back: nothing is asked, and nothing
 * answered. */
struct sched_export {
        uint64_t bytes;
        bool held;
        uint32_t sequence; /* of the message, for a refusal */
};
int sched_client_export(struct sched *s, sched_client id, unsigned gpu,
                        const struct sched_export *p, uint64_t now_ns, struct sched_actions *out);
/* The commit of a REQUEST that was kept back, alone: what the client wants beside it may be another
 * by now. */
int sched_client_commit(struct sched *s, sched_client id, unsigned gpu, uint64_t commit,
                        uint32_t sequence, uint64_t now_ns, struct sched_actions *out);

/* These ignore a lease that is not the current one (0 then too); -ESTALE only for an unknown
 * client. */
int sched_client_idle(struct sched *s, sched_client id, uint64_t lease, bool idle, uint64_t now_ns,
                      struct sched_actions *out);
int sched_client_drained(struct sched *s, sched_client id, uint64_t lease, uint64_t now_ns,
                         struct sched_actions *out);
int sched_client_drain_failed(struct sched *s, sched_client id, uint64_t lease, uint64_t after_ns,
                              uint64_t now_ns, struct sched_actions *out);
/* It stands still with a lease and cannot give way until the same is said with false: nobody asks
 * it, and nobody waits for its lease. Ends by itself when it gives its lease back. -ESTALE. */
int sched_client_stands(struct sched *s, sched_client id, bool stands, uint64_t now_ns,
                        struct sched_actions *out);
/* A create within its limit failed by so many bytes. */
int sched_client_short(struct sched *s, sched_client id, unsigned gpu, uint64_t bytes,
                       uint64_t now_ns, struct sched_actions *out);

/* The connection is gone; the charge stays. */
void sched_client_lost(struct sched *s, sched_client id, uint64_t now_ns,
                       struct sched_actions *out);
/* The process is gone and the card shows its memory free (or it said BYE). The id is dead after
 * this. */
void sched_client_gone(struct sched *s, sched_client id, uint64_t now_ns,
                       struct sched_actions *out);

/* ---- time and settings ---- */

/* The next moment at which sched_tick() has something to do; UINT64_MAX: none. */
uint64_t sched_next_ns(const struct sched *s);
void sched_tick(struct sched *s, uint64_t now_ns, struct sched_actions *out);
/* Until now, for ns, the daemon listened to no client, so no grace period ran. Comes before any
 * other event of a later time. */
void sched_skip(struct sched *s, uint64_t ns, uint64_t now_ns);
/* Goes on where a full action list stopped. */
void sched_pump(struct sched *s, uint64_t now_ns, struct sched_actions *out);

/* -EBUSY: SCHED_MODE_OFF while anything is evicted. */
int sched_set_mode(struct sched *s, enum sched_mode mode, uint64_t now_ns,
                   struct sched_actions *out);
void sched_set_quantum(struct sched *s, uint64_t quantum_ns, uint64_t now_ns,
                       struct sched_actions *out);

/* ---- looking ---- */

struct sched_gpu_view {
        uint64_t total, foreign, capacity, headroom, unevictable_budget, visible;
        uint64_t charged, unevictable, committed;
        uint64_t quantum_ns; /* in force now */
        uint64_t handoffs;
        bool contested;
        unsigned waiting, running;
};
int sched_gpu_view(const struct sched *s, unsigned gpu, struct sched_gpu_view *ret);

struct sched_client_view {
        enum sched_state state;
        unsigned flags;
        bool idle;            /* running, with nothing in flight */
        uint64_t since_ns;    /* when it entered its state */
        uint64_t lease;       /* 0: none */
        uint64_t run_ns;      /* total time with a lease, not idle and not overdue */
        uint64_t handoffs;    /* leases lost to others */
        uint64_t waited_ns;   /* total time waiting or restoring */
        sched_client blocker; /* waiting: whom it waits for; 0: nobody in particular */
        bool foreign;         /* it waits because of foreign processes alone */
};
int sched_client_view(const struct sched *s, sched_client id, uint64_t now_ns,
                      struct sched_client_view *ret);

struct sched_account_view {
        struct sched_usage usage;
        uint64_t commit, limit, charge, need;
        uint64_t unevictable; /* without what is exported */
        uint64_t exported;    /* of its allocated bytes */
        uint64_t commit_held; /* the highest commit it has not given back yet */
        /* The same figures with its pending requests. */
        uint64_t commit_asked, unevictable_asked, exported_asked;
};
int sched_account_view(const struct sched *s, sched_client id, unsigned gpu,
                       struct sched_account_view *ret);

/* How often clients went from one state to another since sched_new(). SCHED_STATES stands for
 * absent: before the first GPU is attached, and after the end. set and cleared: by bit number of
 * enum sched_flags. */
#define SCHED_STATES (SCHED_EVICTING + 1)
#define SCHED_FLAGS  5
struct sched_transitions {
        uint64_t state[SCHED_STATES + 1][SCHED_STATES + 1];
        uint64_t set[SCHED_FLAGS], cleared[SCHED_FLAGS];
};
void sched_transitions(const struct sched *s, struct sched_transitions *ret);

/* Iterates over the clients: pass 0 first, then the previous result; 0 ends. */
sched_client sched_next_client(const struct sched *s, sched_client after);

const char *sched_state_name(enum sched_state state);              /* "idle", "waiting", ... */
const char *sched_mode_name(enum sched_mode mode);                 /* "auto", "exclusive", "off" */
int sched_mode_parse(const char *text, enum sched_mode *ret_mode); /* 0, -EINVAL */

/* Check the invariants of docs/scheduler.md. NULL, or a sentence that names the broken one. For
 * tests; at any time. */
const char *sched_check(const struct sched *s, uint64_t now_ns);
