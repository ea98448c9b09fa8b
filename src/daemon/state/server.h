/* server.h: the state of the daemon's one loop.
 *
 * main.c and private.c start it; client.c owns connections, session.c translates between messages
 * and the scheduler, looks.c and measure.c read NVML's figures, control.c takes orders, status.c
 * describes. One thread. Handlers mark a client as dropped; after the batch server.c's sweep tells
 * the scheduler and frees the client. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "daemon/setup/config.h"
#include "daemon/cards/gpus.h"
#include "daemon/state/pass.h"
#include "daemon/people/peer.h"
#include "daemon/setup/place.h"
#include "daemon/cards/reader.h"
#include "daemon/people/users.h"
#include "sched/sched.h"
#include "wire/wire.h"

struct client;
struct control;
struct peer_daemons;

enum server_end {
        SERVER_STOPPED = 0, /* a signal or an order */
        SERVER_LONELY = 3,  /* a private daemon without a client for the linger time */
};

struct server {
        sd_event *event;
        const struct config *config;
        struct place *place;
        struct sched *sched;
        struct sched_actions actions; /* of the event being handled */
        struct pass pass;             /* descriptors that came with the message being handled */
        struct reader *reader;        /* asks NVML */
        const struct nvml_look *look; /* the last look; NULL: NVML is missing, or late */
        uint64_t look_ns;             /* when it was asked for */
        uint64_t sample_ns;           /* since when a sample is due; 0: none is */
        unsigned blind;               /* consecutive looks that listed no card */
        struct gpus gpus;
        struct users *users;
        struct peer_daemons *peer_daemons; /* NULL: there is no socket to them */
        uint64_t instance;
        uint64_t started_ns;
        uint64_t host_budget_bytes;
        uint64_t host_mapped;     /* part of it that clients may map: Σ client.host */
        uint64_t return_until_ns; /* after a crash: clients come back, and the marker stays */

        struct client *clients;  /* every connection, and every process with a charge */
        struct client **by_slot; /* by the low half of the scheduler's id */
        unsigned n_clients, n_attached;
        bool marked; /* the sweep has something to do */
        struct control *controls;

        sd_event_source *client_source, *control_source, *status_source, *post_source, *turn_source;
        struct user_queue *turns; /* turns.c: users whose clients have messages to read */
        sd_event_source *sched_timer, *measure_timer, *linger_timer, *accept_timer;
        bool linger;
        bool open; /* takes connections */

        enum sched_mode mode; /* as set now */
        uint64_t quantum_ns;  /* 0: auto */
};

/* No free descriptor: stop accepting for a moment. */
void server_no_descriptor(struct server *s);
/* False: accepting has been stopped for a moment, because too many descriptors are being closed. */
bool server_may_accept(struct server *s);
/* Take connections, or none. */
void server_set_accepting(struct server *s, bool accept);
/* Arm the timer for usec from now if wanted and not armed yet; disarm it if not wanted. */
void server_arm_once(sd_event_source *timer, bool wanted, uint64_t usec);
/* End the loop after this batch. */
void server_stop(struct server *s, enum server_end why);
/* The client with this id, or NULL. */
struct client *server_find(const struct server *s, sched_client id);

/* Take connections from now on: the cards are known, or will not be for a while. */
void server_open_doors(struct server *s);

/* Foreign memory has changed: look again after this batch, not a second later. */
void server_measure_soon(struct server *s);
