/* requests.h: what is done for one request: its body is taken in, within bounds, and answered.
 *
 * The first bytes of each body are taken at once. What a body has beyond them is taken for one
 * request at a time; the others wait in the order in which they came, and MHD suspends them
 * meanwhile. Only the thread that runs MHD may use this. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <microhttpd.h>

#include "kubernetes/serve/serve_clients.h"

#define REQUESTS_ERROR_MAX 256

/* A path at which something is sent with POST, and answered with JSON. */
struct requests_door {
        const char *path;
        /* Writes the answer, which is freed. 0; or, after a sentence without its line's end,
         * -EINVAL: the client is wrong (400), -EAGAIN: not now (503); -ENOMEM; -EBUSY: it is called
         * again a moment later. */
        int (*answer)(const char *text, size_t size, void *userdata, char **ret_answer,
                      char error[static REQUESTS_ERROR_MAX]);
};

/* What a program serves, and how its sentences call it. */
struct requests_service {
        const char *program;    /* "the webhook" */
        const char *one, *many; /* what is sent: "a review", "reviews" */
        const char *paths;      /* all of them, with /healthz and /readyz */
        unsigned body_max_mib;  /* of one body */
        const struct requests_door *doors;
        size_t n_doors;
        /* NULL, or a sentence why the program cannot answer yet. May be NULL: it always can. */
        const char *(*not_ready)(void *userdata);
        void *userdata;
};

struct requests;

/* service must stay. NULL: no memory. */
struct requests *requests_new(const struct requests_service *service);
void requests_free(struct requests *r);

/* From now on, answers close their connection, and the program is not ready. */
void requests_end(struct requests *r);

/* Begins a request, and queues an answer if it cannot be served. may_ask: false: the client may
 * only probe. 0; -EIO: the connection must end. */
struct request;
int requests_begin(struct requests *r, struct client *client, const char *url, const char *method,
                   bool may_ask, struct request **ret);
/* Takes what came of the body, and leaves in *size how much is left to take. *size 0: all of it is
 * there, and is answered. 0 or -EIO. */
int requests_take(struct request *q, const char *data, size_t *size);
/* The request is over, answered or not. NULL is a no-op. */
void requests_finish(struct request *q);
/* The client's connection has ended: a request that waits learns of it. NULL is a no-op. */
void requests_abandon(struct request *q);
/* Lets those that were busy try again. */
void requests_retry(struct requests *r);
bool requests_any_busy(const struct requests *r);
/* Whether requests go on since the last call, so that MHD has to run: it does not say so. */
bool requests_any_resumed(struct requests *r);
/* Returns the client whose large body keeps those of other peers waiting for too long; NULL: none
 * does. */
struct client *requests_find_slow(struct requests *r, uint64_t now_ns);
