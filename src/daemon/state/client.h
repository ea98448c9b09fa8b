/* client.h: the record of one client process: its connection, and its charge until its memory is
 * free.
 *
 * It lives from accept until the process has ended and its memory is seen free; before its first
 * ATTACH until the connection ends. Only server.c's sweep frees one. */
#pragma once

#include "daemon/people/peer.h"
#include "daemon/state/server.h"

#define CLIENT_QUEUE 64 /* packets kept for a client whose socket is full */

struct client_packet {
        uint16_t size;
        uint8_t bytes[WIRE_SIZE_MAX];
};

struct client_account {
        int ordinal;         /* the client's number for this GPU; -1: not attached */
        uint64_t limit_told; /* LIMIT.backed of the last one sent */
        uint64_t unevictable[3];
        unsigned n_unevictable;
        uint64_t unevictable_told;      /* to the scheduler */
        uint64_t managed;               /* MANAGED.bytes */
        uint64_t spared_out, spared_in; /* SPARED */
        uint64_t overflow, keep;        /* SELF */
        enum wire_memory mode;          /* the same; 0: not said */
        bool named;                     /* NVML has listed the process with a valid figure */
};

struct client {
        struct server *server;
        struct client *next, *previous;
        struct peer peer;
        struct user *user;
        struct client *turn_next; /* turns.c */
        bool turn_waits;
        int fd; /* -EBADF: the connection is gone */
        sd_event_source *io, *exit, *timer;
        uint32_t sequence; /* of the last message sent */

        bool greeted, said_bye;
        bool dropped;   /* marked: the sweep closes the connection */
        bool lost_told; /* the scheduler knows */
        bool exited;    /* the process has ended; what it sent is read to the end */
        bool ended;     /* and all of that has been read */
        bool gone;      /* and its memory is free: the sweep frees the client */
        unsigned gone_checks;
        unsigned last_words; /* messages read after its end */
        uint64_t lost_ns;    /* when the connection ended, */
        uint64_t ended_ns;   /* and the process */

        /* An ATTACH that waits for a look at the cards; nothing else is read meanwhile. */
        struct client_held {
                struct wire_message message;
                uint64_t since_ns; /* 0: none does */
                bool due;          /* the look is there */
        } held;

        sched_client id;       /* 0: it has not attached a GPU yet */
        struct client *former; /* this process's record of an earlier connection, while that still
                                  has memory */
        int gpu_of[WIRE_GPUS_MAX]; /* index by the client's number; -1: none */
        struct client_account accounts[SCHED_GPUS_MAX];
        uint64_t host;          /* host memory that it may map */
        uint64_t ran_before_ns; /* reports that it had a turn and was busy before this connection */
        char name[64], version[32];
        uint8_t meet_name[16]; /* the name by which other processes of its user may ask for it */
        bool may_be_met;       /* it has one */
        int priority;

        /* The order to stand still on the GPU (pause.c). */
        struct client_pause {
                bool ordered;
                bool known;  /* by an order, or from an earlier connection */
                bool told;   /* on this connection */
                bool stands; /* it keeps its memory meanwhile, and the scheduler knows */
        } pause;
        /* Figures of FROZEN, for display only. */
        struct client_frozen {
                bool said;
                uint64_t since_ns; /* 0: it is not */
                uint64_t times, lost_ns, took_ns;
                uint32_t why, mode;
                char off[96];
        } frozen;

        /* A commit request that is held back while idle clients of peer daemons may give way. */
        struct client_request {
                uint64_t commit, since_ns;
                uint32_t sequence;
                unsigned gpu; /* the scheduler's */
                bool kept;
        } request;

        struct client_packet *queue; /* ring, allocated when first needed */
        unsigned queue_first, queue_used;
};

/* Send now or queue; a client that does not read is dropped. gpu: the client's own number. */
void client_send(struct client *c, struct wire_message *m);
/* The same with descriptors, which stay the caller's. They go along only if the message goes now:
 * the receiver counts those that came. */
void client_send_with(struct client *c, struct wire_message *m, const int *fds, unsigned n_fds);
/* Mark the connection for the sweep. why: for the log. */
void client_drop(struct client *c, const char *why);
/* The same after REFUSED(code, text). */
void client_refuse(struct client *c, enum wire_refusal code, const char *text);
/* Nothing of the process is left on any card: mark the whole client for the sweep. */
void client_mark_gone(struct client *c);

/* Watch its socket: for reading if the client may send more now, for writing if messages wait. */
void client_watch(struct client *c);
void client_flush(struct client *c);
/* REFUSED(code, text), as the first message of a connection. */
struct wire_message client_refusal(enum wire_refusal code, const char *text);
