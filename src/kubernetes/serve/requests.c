/* requests.c: owns the paths, the bodies and the memory for them. Must never hold more than the
 * first bytes of each body and all of one, and never answer a request twice.
 * Why: docs/decisions.md, "Servers of Kubernetes choose whom they serve". */
#include "kubernetes/serve/requests.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/units.h"
#include "http/http.h"

#define SMALL_BYTES  (32u << 10) /* bytes that each connection may send without waiting */
#define TRIM_BYTES   (256u << 10)
#define SENTENCE_MAX 512
/* How long a large body may take while others wait. The API server gives up after 3 s. */
#define LARGE_NS (2 * NSEC_PER_SEC)

enum state { TAKING, WAITING, BUSY, ANSWERED, ABANDONED };

struct request {
        struct requests *all;
        struct client *client;
        struct request *next; /* the next one that waits, or that is busy */
        enum state state;
        const struct requests_door *door;
        bool too_large;
        char *body;
        size_t length; /* length of the body, as announced; 0: it comes in chunks */
        size_t size, allocated;
};

struct requests {
        const struct requests_service *service;
        size_t body_max;
        struct request *large; /* the one whose body may be large; NULL: none */
        uint64_t large_since_ns;
        struct request *first; /* the first that waits to be `large` */
        struct request *busy;  /* the first of those whose answer is to be tried again */
        bool resumed, ending;
};

struct requests *requests_new(const struct requests_service *service)
{
        struct requests *r = calloc(1, sizeof(*r));

        if (r)
                *r = (struct requests){.service = service,
                                       .body_max = (size_t)service->body_max_mib << 20};
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
        return send_text(q->all, q->client->mhd, status, line, "text/plain");
}

static int say_too_large(struct request *q)
{
        const struct requests_service *s = q->all->service;

        return say(q, MHD_HTTP_CONTENT_TOO_LARGE, "%s has at most %u MiB", s->one, s->body_max_mib);
}

/* ---- requests that wait ---- */

static void hold(struct request *q, enum state state, struct request **link)
{
        q->state = state;
        q->next = *link;
        *link = q;
        clients_set_phase(q->client, CLIENT_HELD, clock_now_ns());
        MHD_suspend_connection(q->client->mhd);
}

/* Lets MHD go on: it calls again with the bytes that were not taken. */
static void let_go(struct request **link, enum state state)
{
        struct request *q = *link;

        *link = q->next;
        q->state = state;
        clients_set_phase(q->client, CLIENT_ASKS, clock_now_ns());
        MHD_resume_connection(q->client->mhd);
        q->all->resumed = true;
}

/* Returns the link that points to the request; the last link, to NULL: the request is not in this
 * list. */
static struct request **find(struct request **list, const struct request *q)
{
        while (*list && *list != q)
                list = &(*list)->next;
        return list;
}

void requests_retry(struct requests *r)
{
        while (r->busy)
                let_go(&r->busy, TAKING);
}

bool requests_any_busy(const struct requests *r)
{
        return r->busy != NULL;
}

bool requests_any_resumed(struct requests *r)
{
        const bool any = r->resumed;

        r->resumed = false;
        return any;
}

void requests_abandon(struct request *q)
{
        if (q && (q->state == WAITING || q->state == BUSY))
                let_go(find(q->state == BUSY ? &q->all->busy : &q->all->first, q), ABANDONED);
}

/* ---- large bodies ---- */

static void set_large(struct requests *r, struct request *q)
{
        r->large = q;
        r->large_since_ns = clock_now_ns();
}

/* Returns whether this body may be large. If not, its request waits until it may. */
static bool may_be_large(struct request *q)
{
        struct requests *r = q->all;

        if (!r->large)
                set_large(r, q);
        if (r->large != q)
                hold(q, WAITING, find(&r->first, NULL));
        return r->large == q;
}

/* Ends this request's turn to be large. The next turn is that of the first in the line, but peers
 * that kept others waiting come last. */
static void end_large(struct request *q)
{
        struct requests *r = q->all;
        struct request **next = &r->first;

        if (r->large != q)
                return;
        if (q->state == ANSWERED)
                q->client->peer->slow = false;
        r->large = NULL;
        while (*next && (*next)->client->peer->slow)
                next = &(*next)->next;
        if (!*next)
                next = &r->first;
        if (!*next)
                return;
        set_large(r, *next);
        let_go(next, TAKING);
}

static void drop_body(struct request *q)
{
        free(q->body);
        q->body = NULL;
        end_large(q);
}

struct client *requests_find_slow(struct requests *r, uint64_t now_ns)
{
        struct client *slow = r->large ? r->large->client : NULL;

        if (!slow || slow->ended || now_ns < r->large_since_ns + LARGE_NS)
                return NULL;
        for (const struct request *q = r->first; q; q = q->next)
                if (q->client->peer != slow->peer) {
                        slow->peer->slow = true;
                        return slow;
                }
        return NULL;
}

/* ---- the course of a request ---- */

static int answer(struct request *q)
{
        const struct requests_service *s = q->all->service;
        char error[REQUESTS_ERROR_MAX], *text = NULL;
        int r = q->door->answer(q->body ? q->body : "", q->size, s->userdata, &text, error);

        if (r == -EBUSY) {
                hold(q, BUSY, &q->all->busy);
                return 0;
        }
        q->state = ANSWERED;
        drop_body(q);
        if (q->size >= TRIM_BYTES)
                (void)malloc_trim(0); /* a large body leaves much behind */
        if (r == 0)
                return send_text(q->all, q->client->mhd, MHD_HTTP_OK, text, "application/json");
        if (r == -ENOMEM)
                return say(q, MHD_HTTP_INTERNAL_SERVER_ERROR, "there is no memory to answer");
        log_debug("refuses %s: %s", s->one, error);
        return say(q, r == -EAGAIN ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_BAD_REQUEST, "%s",
                   error);
}

void requests_finish(struct request *q)
{
        struct request **link;

        if (!q)
                return;
        link = find(&q->all->busy, q);
        if (!*link)
                link = find(&q->all->first, q);
        if (*link)
                *link = q->next;
        drop_body(q);
        free(q);
}

static int begin_body(struct request *q)
{
        const char *header = MHD_lookup_connection_value(q->client->mhd, MHD_HEADER_KIND,
                                                         MHD_HTTP_HEADER_CONTENT_LENGTH);
        uint64_t length = 0; /* not known if the body comes in chunks */

        if (header && units_parse_count(header, &length) < 0)
                return say(q, MHD_HTTP_BAD_REQUEST, "the Content-Length is no number");
        if (length > q->all->body_max)
                return say_too_large(q);
        q->length = (size_t)length;
        return 0;
}

static int answer_probe(struct request *q, const char *path)
{
        const struct requests_service *s = q->all->service;
        const char *why = NULL;

        if (strcmp(path, "/readyz") == 0 && q->all->ending)
                return say(q, MHD_HTTP_SERVICE_UNAVAILABLE, "%s is ending", s->program);
        if (strcmp(path, "/readyz") == 0 && s->not_ready)
                why = s->not_ready(s->userdata);
        return why ? say(q, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", why) : say(q, MHD_HTTP_OK, "ok");
}

static int begin_request(struct request *q, const char *path, const char *method, bool may_ask)
{
        const struct requests_service *s = q->all->service;
        const bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0 ||
                         strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
        const bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;

        for (size_t i = 0; i < s->n_doors && !q->door; i++)
                if (strcmp(path, s->doors[i].path) == 0)
                        q->door = &s->doors[i];
        if (q->door && !may_ask)
                return say(q, MHD_HTTP_FORBIDDEN,
                           "%s answers only clients with a client certificate from an authority in "
                           "its --client-ca",
                           s->program);
        if (q->door)
                return post ? begin_body(q)
                            : say(q, MHD_HTTP_METHOD_NOT_ALLOWED, "%s are sent with POST", s->many);
        if (strcmp(path, "/healthz") != 0 && strcmp(path, "/readyz") != 0)
                return say(q, MHD_HTTP_NOT_FOUND, "there are %s", s->paths);
        return get ? answer_probe(q, path)
                   : say(q, MHD_HTTP_METHOD_NOT_ALLOWED, "probes ask with GET");
}

int requests_begin(struct requests *r, struct client *client, const char *url, const char *method,
                   bool may_ask, struct request **ret)
{
        struct request *q = calloc(1, sizeof(*q));

        if (!q)
                return -EIO;
        q->all = r;
        q->client = client;
        *ret = q;
        return begin_request(q, http_path(url), method, may_ask);
}

static int append(struct request *q, const char *data, size_t size)
{
        if (q->size + size > q->allocated) {
                size_t wanted = MAX(q->size + size, MAX(2 * q->allocated, (size_t)4096));
                char *grown;

                /* If the length is known, takes all at once: growing would leave holes. */
                wanted =
                        q->length && q->all->large == q ? q->length : MIN(wanted, q->all->body_max);
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
        const size_t got = *size;

        if (q->state == ABANDONED)
                return -EIO;
        if (q->state != TAKING)
                return 0;
        if (!got)
                return q->too_large ? say_too_large(q) : answer(q);
        if (q->size + got > q->all->body_max) {
                q->too_large = true;
                drop_body(q);
        }
        if (!q->too_large && q->size + got > SMALL_BYTES && !may_be_large(q))
                return 0;
        *size = 0;
        /* MHD sends no answer before the body has ended, so the rest is read and dropped. */
        return q->too_large ? 0 : append(q, data, got);
}
