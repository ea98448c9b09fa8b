/* events.c: owns the Events that are still to be made, and makes one after the other. Must never
 * ask twice for the same one: a server that refuses is left alone. */
#include "kubernetes/plugin/events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"

#define NONE_FAILED (-1)
#define COMPONENT   "sublet-device-plugin"
#define EVENTS_MAX  64u /* events that wait: more than a node has pods with such a problem */
#define EVENT_S     10u
#define PATH_ROOM   (POD_NAME_MAX + 64)

struct event {
        char path[PATH_ROOM];
        char *json;
        char pod[2 * POD_NAME_MAX]; /* the pod's name for the log */
};

struct events {
        struct web *web;
        const char *node;
        struct event list[EVENTS_MAX]; /* a ring */
        unsigned first, n;
        struct web_request *request;
        int failed; /* HTTP's status of the last failure, which the log tells; 0: no answer */
};

static void begin_next(struct events *e);

static struct event *first_of(struct events *e)
{
        return &e->list[e->first % EVENTS_MAX];
}

static void drop_first(struct events *e)
{
        free(first_of(e)->json);
        first_of(e)->json = NULL;
        e->first++;
        e->n--;
}

/* Failures of one kind cost one line; the text of each may differ, such as by milliseconds. */
static void fail_event(struct events *e, const char *pod, unsigned status, const char *problem)
{
        if (e->failed != (int)status)
                log_warning("cannot make an Event for pod %s: %s", pod, problem);
        e->failed = (int)status;
}

static void on_end(unsigned status, const char *error, void *userdata)
{
        struct events *e = userdata;
        char problem[WEB_ERROR_MAX];

        e->request = NULL;
        if (status == 401)
                (void)snprintf(problem, sizeof(problem), "401, the token in %.180s is not accepted",
                               web_server_of(e->web)->token_file);
        else if (status == 403)
                (void)snprintf(problem, sizeof(problem),
                               "403, the service account may not create events");
        else if (status)
                (void)snprintf(problem, sizeof(problem), "the API server answers %u", status);
        else
                (void)snprintf(problem, sizeof(problem), "%s", error);
        /* 409: an earlier process has made it. */
        if ((status >= 200 && status < 300) || status == 409)
                e->failed = NONE_FAILED;
        else
                fail_event(e, first_of(e)->pod, status, problem);
        drop_first(e);
        begin_next(e);
}

static void begin_next(struct events *e)
{
        char error[WEB_ERROR_MAX];

        while (e->n > 0 && !e->request) {
                const struct event *event = first_of(e);

                if (web_post(e->web, event->path, event->json, EVENT_S, on_end, e, &e->request,
                             error) < 0) {
                        fail_event(e, event->pod, 0, error);
                        drop_first(e);
                }
        }
}

/* Returns the same number each time for a pod and reason, so that the API server refuses a second
 * Event. */
static uint64_t number_of(const struct pod *pod, const char *reason)
{
        const uint64_t hash = hash_add(HASH_BASIS, pod->uid, strlen(pod->uid));

        return hash_add(hash, reason, strlen(reason));
}

/* Returns the Event as text; the caller frees it. NULL: out of memory. */
static char *write_event(const struct events *e, const struct pod *pod, const char *reason,
                         const char *message)
{
        char name[POD_NAME_MAX + 24], when[UNITS_TEXT_MAX];
        json_auto_t *event = NULL;

        (void)snprintf(name, sizeof(name), "%s.%016llx", pod->name,
                       (unsigned long long)number_of(pod, reason));
        (void)units_format_utc(time(NULL), when);
        event = json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:s, s:s, s:s, s:s}, s:s, s:s, s:s, "
                          "s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:i}",
                          "apiVersion", "v1", "kind", "Event", "metadata", "name", name,
                          "namespace", pod->namespace, "involvedObject", "apiVersion", "v1", "kind",
                          "Pod", "name", pod->name, "namespace", pod->namespace, "uid", pod->uid,
                          "type", "Warning", "reason", reason, "message", message, "source",
                          "component", COMPONENT, "host", e->node, "reportingComponent", COMPONENT,
                          "reportingInstance", e->node, "firstTimestamp", when, "lastTimestamp",
                          when, "count", 1);
        return event ? json_dumps(event, JSON_COMPACT) : NULL;
}

void events_tell(struct events *e, const struct pod *pod, const char *reason, const char *message)
{
        struct event *event = &e->list[(e->first + e->n) % EVENTS_MAX];
        const bool room = e->n < EVENTS_MAX;
        char *json = room ? write_event(e, pod, reason, message) : NULL;
        char name[2 * POD_NAME_MAX];

        (void)snprintf(name, sizeof(name), "%s/%s", pod->namespace, pod->name);
        if (!json) {
                fail_event(e, name, 0,
                           room ? "out of memory" : "too many Events wait for the API server");
                return;
        }
        event->json = json;
        memcpy(event->pod, name, sizeof(name));
        (void)snprintf(event->path, sizeof(event->path), "/api/v1/namespaces/%s/events",
                       pod->namespace);
        e->n++;
        begin_next(e);
}

int events_new(struct web *web, const char *node, struct events **ret)
{
        struct events *e = calloc(1, sizeof(*e));

        if (!e)
                return -ENOMEM;
        e->failed = NONE_FAILED;
        e->web = web;
        e->node = node;
        *ret = e;
        return 0;
}

void events_free(struct events *e)
{
        if (!e)
                return;
        web_drop(e->request);
        while (e->n > 0)
                drop_first(e);
        free(e);
}
