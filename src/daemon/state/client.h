/* client.h: the record of one client process: its connection, and its charge until its memory is
 * free.
 *
 * It exists from accept until the process has ended and its memory is seen free; without any ATTACH
 * only until the connection ends. Only loop.c's sweep frees a record. */
#pragma once

#include "base/macros.h"
#include "daemon/people/container.h"
#include "daemon/people/peer.h"
#include "daemon/state/server.h"

#define CLIENT_QUEUE 64 /* packets kept for a client whose socket is full */

struct host_pool;
struct mps_place;

struct client_packet {
        uint16_t size;
        uint8_t bytes[WIRE_SIZE_MAX];
};

struct client_account {
        int ordinal;         /* the client's number for this GPU; -1: not attached */
        uint64_t limit_told; /* LIMIT.backed of the last LIMIT sent */
        /* The last samples of its unevictable bytes, and of the part that it had not reported. */
        uint64_t unevictable[3], excess[3];
        unsigned n_unevictable;
        uint64_t cover_commit, cover_excess; /* what its cap has allowed (entitlement.c) */
        uint64_t backed_seen, moved_seen; /* USAGE at the last look: backed, and all moved bytes */
        uint64_t unevictable_told;        /* unevictable bytes that the scheduler was told */
        uint64_t managed, managed_left;   /* figures of MANAGED */
        uint64_t spared_out, spared_in;   /* figures of SPARED */
        uint64_t overflow, keep;          /* figures of SELF */
        enum wire_memory mode;            /* SELF.mode; 0: not reported */
        bool shared;                      /* SELF.way: it takes part in MPS */
        bool unpin_told;                  /* UNPIN was sent after the last USAGE */
        bool named;                       /* NVML has listed the process with a valid figure */

        /* What the totals of the metrics contain already (tally.c). */
        struct client_account_counted {
                bool begun; /* a USAGE has come */
                uint64_t billed_ns, moved_out, moved_in;
                uint64_t out_before, in_before; /* bytes moved before the last turn */
        } counted;
        /* What the last records say (history.c). */
        struct client_noted {
                bool known; /* there are records of the client on this GPU */
                uint64_t moved_out, moved_in, backed;
        } noted;
};

struct client {
        struct server *server;
        struct client *next, *previous;
        struct peer peer;
        struct container container;
        struct user *user;
        struct client *turn_next;    /* link of the user's queue (read_turns.c) */
        bool turn_waits, turn_joins; /* it waits to be read, and in which list (users.h) */
        int fd;                      /* -EBADF: the connection has ended */
        sd_event_source *io, *exit, *timer;
        uint32_t sequence; /* sequence of the last message sent */

        bool greeted, said_bye;
        bool dropped;   /* marked: the sweep closes the connection */
        bool lost_told; /* the scheduler knows that the connection is lost */
        bool exited;    /* the process has ended; what it sent is still being read */
        bool ended;     /* the process has ended, and all it sent has been read */
        bool gone; /* the process has ended and its memory is free: the sweep frees the record */
        unsigned gone_checks;
        unsigned last_words; /* messages read after the process has ended */
        uint64_t lost_ns;    /* when the connection ended */
        uint64_t ended_ns;   /* when the process ended */

        /* An ATTACH or a JOIN that waits for a look at the cards; no other message is read until
         * then. */
        struct client_held {
                struct wire_message message;
                uint64_t since_ns; /* 0: no message waits */
                bool due;          /* the look has come: handle the message */
        } held;

        sched_client id; /* the scheduler's name of the client; 0: it has not attached a GPU yet */
        struct client *former; /* the process's record of an earlier connection, while that record
                                  has memory */
        int gpu_of[WIRE_GPUS_MAX]; /* our number of a GPU, by the client's number; -1: none */
        struct client_account accounts[SCHED_GPUS_MAX];
        uint64_t host;          /* host memory that the process may map */
        struct host_pool *pool; /* the pool of its process; NULL: none (host_pool.c) */
        uint64_t ran_before_ns; /* SELF.ran_ns: busy time in turns before this connection */
        char name[64], version[32], group[WIRE_GROUP_MAX + 1];
        bool takes_turns; /* it and others of its group take turns, so they need not fit together */
        uint64_t rank_of; /* number of that group, among all that take turns; 0: none */
        uint8_t broker_name[16]; /* the name by which other processes of its user may ask for it */
        bool may_be_met;         /* broker_name is set */
        int priority;
        const struct class *class; /* its class by the configuration; NULL: none */

        /* Its own limits, from its CLAIM or from an order. */
        struct client_claim {
                uint64_t memory_cap;
                unsigned weight, minimum, maximum;
                bool by_owner; /* the daemon's owner gave it, so the program does not change it */
        } claim;

        /* The order to pause on the GPU (pause.c). */
        struct client_pause {
                bool ordered;
                bool known;  /* `ordered` is valid: from an order, or an earlier connection */
                bool told;   /* the client was told on this connection */
                bool stands; /* it keeps its memory during the pause, and the scheduler knows */
        } pause;
        /* The daemon's hand (preemption.c). */
        struct client_hand {
                bool offered;               /* the hand knows the client by its id */
                bool ready;                 /* the hand can take it off the GPU */
                bool off;                   /* it is off the GPU by the last order */
                uint64_t since_ns, took_ns; /* when that was, and how long the hand took for it */
                uint64_t times, off_ns; /* how often it was taken off, and how long it was off */
        } hand;
        /* Figures of FROZEN, for display only. */
        struct client_frozen {
                bool said;
                uint64_t since_ns; /* 0: not frozen */
                uint64_t times, lost_ns, took_ns;
                uint32_t why, mode;
                char off[96];
        } frozen;

        /* The client's state in its last records, and their positions (history.c). */
        struct client_history {
                bool entered; /* it has a row in the ring: `program` */
                uint16_t program;
                uint8_t state, marks;
                uint64_t noted_ns, at; /* time of those records, and count of all records then */
                uint64_t unused_ns;    /* since when it does not use its lease; 0: it does */
        } history;

        /* A request for room to allocate that is held back while idle clients of peer daemons may
         * give way. */
        struct client_request {
                uint64_t commit, since_ns;
                uint32_t sequence;
                unsigned gpu; /* the scheduler's number */
                bool kept;
        } request;

        /* What the totals of the metrics contain already, for all GPUs together (tally.c). */
        struct client_counted {
                uint64_t settled_ns; /* when it was counted last */
                uint64_t lease_ns, waited_ns, handoffs;
                uint64_t waited_before_ns; /* time waited before the last turn */
        } counted;

        struct mps_place *joins; /* the place whose MPS server its JOIN waits for; NULL: none */
        bool joined;             /* it has sent JOIN */
        char joins_devices[48];  /* JOINED.devices of the answer */

        /* The submitted job that it belongs to (gpus_in_use.c). */
        struct client_job {
                bool known;                 /* the job was looked for */
                bool alone;                 /* the scheduler knows that it takes turns */
                uint32_t id;                /* 0: none */
                unsigned returned;          /* how many jobs had come back by then */
                uint64_t run_ns, worked_ns; /* its run time, and when it last did anything */
        } job;

        struct client_packet *queue; /* a ring buffer, allocated when first needed */
        unsigned queue_first, queue_used;
};

static inline bool client_is_process(const struct client *c, pid_t pid)
{
        return c->peer.pid == pid && !c->exited && !c->ended;
}

/* Returns the newest record of the process that has attached a GPU, the one that status shows;
 * NULL: there is none. The list begins with the newest. */
static inline struct client *client_of_process(const struct server *s, pid_t pid)
{
        for (struct client *c = s->clients; c; c = c->next)
                if (c->id && client_is_process(c, pid))
                        return c;
        return NULL;
}

/* True if the client reports that it stands still by a person's order. Wherever states are shown or
 * counted, its state is then "paused". */
static inline bool client_is_paused(const struct client *c)
{
        return c->fd >= 0 && c->frozen.since_ns && (c->frozen.why & WIRE_FROZEN_PAUSED);
}

/* Returns how many bytes overflow to host memory, as the client reports it, but at most the host
 * memory that it may map. */
static inline uint64_t client_overflow(const struct client *c, unsigned gpu)
{
        return MIN(c->accounts[gpu].overflow, c->host);
}

/* Returns the bytes of pinned host memory that the client needs neither for memory that is evicted
 * nor for memory that is to leave. */
static inline uint64_t client_spare_arena(const struct sched_account_view *v)
{
        return sub_sat(v->usage.arena, sub_sat(v->usage.allocated, MIN(v->usage.backed, v->limit)));
}

/* Returns the client's account on the GPU. Its commit_asked includes the request that the daemon
 * holds back, because that is granted later without another check. False: the client does not use
 * the GPU. */
static inline bool client_asked(const struct client *c, unsigned gpu,
                                struct sched_account_view *ret)
{
        if (!c->id || sched_account_view(c->server->sched, c->id, gpu, ret) < 0)
                return false;
        if (c->request.kept && c->request.gpu == gpu)
                ret->commit_asked = MAX(ret->commit_asked, c->request.commit);
        return true;
}

/* Sends the message, or queues it; a client that does not read is dropped. The message's gpu is the
 * client's own number. */
void client_send(struct client *c, struct wire_message *m);
/* As client_send(), with descriptors, which the caller keeps. They go along only if the message is
 * sent at once: the receiver counts the descriptors that came. */
void client_send_with(struct client *c, struct wire_message *m, const int *fds, unsigned n_fds);
/* Marks the connection for the sweep. why: for the log; NULL: the program has ended,
 * or closed its end. */
void client_drop(struct client *c, const char *why);
/* Marks the connection in the same way, after reading or writing gave this error. */
void client_drop_after(struct client *c, int error);
/* Sends REFUSED(code, text) and marks the connection for the sweep. */
void client_refuse(struct client *c, enum wire_refusal code, const char *text);
/* Marks the whole client for the sweep: nothing of the process is left on any card. */
void client_mark_gone(struct client *c);

/* Watches the client's socket: for reading if its messages may be read now, for writing if messages
 * for it wait. */
void client_watch(struct client *c);
void client_flush(struct client *c);
/* Makes REFUSED(code, text), the first message of a connection. */
struct wire_message client_refusal(enum wire_refusal code, const char *text);
