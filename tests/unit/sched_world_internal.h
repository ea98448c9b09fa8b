/* sched_world_internal.h: types and functions that the files of the world share. */
#pragma once

#include "base/clock.h"
#include "base/macros.h"
#include "sched_world.h"

#define NEVER UINT64_MAX

enum message_type {
        UP_USAGE,
        UP_REQUEST,
        UP_IDLE,
        UP_DRAINED,
        UP_DRAIN_FAILED,
        UP_SHORT,
        UP_ATTACH,
        UP_EXPORT,
        UP_GARBAGE,
        DOWN_ACTION,
};

struct message {
        uint64_t at_ns;
        enum message_type type;
        unsigned gpu;
        struct sched_usage usage;
        uint32_t limit_sequence;
        struct sched_request request;
        struct sched_attach attach;
        struct sched_export export;
        uint64_t lease, bytes;
        bool idle, poisoned, paused;
        struct sched_action action;
};

/* Messages on their way, first in, first out, like in a socket. Each queue draws its own delays, so
 * that they do not depend on other queues. */
struct queue {
        struct message *list;
        unsigned first, n, size;
        uint64_t last_ns, random;
};

struct on_gpu {
        bool used, known;                            /* known: the daemon has received its ATTACH */
        uint64_t allocated, backed, unevictable;     /* bytes that really exist */
        uint64_t commit, limit, unevictable_allowed; /* limits that the daemon last sent */
        uint32_t limit_sequence;
        uint64_t commit_asked, unevictable_asked; /* totals requested; 0: no request in progress */
        uint64_t spare;        /* part of `unevictable` that the process can spare */
        bool spare_asked;      /* unevictable_asked is for bytes that the process can spare */
        uint64_t commit_exact; /* bytes that the program really needs */
        uint32_t commit_sequence, unevictable_sequence, export_sequence;
        uint64_t exported, export_asked; /* export_asked: total requested; 0: no request */
        uint64_t asked_ns;
        bool request_sent;
        uint64_t request_need;
        uint64_t need_delivered; /* bytes that the daemon knows must be backed; 0 once granted */
};

/* The ways in which a client keeps the words of the protocol and not its sense. */
enum lie {
        LIE_NONE,
        LIE_DRIBBLES,    /* moves one byte now and then */
        LIE_SLOW,        /* moves memory 30 times as slowly as others */
        LIE_ASKS,        /* has nothing to do, and sends requests without RUN all the time */
        LIE_FLAPS,       /* has nothing to do, and says in turn that it is idle and active */
        LIE_REFUSES,     /* each of its drains fails */
        LIE_SILENT,      /* hears nothing once it has a lease */
        LIE_SHORT_LIVED, /* ends after a moment, and starts again at once */
        LIES
};

/* How far a maximum is passed: the time in use, less the part that the maximum allows; at least
 * 0. */
struct meter {
        bool busy; /* since the last event, one of its processes had a lease and work */
        uint64_t above_ns;
};

struct process {
        enum lie lie;
        bool deaf; /* LIE_SILENT, from its first lease on */
        bool alive, connected, attached, stopped, hostile;
        sched_client id;
        int priority;
        struct on_gpu gpu[WORLD_GPUS_MAX];
        struct queue up, down;

        bool wants_run; /* threads wait at the gate, or work is in flight */
        bool idle, poisoned, detached;
        uint64_t lease, old_lease; /* old_lease: the previous lease on this connection; 0: none */
        bool lease_known;          /* the lease was granted on this connection */
        bool draining;
        bool stubborn;    /* drains of the process fail */
        bool failed;      /* a drain of this lease has failed */
        bool cramped;     /* host memory is full: nothing can leave the card */
        bool paused;      /* a person's order has frozen the process */
        bool parks;       /* while paused, the process keeps its memory on the card */
        bool stands;      /* the daemon knows that the process is frozen with its memory */
        bool preemptible; /* the daemon can preempt the process */
        bool preempted;   /* the process is off the GPU */
        uint64_t size;    /* bytes that the process intends to allocate */

        uint64_t start_ns, think_ns, drain_ns, move_ns, continue_ns, reconnect_ns, gone_ns;
        struct sched_share share; /* what it asks for itself */
        struct meter meter[WORLD_GPUS_MAX];
        uint64_t held_ns; /* how long it has been held while nobody uses up its time */

        uint64_t waited_ns;
        bool stalls;
        uint64_t stalled_ns, moved_seen;
        uint32_t sequence;
        uint64_t random;
};

#define WORLD_USERS 3

/* A class, or a user without one. */
struct portion {
        struct sched_share share;
        struct meter meter[WORLD_GPUS_MAX];
};

struct world {
        struct world_options o;
        struct portion portions[WORLD_USERS];
        uint64_t random; /* random state of the chooser that acts now */
        uint64_t daemon_random, now_ns;
        struct sched *s;
        bool restarted_once, traced, attaching;

        /* The choices of programs and fate; everything else follows from them. */
        struct world_choice *choices;
        unsigned n_choices, size_choices, next_choice;
        bool replaying;
        uint64_t restart_until_ns;
        uint64_t foreign[WORLD_GPUS_MAX];
        uint64_t yields[WORLD_GPUS_MAX]; /* bytes that peer daemons report waiting for */
        uint64_t foreign_seen_ns; /* time at which the daemon sees the foreign bytes change */
        bool foreign_pending, foreign_ever;
        struct process p[WORLD_CLIENTS_MAX];
        uint64_t fate_ns;
        uint64_t calm_ns;               /* time since anything extraordinary happened */
        uint64_t moved[WORLD_GPUS_MAX]; /* bytes that came to a card or left it */
        uint64_t grants_seen;
        bool ever_unordinary; /* something extraordinary has happened at some time */
        enum sched_mode mode;
        struct world_counts counts;
        const char *broken;
        char text[256];
};

/* ---- sched_library.c ---- */
uint64_t next_random(uint64_t *state);
uint64_t below(struct world *w, uint64_t n);
bool chance(struct world *w, unsigned permille);
void fail(struct world *w, const char *text, unsigned process);
unsigned number(const struct world *w, const struct process *p);
bool are_one(const struct world *w, const struct process *p, const struct process *q);
/* True if they are of one job, whose processes may share an exclusive card. */
bool are_one_job(const struct world *w, const struct process *p, const struct process *q);
void trace(struct world *w, const struct process *p, const char *what, const struct message *m);
void push(struct world *w, struct queue *q, const struct message *m);
void drop_messages(struct queue *q);
void send_usage(struct world *w, struct process *p, unsigned gpu);
void send_request(struct world *w, struct process *p, unsigned gpu, uint64_t commit,
                  uint64_t unevictable);
void send_export(struct world *w, struct process *p, unsigned gpu, uint64_t bytes, bool held);
void send_lease(struct world *w, struct process *p, enum message_type type, uint64_t lease);
uint64_t mix(uint64_t a, uint64_t b);
uint64_t really_free(const struct world *w, unsigned gpu);
bool is_open(const struct process *p); /* the gate is open */
bool runs(const struct process *p);
void agent(struct world *w, struct process *p);
void move(struct world *w, struct process *p);
void drained(struct world *w, struct process *p);
void set_paused(struct world *w, struct process *p, bool paused);
void receive(struct world *w, struct process *p, const struct sched_action *a);

uint64_t extent(const struct world *w); /* memory moves in whole extents */

/* ---- sched_liars.c ---- */
void liar_draw(struct world *w, struct process *p);
bool liar_thinks(struct world *w, struct process *p);
uint64_t liar_moves(const struct process *p, uint64_t bytes);
uint64_t liar_move_ns(const struct process *p, uint64_t ns);
bool liar_ignores(struct process *p);
bool is_excused(const struct world *w, const struct process *p);
void check_stalls(struct world *w, int highest, uint64_t passed_ns);

/* ---- sched_portions.c ---- */
/* Draws what each class, and each user without one, gets. */
void portions_draw(struct world *w);
/* Draws what a process asks for itself. */
void portions_ask(struct world *w, struct process *p);
/* Returns the class, user and container of a process. */
struct sched_origin portions_origin(const struct world *w, const struct process *p);
/* The owner changes what they get, and the daemon reads it. */
void portions_reload(struct world *w);
/* True if a maximum leaves the process no time now. */
bool is_held(const struct world *w, const struct process *p);
/* Checks after each event that no maximum is passed, and that nobody is held for too long. */
void check_maxima(struct world *w, uint64_t passed_ns);

/* ---- sched_process.c ---- */
void connect_process(struct world *w, struct process *p);
void disconnect(struct world *w, struct process *p);
void start_process(struct world *w, struct process *p);
void kill_process(struct world *w, struct process *p);
void end_process(struct world *w, struct process *p);
void bury(struct world *w, struct process *p);
void think(struct world *w, struct process *p);

/* ---- sched_world.c ---- */
void perform(struct world *w, struct sched_actions *out);
void tell_preemptible(struct world *w, struct process *p, bool yes);
bool calm(const struct world *w);
uint64_t headroom(const struct world *w);
