/* state.h: what the files of the queue that do I/O share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <systemd/sd-event.h>

#include "daemon/people/peer.h"
#include "daemon/queue/matcher.h"
#include "daemon/queue/queue.h"
#include "daemon/state/outbox.h"
#include "daemon/state/server.h"

#define SUBMIT_LINE_MAX 1024u
#define SUBMIT_SAID_MAX 512u

/* One connection of sublet submit. */
struct submission {
        struct submits *all;
        struct submission *next;
        struct peer peer; /* without a pidfd */
        int fd;
        sd_event_source *io;
        bool dead; /* marked: submit_settle() frees it */

        struct queue_wish wish;
        int returns_to; /* the GPU on which an earlier daemon has started it; -1: it is new */
        enum way returns_way;
        char *file; /* its job file; NULL: none */
        size_t file_size, file_got;
        unsigned file_s; /* seconds for which the daemon has waited for the file */
        uint32_t id;     /* number of the job in the queue; 0: its file has not come yet */

        char line[SUBMIT_LINE_MAX];
        size_t used;
        unsigned lines; /* lines that came in the second that began at lines_ns */
        uint64_t lines_ns;
        struct outbox out;
        char said[SUBMIT_SAID_MAX]; /* the last reason to wait that it was told */
};

struct submits {
        struct server *server;
        struct queue *queue;
        struct matcher *matcher;
        struct submission *list; /* the newest first */
        size_t file_bytes;       /* size of all job files */
        sd_event_source *timer;  /* once a second while there are jobs */
        bool dirty;              /* something has changed that may start jobs */
        bool unanswered;         /* the last question got no answer: go on without offers */
        unsigned returned;       /* how many jobs of an earlier daemon have come back */
        struct queue_offer offers[QUEUE_JOBS_MAX];
        unsigned n_offers;
        bool answered; /* offers have come */
};

/* Sends a line of JSON, and takes the object over. */
void submission_send(struct submission *m, json_t *json);
struct submission *submission_find(const struct submits *all, uint32_t id);
/* Returns the job's name, or a substitute for viewers who may not know it. */
const char *submission_name(const struct submission *m, const struct peer *viewer);

/* ---- gpus_in_use.c ---- */

/* True if the peer has a running child of its own user with this number, in the child's own pid
 * namespace. */
bool submit_has_program(const struct peer *peer, pid_t named);
/* Notes which GPUs there are, and which are in use by programs that were not submitted. second:
 * this is the call of each second. */
void submit_look_at_gpus(struct submits *all, bool second);
/* Lets the programs of each job take turns, or not. */
void submit_apply_turns(struct submits *all);
/* The bytes of the smallest GPU; 0: none is known. */
double submit_capacity(const struct server *s);

/* ---- show.c ---- */

/* Returns the number; null if it is not finite. */
json_t *submit_number(double n);
/* Counts the jobs, for the metrics. */
void submit_count(const struct submits *all, struct server_jobs *ret);

/* Writes why the job waits, as one sentence that its user may read. */
void submit_reason(const struct submission *m, char ret[static SUBMIT_SAID_MAX]);
