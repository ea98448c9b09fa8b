/* requests.c: owns the paths, the bodies and the room for them. Must never hold more of them in
 * memory than its bounds allow, and never answer a request twice. */
#include "kubernetes/serve/requests.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/units.h"

#define SMALL_BYTES  (32u << 10) /* taken without waiting: so much for each connection */
#define TRIM_BYTES   (256u << 10)
#define SENTENCE_MAX 512

enum state { TAKING, WAITING, BUSY, ANSWERED };

struct request {
        struct requests *all;
        struct MHD_Connection *connection;
        struct request *next; /* of those that wait, or that are busy */
        enum state state;
        const struct requests_door *door;
        bool woken; /* MHD calls once more as at the beginning, without data */
        bool too_large;
        char *body;
        size_t length; /* as announced; 0: in chunks */
        size_t size, allocated, room;
};

struct requests {
        const struct requests_service *service;
        size_t body_max, room, room_used;
        struct request *first; /* that waits */
        struct request *busy;  /* the first of those whose answer is to be tried again */
        bool ending;
};

struct requests *requests_new(const struct requests_service *service)
{
        struct requests *r = calloc(1, sizeof(*r));

        if (r)
                *r = (struct requests){.service = service,
                                       .body_max = (size_t)service->body_max_mib << 20,
                                       .room = (size_t)service->room_mib << 20};
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

static int say(struct request *q, unsigned status, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Answers with one sentence as a line. */
static int say(struct request *q, unsigned status, const char *format, ...)
{
        char *line = NULL, sentence[SENTENCE_MAX];
        va_list args;

        q->state = ANSWERED;
        va_start(args, format);
        (void)vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        if (asprintf(&line, "%s\n", sentence) < 0)
                return -EIO;
        return send_text(q->all, q->connection, status, line, "text/plain");
}

static int say_too_large(struct request *q)
{
        const struct requests_service *s = q->all->service;

        return say(q, MHD_HTTP_CONTENT_TOO_LARGE, "%s has at most %u MiB", s->one, s->body_max_mib);
}

static int answer(struct request *q)
{
        const struct requests_service *s = q->all->service;
        char error[REQUESTS_ERROR_MAX], *text = NULL;
        int r = q->door->answer(q->body ? q->body : "", q->size, s->userdata, &text, error);

        if (r == -EBUSY) {
                q->state = BUSY;
                q->next = q->all->busy;
                q->all->busy = q;
                MHD_suspend_connection(q->connection);
                return 0;
        }
        q->state = ANSWERED;
        if (q->size >= TRIM_BYTES)
                (void)malloc_trim(0); /* a large body leaves much behind */
        if (r == 0)
                return send_text(q->all, q->connection, MHD_HTTP_OK, text, "application/json");
        if (r == -ENOMEM)
                return say(q, MHD_HTTP_INTERNAL_SERVER_ERROR, "there is no memory to answer");
        log_debug("refuses %s: %s", s->one, error);
        return say(q, r == -EAGAIN ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_BAD_REQUEST, "%s",
                   error);
}

/* ---- room for bodies ---- */

static bool has_room(const struct requests *r, size_t bytes)
{
        return r->room_used + bytes <= r->room;
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

/* MHD calls again for a connection that is resumed without an answer. */
void requests_retry(struct requests *r)
{
        struct request *q;

        while ((q = r->busy)) {
                r->busy = q->next;
                q->next = NULL;
                q->state = TAKING;
                MHD_resume_connection(q->connection);
        }
}

bool requests_any_busy(const struct requests *r)
{
        return r->busy != NULL;
}

void requests_finish(struct request *q)
{
        struct request **link;

        if (!q)
                return;
        for (link = &q->all->busy; *link && *link != q;)
                link = &(*link)->next;
        if (*link)
                *link = q->next;
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
        return q->state == WAITING || q->state == BUSY;
}

/* ---- the course of a request ---- */

static int begin_body(struct request *q)
{
        const char *header = MHD_lookup_connection_value(q->connection, MHD_HEADER_KIND,
                                                         MHD_HTTP_HEADER_CONTENT_LENGTH);
        uint64_t length = q->all->body_max; /* in chunks: it may become as large */

        if (header && units_parse_count(header, &length) < 0)
                return say(q, MHD_HTTP_BAD_REQUEST, "the Content-Length is no number");
        if (length > q->all->body_max)
                return say_too_large(q);
        q->length = header ? (size_t)length : 0;
        take_room(q, (size_t)length);
        return 0;
}

static int answer_probe(struct request *q, const char *url)
{
        const struct requests_service *s = q->all->service;
        const char *why = NULL;

        if (strcmp(url, "/readyz") == 0 && q->all->ending)
                return say(q, MHD_HTTP_SERVICE_UNAVAILABLE, "%s is ending", s->program);
        if (strcmp(url, "/readyz") == 0 && s->not_ready)
                why = s->not_ready(s->userdata);
        return why ? say(q, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", why) : say(q, MHD_HTTP_OK, "ok");
}

static int begin(struct request *q, const char *url, const char *method, bool may_ask)
{
        const struct requests_service *s = q->all->service;
        const bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0 ||
                         strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
        const bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;

        for (size_t i = 0; i < s->n_doors && !q->door; i++)
                if (strcmp(url, s->doors[i].path) == 0)
                        q->door = &s->doors[i];
        if (q->door && !may_ask)
                return say(q, MHD_HTTP_FORBIDDEN,
                           "%s answers only clients with a certificate that its --client-ca has "
                           "signed for clients",
                           s->program);
        if (q->door)
                return post ? begin_body(q)
                            : say(q, MHD_HTTP_METHOD_NOT_ALLOWED, "%s are sent with POST", s->many);
        if (strcmp(url, "/healthz") != 0 && strcmp(url, "/readyz") != 0)
                return say(q, MHD_HTTP_NOT_FOUND, "there are %s", s->paths);
        return get ? answer_probe(q, url)
                   : say(q, MHD_HTTP_METHOD_NOT_ALLOWED, "probes ask with GET");
}

int requests_begin(struct requests *r, struct MHD_Connection *c, const char *url,
                   const char *method, bool may_ask, struct request **ret)
{
        struct request *q = calloc(1, sizeof(*q));

        if (!q)
                return -EIO;
        q->all = r;
        q->connection = c;
        *ret = q;
        return begin(q, url, method, may_ask);
}

static int append(struct request *q, const char *data, size_t size)
{
        if (q->size + size > q->allocated) {
                size_t wanted = MAX(q->size + size, MAX(2 * q->allocated, (size_t)4096));
                char *grown;

                /* The length is known, mostly: growing would leave holes. */
                wanted = q->length ? q->length : MIN(wanted, q->all->body_max);
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
                return say_too_large(q);
        if (!got)
                return answer(q);
        /* MHD sends no answer before the body has ended, so the rest is read and dropped. */
        if (q->size + got > q->all->body_max)
                q->too_large = true;
        return q->too_large ? 0 : append(q, data, got);
}
