/* watch.c: owns the conversation with the API server. Must never ask more often than its back-off
 * allows while the server refuses. */
#include "kubernetes/api/watch.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/text.h"
#include "kubernetes/api/sift.h"

#define LIST_S        30u
#define WATCH_S       300u /* after this the server ends the watch, and the next one begins */
#define BACK_OFF_MS   1000u
#define BACK_OFF_MAX  30000u
#define VERSION_MAX   64
#define CONTINUE_MAX  4096
#define PATH_MAX_HERE 5000
#define NAMES_MAX     320    /* bytes of an object's name, with its namespace */
#define PAGES_MAX     10000u /* pages of a list: half a million objects and more */

struct watch {
        sd_event *loop;
        struct web *web;
        const struct watch_told *told;
        void *userdata;
        const struct watch_what *what;
        struct web_request *request;
        sd_event_source *retry;
        bool listing, again; /* again: another list is wanted after this one */
        unsigned number;     /* number of the list that began last */
        char version[VERSION_MAX], next_page[CONTINUE_MAX];
        unsigned pages; /* pages of this list so far */
        struct sift *sift;
        unsigned back_off_ms;
        bool told_changes;
        uint64_t begun_ns;           /* when the watch began */
        char problem[WEB_ERROR_MAX]; /* the problem that was logged last; "": none */
        char left_out[NAMES_MAX];    /* the last object that was left out */
};

static void begin_list(struct watch *w);
static void begin_watch(struct watch *w);

/* ---- failures ---- */

static int on_retry(sd_event_source *source, uint64_t usec, void *userdata)
{
        begin_list(userdata);
        return 0;
}

/* Lists again after a while that grows. */
static void __attribute__((format(printf, 2, 3)))
fail_watch(struct watch *w, const char *format, ...)
{
        char problem[sizeof(w->problem)], shown[WEB_ERROR_MAX];
        uint64_t wait_ms;
        va_list args;

        va_start(args, format);
        (void)vsnprintf(problem, sizeof(problem), format, args);
        va_end(args);
        w->back_off_ms = MIN(MAX(w->back_off_ms * 2, BACK_OFF_MS), BACK_OFF_MAX);
        /* Wait up to a quarter longer, so that the programs of all nodes do not ask at once. */
        wait_ms = w->back_off_ms + (uint64_t)random() % (w->back_off_ms / 4);
        if (strcmp(w->problem, problem) != 0) {
                (void)strcpy(w->problem, problem);
                log_warning("cannot read %s from %s: %s; trying again", w->what->name,
                            web_server_of(w->web)->url, text_copy(shown, sizeof(shown), problem));
        }
        w->listing = false;
        (void)sd_event_source_set_time_relative(w->retry, wait_ms * 1000);
        (void)sd_event_source_set_enabled(w->retry, SD_EVENT_ONESHOT);
}

static void fail_status(struct watch *w, unsigned status, const char *error)
{
        if (status == 401)
                fail_watch(w, "401, the token in %.180s is not accepted",
                           web_server_of(w->web)->token_file);
        else if (status == 403)
                fail_watch(w, "403, the service account may not list and watch %s", w->what->kind);
        else if (status)
                fail_watch(w, "it answers %u", status);
        else
                fail_watch(w, "%s", error);
}

/* ---- what comes ---- */

/* A version is a text that only the server understands. */
static void take_version(struct watch *w, const json_t *object)
{
        const char *version = json_string_value(
                json_object_get(json_object_get(object, "metadata"), "resourceVersion"));

        if (version && strlen(version) < sizeof(w->version) && version[0])
                (void)snprintf(w->version, sizeof(w->version), "%s", version);
}

/* Members around the objects, and those that name an object. */
static const char *const frame_fields[] = {"items",     "type", "object",   "metadata",
                                           "namespace", "name", "continue", "resourceVersion",
                                           NULL};

/* Copies the first text of this key; the API server writes names and the version before the rest.
 */
static void find_text(const char *json, const char *key, char *ret, size_t size)
{
        char before[40];
        const char *text;

        (void)snprintf(before, sizeof(before), "\"%s\":\"", key);
        text = strstr(json, before);
        text = text ? text + strlen(before) : "";
        (void)snprintf(ret, size, "%.*s", (int)strcspn(text, "\""), text);
}

static bool on_left_out(const char *json, const char *reason, void *userdata)
{
        struct watch *w = userdata;
        char namespace[64], name[254], version[VERSION_MAX], names[NAMES_MAX];
        char shown[NAMES_MAX], why[160];

        find_text(json, "namespace", namespace, sizeof(namespace));
        find_text(json, "name", name, sizeof(name));
        find_text(json, "resourceVersion", version, sizeof(version));
        if (!name[0])
                return false;
        if (!w->listing && version[0])
                memcpy(w->version, version, sizeof(version));
        (void)snprintf(names, sizeof(names), "%s%s%s", namespace, namespace[0] ? "/" : "", name);
        if (strcmp(w->left_out, names) != 0)
                log_warning("%s are read without %s: %s", w->what->name,
                            text_copy(shown, sizeof(shown), names),
                            text_copy(why, sizeof(why), reason));
        memcpy(w->left_out, names, sizeof(names));
        return true;
}

/* HTTP's status comes first: the answer may be no JSON. */
static bool on_page(const char *bytes, size_t n, void *userdata)
{
        struct watch *w = userdata;

        (void)sift_feed(w->sift, bytes, n);
        return true;
}

static void ask(struct watch *w, const char *path, unsigned timeout_s, enum sift_where where,
                web_take take, web_ended ended)
{
        char error[WEB_ERROR_MAX];

        sift_begin(w->sift, where);
        if (web_get(w->web, path, timeout_s, take, ended, w, &w->request, error) < 0) {
                w->request = NULL;
                fail_watch(w, "%s", error);
        }
}

static void on_page_end(unsigned status, const char *error, void *userdata);

static void ask_page(struct watch *w)
{
        char path[PATH_MAX_HERE];

        (void)snprintf(path, sizeof(path), "/api/v1/%s?%slimit=%u%s%s", w->what->kind,
                       w->what->which, w->what->page, w->next_page[0] ? "&continue=" : "",
                       w->next_page);
        ask(w, path, LIST_S, SIFT_LIST, on_page, on_page_end);
}

static void end_list(struct watch *w)
{
        if (w->problem[0])
                log_notice("%s are read from %s again", w->what->name, web_server_of(w->web)->url);
        w->problem[0] = '\0';
        w->back_off_ms = 0;
        w->listing = false;
        (void)malloc_trim(0); /* the objects of a list took megabytes */
        w->told->end(w->number, w->userdata);
        if (w->again)
                begin_list(w);
        else
                begin_watch(w);
}

/* Takes the name of the next page; "": this one was the last. Returns false if the list has no end.
 */
static bool take_next_page(struct watch *w, const json_t *page)
{
        const char *more =
                json_string_value(json_object_get(json_object_get(page, "metadata"), "continue"));
        char next[CONTINUE_MAX];

        if (!more || !more[0] || web_escape(more, next, sizeof(next)) < 0)
                next[0] = '\0';
        if (next[0] && (strcmp(next, w->next_page) == 0 || ++w->pages >= PAGES_MAX))
                return false;
        memcpy(w->next_page, next, sizeof(next));
        return true;
}

static void on_page_end(unsigned status, const char *error, void *userdata)
{
        struct watch *w = userdata;
        json_auto_t *page = NULL;
        const json_t *items;

        w->request = NULL;
        if (status == 410 && w->next_page[0]) { /* the pages of this list are no longer kept */
                begin_list(w);
                return;
        }
        if (status != 200) {
                fail_status(w, status, error);
                return;
        }
        page = sift_rest(w->sift);
        items = json_object_get(page, "items");
        if (!json_is_array(items) && !json_is_null(items)) {
                fail_watch(w, "its answer is no list of %s", w->what->kind);
                return;
        }
        take_version(w, page);
        if (!take_next_page(w, page))
                fail_watch(w, "its list has no end");
        else if (w->next_page[0])
                ask_page(w);
        else
                end_list(w);
}

static void begin_list(struct watch *w)
{
        (void)sd_event_source_set_enabled(w->retry, SD_EVENT_OFF);
        web_drop(w->request);
        w->request = NULL;
        w->listing = true;
        w->again = false;
        w->number++;
        w->version[0] = w->next_page[0] = '\0';
        w->pages = 0;
        w->told->begin(w->userdata);
        ask_page(w);
}

/* ---- the watch ---- */

/* Returns false if the watch cannot go on. */
static bool take_event(struct watch *w, const json_t *event)
{
        const char *type = json_string_value(json_object_get(event, "type"));
        const json_t *object = json_object_get(event, "object");

        if (!json_is_object(object) || !type || strcmp(type, "ERROR") == 0)
                return false; /* 410: the version is too old */
        take_version(w, object);
        if (strcmp(type, "BOOKMARK") != 0) {
                w->told->one(object, strcmp(type, "DELETED") == 0, w->userdata);
                w->told_changes = true;
        }
        return true;
}

static bool on_one(const json_t *one, void *userdata)
{
        struct watch *w = userdata;

        if (!w->listing)
                return take_event(w, one);
        w->told->one(one, false, w->userdata);
        return true;
}

static bool on_events(const char *bytes, size_t n, void *userdata)
{
        struct watch *w = userdata;
        const bool ok = sift_feed(w->sift, bytes, n);

        if (w->told_changes) {
                w->told_changes = false;
                if (w->told->changed)
                        w->told->changed(w->userdata);
        }
        return ok;
}

static void on_watch_end(unsigned status, const char *error, void *userdata)
{
        struct watch *w = userdata;

        w->request = NULL;
        if (status == 200 && clock_now_ns() - w->begun_ns >= NSEC_PER_SEC) { /* its time was over */
                begin_watch(w);
                return;
        }
        if (status && status != 200 && status != 410) {
                fail_status(w, status, error);
                return;
        }
        /* The version is too old, or the connection broke: list again, at first after a second. */
        w->back_off_ms = MIN(w->back_off_ms * 2, BACK_OFF_MAX);
        (void)sd_event_source_set_time_relative(w->retry,
                                                MAX(w->back_off_ms, BACK_OFF_MS) * UINT64_C(1000));
        (void)sd_event_source_set_enabled(w->retry, SD_EVENT_ONESHOT);
}

static void begin_watch(struct watch *w)
{
        char path[PATH_MAX_HERE], version[3 * VERSION_MAX];

        w->begun_ns = clock_now_ns();
        (void)web_escape(w->version, version, sizeof(version));
        (void)snprintf(path, sizeof(path),
                       "/api/v1/%s?%swatch=1&allowWatchBookmarks=true&resourceVersion=%s&"
                       "timeoutSeconds=%u",
                       w->what->kind, w->what->which, version, WATCH_S);
        ask(w, path, WATCH_S + LIST_S, SIFT_STREAM, on_events, on_watch_end);
}

unsigned watch_refresh(struct watch *w)
{
        if (w->listing) {
                w->again = true;
                return w->number + 1;
        }
        begin_list(w);
        return w->number;
}

int watch_new(sd_event *loop, struct web *web, const struct watch_what *what,
              const struct watch_told *told, void *userdata, struct watch **ret)
{
        static const struct sift_told sifted = {.one = on_one, .left_out = on_left_out};
        struct watch *w = calloc(1, sizeof(*w));
        int r;

        if (!w)
                return -ENOMEM;
        *w = (struct watch){
                .loop = loop, .web = web, .what = what, .told = told, .userdata = userdata};
        srandom((unsigned)time(NULL) ^ (unsigned)getpid());
        w->sift = sift_new(frame_fields, what->fields, &sifted, w);
        r = w->sift ? sd_event_add_time_relative(loop, &w->retry, CLOCK_MONOTONIC, 0, 0, on_retry,
                                                 w)
                    : -ENOMEM;
        if (r < 0) {
                watch_free(w);
                return r;
        }
        *ret = w; /* the timer begins the first list */
        return 0;
}

void watch_free(struct watch *w)
{
        if (!w)
                return;
        web_drop(w->request);
        (void)sd_event_source_disable_unref(w->retry);
        sift_free(w->sift);
        free(w);
}
