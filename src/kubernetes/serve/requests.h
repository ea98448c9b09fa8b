/* requests.h: reads the body of each request, within bounds, and answers the request.
 *
 * The first bytes of each body are read at once. Only one request at a time may have a larger body
 * read; the others wait in the order in which they came, suspended by MHD. Only the thread that
 * runs MHD may call these functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <microhttpd.h>

#include "kubernetes/serve/serve_clients.h"

#define REQUESTS_ERROR_MAX 256

/* A path at which something is sent with POST, and answered with JSON. */
struct requests_door {
        const char *path;
        /* Writes the answer, which the caller frees. 0; -ENOMEM; -EBUSY: call it again a moment
         * later. With a sentence in error, without a newline: -EINVAL, the client is wrong (400);
         * -EAGAIN, not now (503). */
        int (*answer)(const char *text, size_t size, void *userdata, char **ret_answer,
                      char error[static REQUESTS_ERROR_MAX]);
};

/* What a program serves, and how its sentences call it. */
struct requests_service {
        const char *program;    /* such as "the webhook" */
        const char *one, *many; /* names of what is sent: "a review", "reviews" */
        const char *paths;      /* all paths, with /healthz and /readyz */
        unsigned body_max_mib;  /* size of one body at most */
        const struct requests_door *doors;
        size_t n_doors;
        /* NULL, or a sentence why the program cannot answer yet. May be NULL: it always can. */
        const char *(*not_ready)(void *userdata);
        void *userdata;
};

struct requests;

/* service must outlive the result. NULL: no memory. */
struct requests *requests_new(const struct requests_service *service);
void requests_free(struct requests *r);

/* From now on, answers close their connection, and the program is not ready. */
void requests_end(struct requests *r);

/* Begins a request, and queues an answer if it cannot be served. may_ask: false: the client may
 * only probe. 0; -EIO: the connection must end. */
struct request;
int requests_begin(struct requests *r, struct client *client, const char *url, const char *method,
                   bool may_ask, struct request **ret);
/* Takes *size bytes of the body, and writes to *size how many it did not take. *size 0: the body is
 * complete, so the request is answered. 0 or -EIO. */
int requests_take(struct request *q, const char *data, size_t *size);
/* Frees a request that is over, answered or not. NULL is a no-op. */
void requests_finish(struct request *q);
/* The client's connection has ended: a request that waits learns of it. NULL is a no-op. */
void requests_abandon(struct request *q);
/* Calls answer() again for the requests for which it gave -EBUSY. */
void requests_retry(struct requests *r);
bool requests_any_busy(const struct requests *r);
/* True if a request was resumed since the last call: MHD must run, but does not ask for it. */
bool requests_any_resumed(struct requests *r);
/* Returns the client whose large body keeps those of other peers waiting for too long; NULL: none
 * does. */
struct client *requests_find_slow(struct requests *r, uint64_t now_ns);
