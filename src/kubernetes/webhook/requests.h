/* requests.h: what is done for one request: its body is taken in, within bounds, and answered.
 *
 * Small bodies are taken at once. Larger ones share a bounded room, and wait for it in the order in
 * which they came; MHD suspends them meanwhile. Only the thread that runs MHD may use this. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <microhttpd.h>

#include "kubernetes/webhook/review.h"

#define REQUESTS_BODY_MAX (3u << 20) /* the API server's own bound of a request */

struct requests;

/* from and to must stay. NULL: no memory. */
struct requests *requests_new(const char *from, const char *to);
void requests_free(struct requests *r);

/* From now on, answers close their connection, and the webhook is not ready. */
void requests_end(struct requests *r);

/* Begins a request, and queues an answer if it cannot be served. 0; -EIO: the connection must end.
 */
struct request;
int requests_begin(struct requests *r, struct MHD_Connection *c, const char *url,
                   const char *method, struct request **ret);
/* Takes what came of the body; *size 0: all of it is there, and is answered. 0 or -EIO. */
int requests_take(struct request *q, const char *data, size_t *size);
/* The request is over, answered or not. NULL is a no-op. */
void requests_finish(struct request *q);
/* Whether the request waits for room, so that its client is not late. */
bool requests_waits(const struct request *q);
