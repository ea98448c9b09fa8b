/* server.h: the state of the daemon's one loop.
 *
 * main.c and private.c start the loop; client_connection.c owns connections, session.c translates
 * between messages and the scheduler, looks.c and card_figures.c read NVML's figures, control.c
 * takes orders, order_status.c describes the state. One thread. Handlers mark a client as dropped;
 * after the batch loop.c's sweep tells the scheduler and frees the client. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "daemon/setup/config.h"
#include "daemon/cards/gpus.h"
#include "daemon/state/pass.h"
#include "daemon/people/peer.h"
#include "daemon/setup/daemon_folder.h"
#include "daemon/cards/reader.h"
#include "daemon/people/users.h"
#include "job/ways.h"
#include "sched/sched.h"
#include "wire/wire.h"

struct client;
struct control;
struct hand;
struct host_pools;
struct mps_servers;
struct peer_daemons;
struct reservations;
struct ring;
struct sources;
struct submits;
struct tally;
struct endpoint;

enum server_end {
        SERVER_STOPPED = 0, /* by a signal or an order */
        SERVER_LONELY = 3,  /* a private daemon had no client for the linger time */
        SERVER_AFRESH = 4,  /* the first good configuration is there: begin again with it */
};

/* Counts of submitted jobs. */
struct server_jobs {
        unsigned waiting, running, below; /* below: jobs observed to be below their bound */
        unsigned pairs[WAYS];             /* pairs, by the way that they run in now */
};

struct server {
        sd_event *event;
        const struct config *config; /* the settings in force: `settings`, which only order_reload.c
                                        changes */
        struct config settings;
        struct config files;     /* `settings` without what orders changed; shares its classes */
        struct sources *sources; /* where a reload reads the settings */
        bool held; /* there is no good configuration: no client is welcomed (session.c) */
        struct place *place;
        struct sched *sched;
        struct sched_actions actions; /* actions of the event that is being handled */
        struct pass pass;             /* descriptors of the message that is being handled */
        struct reader *reader;        /* the process that calls NVML */
        const struct nvml_look *look; /* the last look; NULL: NVML is missing, or late */
        uint64_t look_ns;             /* when that look was requested */
        uint64_t sample_ns;           /* since when a sample is due; 0: no sample is due */
        unsigned blind;               /* consecutive looks without a readable card */
        struct gpus gpus;
        struct users *users;
        struct hand *hand; /* takes programs off the GPU; NULL: not made yet (preemption.c) */
        struct host_pools *host_pools;     /* memory that clients are evicted to (host_pool.c) */
        struct reservations *reservations; /* NULL: none yet (reserve.c) */
        struct ring *history;              /* the last records of what happened; NULL: no memory */
        struct mps_servers *mps;           /* control daemons of MPS (mps_servers.c) */
        unsigned n_mps;                    /* how many there are */
        struct submits *submits;           /* the queue of submitted jobs (submit.c) */
        struct server_jobs jobs;           /* counts of the jobs in the queue */
        struct peer_daemons *peer_daemons; /* NULL: the socket could not be opened */
        uint64_t instance;
        uint64_t started_ns;
        uint64_t host_budget_bytes;
        uint64_t host_mapped;     /* host memory that clients may map, part of host_budget_bytes: Σ
                                     client.host */
        uint64_t return_until_ns; /* until then, after a crash, clients come back and the marker
                                     stays */

        struct client *clients;  /* all connections, and all processes with a charge */
        struct client **by_slot; /* the clients, by the low half of the scheduler's id */
        unsigned n_clients, n_attached;
        uint64_t rank_groups; /* numbers given so far to groups that take turns */
        bool marked;          /* a client is marked for the sweep */
        struct control *controls;
        struct tally *tally;       /* totals for the metrics */
        struct endpoint *endpoint; /* serves the metrics; NULL: nobody asked for them */

        sd_event_source *client_source, *control_source, *status_source, *post_source, *turn_source;
        sd_event_source *metrics_source; /* the endpoint's; NULL: there is none */
        struct user_queue *turns; /* users whose clients have messages to read (read_turns.c) */
        sd_event_source *sched_timer, *measure_timer, *linger_timer, *accept_timer;
        bool linger;
        bool open; /* connections are accepted */

        uint32_t class_numbers; /* the last number that a class was given */
};

/* Call it if no descriptor is free: stops accepting for a moment. */
void server_no_descriptor(struct server *s);
/* True if connections may be accepted. False: too many descriptors are being closed, so accepting
 * was stopped for a moment. */
bool server_may_accept(struct server *s);
/* Starts or stops accepting connections. */
void server_set_accepting(struct server *s, bool accept);
/* Arms the timer for usec from now, if wanted and not armed yet; disarms it if not wanted. */
void server_arm_once(sd_event_source *timer, bool wanted, uint64_t usec);
/* Ends the loop after this batch. */
void server_stop(struct server *s, enum server_end why);
/* Returns the client with this id, or NULL. */
struct client *server_find(const struct server *s, sched_client id);

/* Accepts connections from now on: the cards are known, or will not be known for a while. */
void server_open_doors(struct server *s);

/* Call it when foreign memory has changed: looks at the cards after this batch, not a second
 * later. */
void server_measure_soon(struct server *s);
