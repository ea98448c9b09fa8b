/* requests.h: what is done for one request: its body is taken in, within bounds, and answered.
 *
 * Small bodies are taken at once. Larger ones share a bounded room, and wait for it in the order in
 * which they came; MHD suspends them meanwhile. Only the thread that runs MHD may use this. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <microhttpd.h>

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
        unsigned room_mib;      /* of all large bodies together; at least as much */
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
int requests_begin(struct requests *r, struct MHD_Connection *c, const char *url,
                   const char *method, bool may_ask, struct request **ret);
/* Takes what came of the body; *size 0: all of it is there, and is answered. 0 or -EIO. */
int requests_take(struct request *q, const char *data, size_t *size);
/* The request is over, answered or not. NULL is a no-op. */
void requests_finish(struct request *q);
/* Lets those that were busy try again. */
void requests_retry(struct requests *r);
bool requests_any_busy(const struct requests *r);
/* Whether the request waits for something of ours, so that its client is not late. */
bool requests_waits(const struct request *q);
