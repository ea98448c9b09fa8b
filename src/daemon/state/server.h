/* server.h: the daemon's one loop and what its files share.
 *
 * main.c and private.c start it; client.c owns connections, session.c translates between messages
 * and the scheduler, looks.c and measure.c read what NVML says, control.c takes orders, status.c
 * describes. One thread. Handlers mark a client as dropped; server.c's sweep, after the batch,
 * tells the scheduler and frees. */
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
        SERVER_LONELY = 3,  /* private: nobody came for the linger time */
};

struct server {
        sd_event *event;
        const struct config *config;
        struct place *place;
        struct sched *sched;
        struct sched_actions actions; /* of the event being handled */
        struct pass pass;             /* descriptors that came with it */
        struct reader *reader;        /* asks NVML */
        const struct nvml_look *look; /* the last; NULL: NVML is not here, or late */
        uint64_t look_ns;             /* when it was asked for */
        uint64_t sample_ns;           /* since when a sample is due; 0: none is */
        unsigned blind;               /* looks that showed no card, one after the other */
        struct gpus gpus;
        struct users *users;
        struct peer_daemons *peer_daemons; /* NULL: no socket for them */
        uint64_t instance;
        uint64_t started_ns;
        uint64_t host_budget_bytes;
        uint64_t host_mapped;     /* of it, what clients may map: Σ client.host */
        uint64_t return_until_ns; /* after a crash: clients come back, and the marker stays */

        struct client *clients;  /* every connection and every process that holds a charge */
        struct client **by_slot; /* by the low half of the scheduler's id */
        unsigned n_clients, n_attached;
        bool marked; /* the sweep has something to do */
        struct control *controls;

        sd_event_source *client_source, *control_source, *status_source, *post_source, *turn_source;
        struct user_queue *turns; /* turns.c: users whose clients have something to say */
        sd_event_source *sched_timer, *measure_timer, *linger_timer, *accept_timer;
        bool linger;
        bool open; /* takes connections */

        enum sched_mode mode; /* as set now */
        uint64_t quantum_ns;  /* 0: auto */
};

/* Serve until told to stop. enum server_end or -errno. place's sockets listen already. linger:
 * leave when lonely. */
int server_run(const struct config *config, struct place *place, bool linger);

/* The signals that the loop takes. From here on none of them ends the process before its sockets
 * are gone. */
void server_block_signals(void);

/* ---- between the loop and its files ---- */

/* Stop accepting for a moment. */
void server_no_descriptor(struct server *s);
/* False: accepting has been stopped for a moment, because too much is being closed. */
bool server_may_accept(struct server *s);
/* Take connections, or none. */
void server_set_accepting(struct server *s, bool accept);
/* Let the timer go off after usec if that is wanted, unless it is set already. */
void server_arm_once(sd_event_source *timer, bool wanted, uint64_t usec);
/* Leave the loop after this batch. */
void server_stop(struct server *s, enum server_end why);
/* The client with this id, or NULL. */
struct client *server_find(const struct server *s, sched_client id);

/* session.c */
int session_handle(struct client *c, const struct wire_message *m); /* 0, or -errno: dropped */
/* One request is refused, the connection stays. gpu: as the client numbers them. */
void event_refuse(struct client *c, unsigned gpu, enum wire_refusal code, uint32_t of,
                  const char *text);
/* Requests that were kept back are made now, or kept on. */
void session_resume(struct server *s);
void event_begin(struct server *s); /* before an event of the scheduler */
void event_end(struct server *s);   /* and after it: carry its actions out */
/* A client is gone: what it had mapped of host memory is free. */
void session_host_back(struct client *c);

/* From now on connections are taken: it is known which cards there are, or that it will not be for
 * a while. */
void server_open_doors(struct server *s);

/* looks.c */
/* A sample of all cards is due: ask for a look. */
void looks_sample(struct server *s);
/* The reader's answer. userdata: the server. */
void looks_told(void *userdata, const struct nvml_look *look, uint64_t asked_ns);

/* What others use has changed: look again after this batch, not a second later. */
void server_measure_soon(struct server *s);

/* measure.c */
/* There is a new look. sample: take one of each card, once a period; else of cards without any. */
void measure_looked(struct server *s, bool sample);
/* A period is over, whether anything was measured or not. */
void measure_period(struct server *s);
/* Bytes that others use, as last measured, one odd sample left out. */
uint64_t measure_foreign(const struct gpu *g);
/* Between the periods, where somebody has a reason to know soon: the next look is made at once. */
/* Foreign processes hold more than was thought: it did not fit beside them. */
void measure_rise(struct server *s, unsigned gpu);
/* The most that this process held of the card at the last look; UINT64_MAX: unknown. */
uint64_t measure_most(struct server *s, const struct client *c, unsigned gpu);
/* The card shows no memory of this process, in a listing later than since_ns, as far as can be
 * told; ret_sure: NVML has named this process before, or would have by now, so that its silence
 * means something. */
bool measure_is_gone(struct server *s, struct client *c, uint64_t since_ns, bool *ret_sure);

/* allowance.c: what a user who is not the daemon's own may hold, over all his clients */
bool allowance_applies(const struct client *c);
/* For this client, beside what it has exported, and to be exported, beside what it has unevictable;
 * UINT64_MAX: no limit. */
uint64_t allowance_unevictable(struct client *c, unsigned gpu);
uint64_t allowance_exported(struct client *c, unsigned gpu);
bool allowance_commit(struct client *c, unsigned gpu, uint64_t wanted);
/* How much host memory c may map. */
uint64_t allowance_host(struct client *c);
/* He may name one more card that NVML does not know. */
bool allowance_card(const struct client *c);
/* Of the figures that a client comes with, what can be true. */
void allowance_claim(struct client *c, unsigned gpu, struct sched_usage *u);
/* Of the figures of a USAGE: nobody holds more than he was ever allowed. */
void allowance_usage(struct client *c, unsigned gpu, struct sched_usage *u);

/* control.c: of control.sock and of status.sock */
int control_accept(sd_event_source *src, int fd, uint32_t events, void *userdata);
int control_accept_viewer(sd_event_source *src, int fd, uint32_t events, void *userdata);
void control_close_all(struct server *s);

void control_sweep(struct server *s); /* free the ones that are marked */

/* status.c: a new reference; NULL: no memory. What a plain user may not know of others is null. */
struct json_t *status_json(struct server *s, const struct peer *viewer);
