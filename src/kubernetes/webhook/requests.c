/* requests.c: owns the paths, the bodies and the room for them. Must never hold more of them in
 * memory than its bounds allow, and never answer a review twice. */
#include "kubernetes/webhook/requests.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/units.h"

#define SMALL_BYTES (32u << 10) /* taken without waiting: so much for each connection */
#define ROOM_BYTES  (4u << 20)  /* for all larger bodies together */
#define TRIM_BYTES  (256u << 10)

enum state { TAKING, WAITING, ANSWERED };

struct request {
        struct requests *all;
        struct MHD_Connection *connection;
        struct request *next; /* of those that wait */
        enum state state;
        bool everyone; /* at /mutate-all */
        bool woken;    /* MHD calls once more as at the beginning, without data */
        bool too_large;
        char *body;
        size_t length; /* as announced; 0: in chunks */
        size_t size, allocated, room;
};

struct requests {
        struct review_options options;
        size_t room_used;
        struct request *first; /* that waits */
        bool ending;
};

struct requests *requests_new(const char *from, const char *to)
{
        struct requests *r = calloc(1, sizeof(*r));

        if (r)
                r->options = (struct review_options){.from = from, .to = to};
        return r;
}

void requests_free(struct requests *r)
{
        free(r);
}

void requests_end(struct requests *r)
{
        r->ending = true;
}

/* ---- answers ---- */

static int send_text(struct requests *r, struct MHD_Connection *c, unsigned status, char *text,
                     const char *type)
{
        struct MHD_Response *response =
                text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
                     : NULL;
        enum MHD_Result sent;

        if (!response) {
                free(text);
                return -EIO;
        }
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
                (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "POST, GET, HEAD");
        if (r->ending)
                (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
        sent = MHD_queue_response(c, status, response);
        MHD_destroy_response(response);
        return sent == MHD_YES ? 0 : -EIO;
}

static int say(struct request *q, unsigned status, const char *sentence)
{
        q->state = ANSWERED;
        return send_text(q->all, q->connection, status, strdup(sentence), "text/plain");
}

static int answer_review(struct request *q)
{
        struct review_options options = q->all->options;
        char error[REVIEW_ERROR_MAX], line[REVIEW_ERROR_MAX + 2], *answer = NULL;
        int r;

        options.all = q->everyone;
        r = review_answer(q->body ? q->body : "", q->size, &options, &answer, error);
        q->state = ANSWERED;
        if (q->size >= TRIM_BYTES)
                (void)malloc_trim(0); /* a large review leaves much behind */
        if (r == 0)
                return send_text(q->all, q->connection, MHD_HTTP_OK, answer, "application/json");
        if (r == -ENOMEM)
                return say(q, MHD_HTTP_INTERNAL_SERVER_ERROR, "there is no memory to answer\n");
        log_debug("refuses a review: %s", error);
        (void)snprintf(line, sizeof(line), "%s\n", error);
        return say(q, MHD_HTTP_BAD_REQUEST, line);
}

/* ---- room for bodies ---- */

static bool has_room(const struct requests *r, size_t bytes)
{
        return r->room_used + bytes <= ROOM_BYTES;
}

/* Lets those at the head of the line in, as long as they fit. */
static void let_in(struct requests *r)
{
        struct request *q;

        while ((q = r->first) && has_room(r, q->room)) {
                r->first = q->next;
                r->room_used += q->room;
                q->state = TAKING;
                q->woken = true;
                MHD_resume_connection(q->connection);
        }
}

static void take_room(struct request *q, size_t bytes)
{
        struct request **last = &q->all->first;

        if (bytes <= SMALL_BYTES)
                return;
        q->room = bytes;
        if (!q->all->first && has_room(q->all, bytes)) {
                q->all->room_used += bytes;
                return;
        }
        while (*last)
                last = &(*last)->next;
        *last = q;
        q->state = WAITING;
        MHD_suspend_connection(q->connection);
}

void requests_finish(struct request *q)
{
        struct request **link;

        if (!q)
                return;
        for (link = &q->all->first; *link && *link != q;)
                link = &(*link)->next;
        if (*link)
                *link = q->next;
        else
                q->all->room_used -= q->room;
        let_in(q->all);
        free(q->body);
        free(q);
}

bool requests_waits(const struct request *q)
{
        return q->state == WAITING;
}

/* ---- the course of a request ---- */

static int begin_review(struct request *q)
{
        const char *header = MHD_lookup_connection_value(q->connection, MHD_HEADER_KIND,
                                                         MHD_HTTP_HEADER_CONTENT_LENGTH);
        uint64_t length = REQUESTS_BODY_MAX; /* in chunks: it may become as large */

        if (header && units_parse_count(header, &length) < 0)
                return say(q, MHD_HTTP_BAD_REQUEST, "the Content-Length is no number\n");
        if (length > REQUESTS_BODY_MAX)
                return say(q, MHD_HTTP_CONTENT_TOO_LARGE, "a review has at most 3 MiB\n");
        q->length = header ? (size_t)length : 0;
        take_room(q, (size_t)length);
        return 0;
}

static int begin(struct request *q, const char *url, const char *method)
{
        const bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0 ||
                         strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
        const bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;

        q->everyone = strcmp(url, "/mutate-all") == 0;
        if (q->everyone || strcmp(url, "/mutate") == 0)
                return post ? begin_review(q)
                            : say(q, MHD_HTTP_METHOD_NOT_ALLOWED, "reviews are sent with POST\n");
        if (strcmp(url, "/healthz") != 0 && strcmp(url, "/readyz") != 0)
                return say(q, MHD_HTTP_NOT_FOUND,
                           "there are /mutate, /mutate-all, /healthz and /readyz\n");
        if (!get)
                return say(q, MHD_HTTP_METHOD_NOT_ALLOWED, "probes ask with GET\n");
        if (q->all->ending && strcmp(url, "/readyz") == 0)
                return say(q, MHD_HTTP_SERVICE_UNAVAILABLE, "the webhook is ending\n");
        return say(q, MHD_HTTP_OK, "ok\n");
}

int requests_begin(struct requests *r, struct MHD_Connection *c, const char *url,
                   const char *method, struct request **ret)
{
        struct request *q = calloc(1, sizeof(*q));

        if (!q)
                return -EIO;
        q->all = r;
        q->connection = c;
        *ret = q;
        return begin(q, url, method);
}

static int append(struct request *q, const char *data, size_t size)
{
        if (q->size + size > q->allocated) {
                size_t wanted = MAX(q->size + size, MAX(2 * q->allocated, (size_t)4096));
                char *grown;

                /* The length is known, mostly: growing would leave holes. */
                wanted = q->length ? q->length : MIN(wanted, (size_t)REQUESTS_BODY_MAX);
                grown = q->size + size > wanted ? NULL : realloc(q->body, wanted);
                if (!grown)
                        return -EIO;
                q->body = grown;
                q->allocated = wanted;
        }
        memcpy(q->body + q->size, data, size);
        q->size += size;
        return 0;
}

int requests_take(struct request *q, const char *data, size_t *size)
{
        const bool woken = q->woken;
        size_t got = *size;

        q->woken = false;
        *size = 0;
        if (q->state != TAKING || (!got && woken))
                return 0;
        if (!got && q->too_large)
                return say(q, MHD_HTTP_CONTENT_TOO_LARGE, "a review has at most 3 MiB\n");
        if (!got)
                return answer_review(q);
        /* MHD sends no answer before the body has ended, so the rest is read and dropped. */
        if (q->size + got > REQUESTS_BODY_MAX)
                q->too_large = true;
        return q->too_large ? 0 : append(q, data, got);
}
