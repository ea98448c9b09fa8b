/* sched.h: decides how much memory each client may hold and which clients may run now.
 *
 * A pure state machine: events and the time go in, actions come out. It holds no descriptor, reads
 * no clock, does no I/O and allocates nothing after sched_new(). Not thread-safe: the daemon's loop
 * owns it. The same code runs in the daemon, the unit tests, the property test and the
 * discrete-event simulator.
 *
 * A client is one process. Memory is counted per client and GPU (an account). A *holder* has the
 * lease, the place in the queue and the share of the time: one client, or several that run together
 * (sched_client_join()). The words and the meaning of every figure are those of docs/protocol.md;
 * the rules are docs/scheduling.md.
 *
 * Times are CLOCK_MONOTONIC nanoseconds and never go backwards from one call to the next. Sizes are
 * bytes.
 *
 * Every event function appends the actions that follow from it to `out`. The caller performs them
 * in order and empties the list (n = 0). While `more` is set, it calls sched_pump() again before
 * the next event.
 *
 * Byte counts from clients are not trusted: they are clamped to the card's total, and none of them
 * can make a sum wrap. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHED_GPUS_MAX 16

struct sched;

/* A client's id: the index in the low half, a generation in the high half, so that the id of a
 * client that has ended matches no other client. 0: no client. */
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
        SCHED_OVERDUE = 1 << 0,       /* it did not drain or evict within the grace period */
        SCHED_LOST = 1 << 1,          /* its connection is gone, its process perhaps not */
        SCHED_DETACHED = 1 << 2,      /* it worked without a daemon before it came back */
        SCHED_POISONED = 1 << 3,      /* one of its contexts has a sticky error */
        SCHED_UNPREEMPTIBLE = 1 << 4, /* it is not asked to give way for a while: its drains keep
                                         failing, or it is frozen with a lease
                                         (sched_client_stands) */
};

struct sched_config {
        unsigned clients_max;
        enum sched_mode mode;
        uint64_t quantum_ns;        /* length of a turn; 0: automatic */
        uint64_t quantum_min_ns;    /* lower end of the automatic quantum; default 0.2 s */
        uint64_t quantum_max_ns;    /* upper end of the automatic quantum; default 60 s */
        unsigned handoff_permille;  /* share of the time that hand-offs may cost; default 50 */
        unsigned floor_permille;    /* share of the time that clients of lower priorities get while
                                       others want it all; default 50 */
        uint64_t grace_ns;          /* time until a silent client is overdue; default 5 s */
        uint64_t idle_release_ns;   /* time until an idle client gives way; 0: as long as its
                                       hand-off costs (ski rental) */
        uint64_t patience_ns;       /* patience of the first REVOKE; each failed drain doubles it */
        uint64_t host_budget_bytes; /* host memory for evictions: the commits of all GPUs fit the
                                       cards plus this, less the extents in transit */
        uint64_t restart_grace_ns;  /* time after the first event in which a restarted daemon grants
                                       nothing; 0: a first start */
        unsigned unevictable_permille; /* share of a card for unevictable bytes; default 50 */
        uint64_t window_ns;            /* where the GPU runs one side at a time, each gets its part
                                          of every such window; default 100 ms, 20 ms to 1 s */
        uint64_t seed;                 /* keeps two daemons on one card out of step */
};

/* Sets the defaults named above, and: patience 2 s, clients_max 1024, host budget 0, mode auto. */
void sched_config_default(struct sched_config *c);

/* Returns NULL with errno ENOMEM if there is no memory. */
struct sched *sched_new(const struct sched_config *config);
void sched_free(struct sched *s); /* s may be NULL */

/* A client's report of its memory on one GPU. */
struct sched_usage {
        uint64_t allocated, backed, unevictable, arena;
        uint64_t moved_out, moved_in; /* totals since the process began */
        uint64_t drain_ns;            /* duration of its last drain */
        bool stays; /* the client cannot move the bytes above its limit: the host has no room */
        bool waits; /* the client gave way because its work waits for other clients */
};

enum sched_action_type {
        SCHED_DO_LIMIT,     /* send LIMIT(limit), with its new sequence number */
        SCHED_DO_GRANT,     /* send GRANT(lease) */
        SCHED_DO_REVOKE,    /* send REVOKE(lease, patience_ns) */
        SCHED_DO_REFUSE,    /* send REFUSED(code) to REQUEST or EXPORT number `of` */
        SCHED_DO_EXPORTED,  /* send EXPORTED(exported) */
        SCHED_DO_SPARE,     /* send SPARE */
        SCHED_DO_CONTESTED, /* send CONTESTED, with the value that stands for the throttle */
        SCHED_DO_SLICE,     /* send SLICE(slice_ns) */
        SCHED_DO_PROMPT,    /* send PROMPT(prompt) */
        SCHED_DO_OVERDUE,   /* log that the client is overdue, and kill it if so configured */
        SCHED_DO_PREEMPT,   /* take the client's channels off the GPU, or let them run: `preempt` */
};

/* The limit on a client's work in flight. */
enum sched_throttle {
        SCHED_THROTTLE_NONE,
        SCHED_THROTTLE_AHEAD, /* a loose limit: no client waits, but not everything fits */
        SCHED_THROTTLE_SHORT, /* a tight limit: a client waits, or may come with more priority */
};

/* Why a commit was refused: the card is too small, foreign processes hold the bytes, or there is no
 * host memory to evict to. */
enum sched_lack { SCHED_LACKS_CARD, SCHED_LACKS_FOREIGN, SCHED_LACKS_HOST };

struct sched_action {
        enum sched_action_type type;
        sched_client client;
        unsigned gpu; /* GPU number; valid for LIMIT, REFUSE, EXPORTED and SPARE */
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
                        int code; /* -ENOMEM: a commit is refused; -ENOSPC: unevictable bytes;
                                     -EBUSY: an export */
                        enum sched_lack lacks; /* what a refused commit lacks */
                } refuse;
                uint64_t exported;
                enum sched_throttle throttle;
                uint64_t slice_ns; /* 0: the driver's own */
                bool prompt;       /* the client is to say at once when it idles */
                bool preempt;      /* true: off the GPU; false: they run */
        };
};

#define SCHED_ACTIONS_MAX 256
struct sched_actions {
        unsigned n;
        bool more; /* the list was full: perform these actions, then call sched_pump() */
        struct sched_action list[SCHED_ACTIONS_MAX];
};

/* ---- GPUs ---- */

/* Naming a GPU that was not added breaks a precondition (base/precondition.h). The functions that
 * only look then answer that there is no such GPU. */

/* Adds GPU number gpu (0 .. SCHED_GPUS_MAX-1) with its total bytes. Returns 0, -EINVAL, -EEXIST. */
int sched_gpu_add(struct sched *s, unsigned gpu, uint64_t total_bytes);
/* Corrects a card's total: a client reported one first, and NVML reports another. */
void sched_gpu_total(struct sched *s, unsigned gpu, uint64_t total_bytes, uint64_t now_ns,
                     struct sched_actions *out);
/* Sets the speed of the card's bus in each direction. It counts until moves of memory are measured.
 */
void sched_gpu_bus(struct sched *s, unsigned gpu, uint64_t bytes_per_s);
/* True if a client is attached to the GPU. */
bool sched_gpu_in_use(const struct sched *s, unsigned gpu);
/* Frees a GPU's number for another GPU. Returns 0, -EINVAL, or -EBUSY if a client is attached. */
int sched_gpu_remove(struct sched *s, unsigned gpu);
/* Sets the bytes used by foreign processes, as last measured. Capacity = total - foreign. */
void sched_gpu_foreign(struct sched *s, unsigned gpu, uint64_t foreign_bytes, uint64_t now_ns,
                       struct sched_actions *out);

/* Returns the bytes that foreign processes would have to free before the first client that waits
 * because of them could run. 0: no client waits because of foreign processes. */
uint64_t sched_gpu_lacks(const struct sched *s, unsigned gpu);
/* Says that a foreign process waits for so many bytes; 0: it no longer waits. Idle clients give up
 * that many bytes once. Other clients give up nothing, and no bytes are kept free. */
void sched_gpu_yield(struct sched *s, unsigned gpu, uint64_t bytes, uint64_t now_ns,
                     struct sched_actions *out);

/* Sets the host memory that all clients together use for other purposes than evictions. Returns 0,
 * or -ENOMEM without a change if evictions may need the room. Fewer bytes than before, and bytes
 * already held, always succeed. */
int sched_host_take(struct sched *s, uint64_t bytes, bool held, uint64_t now_ns,
                    struct sched_actions *out);
/* Returns how many bytes of all commits are beyond the capacity of the cards. */
uint64_t sched_beyond_cards(const struct sched *s);
/* Returns the bytes that sched_host_take() could still add now. */
uint64_t sched_host_free(const struct sched *s);

/* ---- clients ---- */

/* The part of the time that a class, a user or a client gets. All zero: a weight of 1, no bounds.
 */
struct sched_share {
        unsigned weight;  /* thousandths, 1 to 100,000; 0: 1000 */
        unsigned minimum; /* thousandths of the divided time that it gets while it wants them */
        unsigned maximum; /* thousandths of a card's time that it never passes; 0: no limit */
};

/* How a class's turns differ from those of others. 0: as the configuration says. */
struct sched_terms {
        uint64_t quantum_ns, idle_release_ns; /* UINT64_MAX: automatic */
        uint64_t grace_ns;
        bool exclusive; /* nobody else has a lease of a card while a client of the class wants to
                           run on it */
};

/* The class, the user and the container whose part of the time a client uses. The card's time is
 * divided between classes and the users without one; a class's part between its users; a user's
 * part between his containers and the clients outside of them; a container's part between its
 * clients. */
struct sched_origin {
        uint64_t uid;             /* the user's uid, or another number above all uids */
        uint64_t container;       /* number of the container that the client runs in; 0: none */
        uint64_t job;             /* clients of one job may share an exclusive card; 0: no job */
        uint32_t class_number;    /* 0: none */
        struct sched_share share; /* of the class, or of the user if there is no class */
        struct sched_terms terms; /* of the class, or of the user if there is no class */
};
/* Adds a client. A higher priority goes first; 0 is normal. Returns 0, or -ENOSPC if there are
 * clients_max clients. */
int sched_client_add(struct sched *s, struct sched_origin origin, int priority, uint64_t now_ns,
                     sched_client *ret_id);

/* Links a new client, which uses no GPU yet, to the lost client `previous` of the same process, and
 * makes it part of the same holder. When the new client attaches a GPU, it takes over the charge of
 * its lost clients there, so that no byte counts twice or not at all. A lost client that has no GPU
 * left ends then; sched_client_gone() ends the others. Returns 0, -ESTALE (a client is unknown),
 * -EINVAL (previous is not lost, or id uses a GPU). */
int sched_client_returned(struct sched *s, sched_client id, sched_client previous);

/* Makes client id, which uses no GPU yet, run together with `other`, of the same origin, and with
 * all that run with it. Together they have one turn, one place in the queue, one share of the time,
 * and the lowest priority of any of them; and all their memory fits the cards at one time. Returns
 * 0, -ESTALE (a client is unknown), -EINVAL (id uses a GPU, or has another origin). */
int sched_client_join(struct sched *s, sched_client id, sched_client other);

/* Changes the class, container or job of a client and of all that run together with it, or the
 * share of their class. Leases stay. Returns 0 or -ESTALE. */
int sched_client_origin(struct sched *s, sched_client id, const struct sched_origin *origin,
                        uint64_t now_ns, struct sched_actions *out);
/* Sets the share of the time of a client and of all that run together with it. Sends its limits
 * again, because a caller may add a cap of memory that changes with the share. Returns 0 or
 * -ESTALE. */
int sched_client_share(struct sched *s, sched_client id, const struct sched_share *share,
                       uint64_t now_ns, struct sched_actions *out);

/* Gives a client another priority. Returns 0 or -ESTALE. */
int sched_client_priority(struct sched *s, sched_client id, int priority, uint64_t now_ns,
                          struct sched_actions *out);

/* Says whether a client has its cards alone: while it wants to run, nobody else has a lease of one.
 * This is `exclusive` of struct sched_terms, for one client. Returns 0 or -ESTALE. */
int sched_client_alone(struct sched *s, sched_client id, bool alone, uint64_t now_ns,
                       struct sched_actions *out);

/* Says whether a client takes part in MPS. The GPU runs all these as one process, whose time slice
 * is not theirs. Returns 0 or -ESTALE. */
int sched_client_mps(struct sched *s, sched_client id, bool mps, uint64_t now_ns,
                     struct sched_actions *out);

/* Says that the daemon can preempt a client, or can no longer: take its channels off the GPU in the
 * middle of its work while it keeps its lease and memory. A client that can no longer be preempted
 * runs again by itself: no action follows. Returns 0 or -ESTALE. */
int sched_client_preemptible(struct sched *s, sched_client id, bool yes, uint64_t now_ns,
                             struct sched_actions *out);

struct sched_attach {
        struct sched_usage usage;
        uint64_t unevictable_requested; /* room for the context that is about to be created */
        bool running;                   /* the client came back with its gate open */
        bool run;                       /* the client has work, as in struct sched_request */
        bool idle;                      /* the running client has nothing in flight */
        bool detached;                  /* the client worked without a daemon before */
        bool spare;                     /* as in struct sched_request */
        uint32_t sequence;              /* number of the message, for a refusal */
};
/* Lets a client use a GPU. Returns 0, -EINVAL, -EEXIST, -ESTALE (no such client). The first LIMIT
 * follows when there is room for the unevictable bytes, a GRANT if the client is running. */
int sched_client_attach(struct sched *s, sched_client id, unsigned gpu,
                        const struct sched_attach *a, uint64_t now_ns, struct sched_actions *out);

/* Reports new usage. limit_sequence acknowledges a LIMIT; flags is SCHED_POISONED or 0. Returns 0,
 * -EINVAL (no such account, or backed > allocated), -ESTALE. */
int sched_client_usage(struct sched *s, sched_client id, unsigned gpu, const struct sched_usage *u,
                       uint32_t limit_sequence, unsigned flags, uint64_t now_ns,
                       struct sched_actions *out);

/* Sets the client's unevictable bytes as measured with NVML. The greater of this and the client's
 * report counts. */
void sched_client_unevictable(struct sched *s, sched_client id, unsigned gpu,
                              uint64_t unevictable_bytes, uint64_t now_ns,
                              struct sched_actions *out);

struct sched_request {
        uint64_t commit, unevictable, need;
        bool run;
        bool spare; /* the client can do without some of its unevictable bytes: when other clients
                       need the budget, it is asked to give them back */
        bool spare_requested; /* the client can do without the bytes that it requests: they are
                                 refused unless all unevictable bytes stay within their budget */
        uint32_t sequence;    /* number of the message, for a refusal */
};
int sched_client_request(struct sched *s, sched_client id, unsigned gpu,
                         const struct sched_request *w, uint64_t now_ns, struct sched_actions *out);

struct sched_export {
        uint64_t bytes;
        bool held;         /* a returning client exports the bytes already: no answer follows */
        uint32_t sequence; /* number of the message, for a refusal */
};
/* Exported bytes of a client stay on the card for good: they count as unevictable, and the limit
 * never falls below them. A request for more is granted when the limit covers it and every client
 * could still run, or else refused. Fewer bytes take effect at once. */
int sched_client_export(struct sched *s, sched_client id, unsigned gpu,
                        const struct sched_export *p, uint64_t now_ns, struct sched_actions *out);
/* Requests only the commit of a REQUEST that the daemon kept back: the rest of that message may be
 * outdated. */
int sched_client_commit(struct sched *s, sched_client id, unsigned gpu, uint64_t commit,
                        uint32_t sequence, uint64_t now_ns, struct sched_actions *out);

/* The next three functions ignore a lease that is not current, and return 0. They return -ESTALE
 * only for an unknown client. */
int sched_client_idle(struct sched *s, sched_client id, uint64_t lease, bool idle, uint64_t now_ns,
                      struct sched_actions *out);
int sched_client_drained(struct sched *s, sched_client id, uint64_t lease, uint64_t now_ns,
                         struct sched_actions *out);
int sched_client_drain_failed(struct sched *s, sched_client id, uint64_t lease, uint64_t after_ns,
                              uint64_t now_ns, struct sched_actions *out);
/* Says that a client with a lease is frozen (stands) or thawed. A frozen client is not asked to
 * give way, and nobody waits for its lease. The end of the lease ends this. Returns 0, -ESTALE. */
int sched_client_stands(struct sched *s, sched_client id, bool stands, uint64_t now_ns,
                        struct sched_actions *out);
/* Evicts a client, and all that run together with it, until one of them has work. Returns 0,
 * -ESTALE (the client is unknown or lost), -EBUSY (one of them has work), -EAGAIN (the same, but
 * they have just started and may soon be idle), -EPERM (mode off), -ENOMEM (the budget of host
 * memory has no room). */
int sched_client_evict(struct sched *s, sched_client id, uint64_t now_ns,
                       struct sched_actions *out);
/* Says that the card lacked so many bytes when the client created memory within its limit. */
int sched_client_short(struct sched *s, sched_client id, unsigned gpu, uint64_t bytes,
                       uint64_t now_ns, struct sched_actions *out);

/* Says that the connection is gone. The charge stays. */
void sched_client_lost(struct sched *s, sched_client id, uint64_t now_ns,
                       struct sched_actions *out);
/* Says that the client sent BYE, or that its process is gone and the card shows its memory free.
 * Ends the id. */
void sched_client_gone(struct sched *s, sched_client id, uint64_t now_ns,
                       struct sched_actions *out);

/* ---- time and settings ---- */

/* Returns the next time at which sched_tick() has something to do; UINT64_MAX: never. */
uint64_t sched_next_ns(const struct sched *s);
void sched_tick(struct sched *s, uint64_t now_ns, struct sched_actions *out);
/* Prolongs all grace periods by ns, a time in which the daemon listened to no client. Must precede
 * other events of now_ns or later. */
void sched_skip(struct sched *s, uint64_t ns, uint64_t now_ns);
/* Appends the actions that a full list left out. */
void sched_pump(struct sched *s, uint64_t now_ns, struct sched_actions *out);

/* Returns 0, or -EBUSY for SCHED_MODE_OFF while anything is evicted. */
int sched_set_mode(struct sched *s, enum sched_mode mode, uint64_t now_ns,
                   struct sched_actions *out);

/* Sets what may change while clients run: the quanta, handoff_permille, floor_permille, grace_ns,
 * patience_ns, idle_release_ns and window_ns. */
void sched_set_config(struct sched *s, const struct sched_config *c, uint64_t now_ns,
                      struct sched_actions *out);

/* ---- looking ---- */

struct sched_gpu_view {
        uint64_t total, foreign, capacity, headroom, unevictable_budget, visible;
        uint64_t charged, unevictable, committed;
        uint64_t yielded;    /* bytes that idle clients were told to give up by sched_gpu_yield() */
        uint64_t quantum_ns; /* the current quantum */
        uint64_t gib_ns;     /* time to move a GiB of memory, out or in */
        uint64_t handoffs;
        uint64_t handoffs_timed; /* hand-offs whose duration was measured */
        uint64_t handoff_ns;     /* duration of the last of these */
        bool contested;
        bool serial; /* the GPU runs one side at a time (docs/scheduling.md) */
        unsigned waiting, running;
};
int sched_gpu_view(const struct sched *s, unsigned gpu, struct sched_gpu_view *ret);

struct sched_client_view {
        enum sched_state state;
        unsigned flags;
        bool idle;            /* the client is running, with nothing in flight */
        uint64_t since_ns;    /* when the client entered its state */
        uint64_t lease;       /* 0: none */
        uint64_t run_ns;      /* total time with a lease, not idle, overdue or preempted */
        uint64_t handoffs;    /* number of leases lost to other clients */
        uint64_t waited_ns;   /* total time waiting or restoring */
        sched_client blocker; /* the client that this one waits for; 0: none in particular */
        bool foreign;         /* the client waits because of foreign processes alone */
        bool held;            /* the client waits because it has used the time of its maximum */
        int priority;         /* the lowest priority of the clients that run together with it */
        bool preempted;       /* the scheduler keeps its channels off the GPU */
};
int sched_client_view(const struct sched *s, sched_client id, uint64_t now_ns,
                      struct sched_client_view *ret);

/* A short view of a client. It costs a few loads, so the trace takes it after each event. */
struct sched_look {
        enum sched_state state;
        unsigned flags;
        bool idle;        /* as in struct sched_client_view */
        bool grows;       /* it has a lease, and waits for more memory */
        bool unevictable; /* it waits for bytes that cannot be moved */
        bool preempted;   /* as in struct sched_client_view */
};
int sched_client_look(const struct sched *s, sched_client id, struct sched_look *ret);
/* Returns a client whose look has changed since it was returned last; 0: there is none. */
sched_client sched_take_changed(struct sched *s);

struct sched_account_view {
        struct sched_usage usage;
        uint64_t commit, limit, charge, need;
        uint64_t unevictable; /* unevictable bytes without the exported ones */
        uint64_t exported;    /* the part of the allocated bytes that is exported */
        bool spare;           /* the client holds or requests spare unevictable bytes */
        uint64_t commit_held; /* the highest commit that the client has not given back yet */
        uint64_t paid_ns;     /* the card's time that it was billed for, hand-offs included */
        /* The part of `unevictable` that the client has reported, or may have without asking. */
        uint64_t unevictable_known;
        /* Commit, unevictable and exported bytes if all pending requests were granted. */
        uint64_t commit_asked, unevictable_asked, exported_asked;
};
int sched_account_view(const struct sched *s, sched_client id, unsigned gpu,
                       struct sched_account_view *ret);
/* True if a request for so much commit would be granted now. */
bool sched_commit_fits(const struct sched *s, sched_client id, unsigned gpu, uint64_t commit);

struct sched_expected {
        sched_client client;
        uint64_t ns; /* time until its turn */
};
/* Lists the clients that wait for a turn on a GPU, in the order of their turns. The times suppose
 * that all turns before are used up and nobody else comes. Leaves out clients that have no room
 * now, or no time left below a maximum. Returns how many it lists, at most `most`. */
unsigned sched_gpu_expected(struct sched *s, unsigned gpu, uint64_t now_ns,
                            struct sched_expected *list, unsigned most);

/* Counts how often clients changed from one state to another since sched_new(). SCHED_STATES stands
 * for an absent client: not added yet, or ended. set and cleared count by bit number of enum
 * sched_flags. */
#define SCHED_STATES (SCHED_EVICTING + 1)
#define SCHED_FLAGS  5
struct sched_transitions {
        uint64_t state[SCHED_STATES + 1][SCHED_STATES + 1];
        uint64_t set[SCHED_FLAGS], cleared[SCHED_FLAGS];
};
void sched_transitions(const struct sched *s, struct sched_transitions *ret);

const char *sched_state_name(enum sched_state state);              /* "idle", "waiting", ... */
const char *sched_flag_name(unsigned number);                      /* name of bit 1 << number */
const char *sched_mode_name(enum sched_mode mode);                 /* "auto", "exclusive", "off" */
int sched_mode_parse(const char *text, enum sched_mode *ret_mode); /* returns 0, or -EINVAL */

/* Checks the invariants of docs/scheduling.md, for tests. Returns NULL, or a sentence that names
 * the broken invariant. */
const char *sched_check(const struct sched *s, uint64_t now_ns);
