/* web.c: owns libcurl: its descriptors and its timer are sources of the loop. Must never log or
 * pass on the token. */
#include "kubernetes/api/web.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <curl/curl.h>

#include "base/cleanup.h"

#define TOKEN_MAX 16384
#define CONNECT_S 10L

struct web {
        sd_event *loop;
        const struct web_server *server;
        CURLM *multi;
        sd_event_source *timer;
};

struct web_request {
        struct web *web;
        CURL *easy;
        struct curl_slist *headers;
        web_take take;
        web_ended ended;
        void *userdata;
        char error[CURL_ERROR_SIZE];
};

/* ---- libcurl's events ---- */

static void request_free(struct web_request *r)
{
        (void)curl_multi_remove_handle(r->web->multi, r->easy);
        curl_easy_cleanup(r->easy);
        curl_slist_free_all(r->headers);
        free(r);
}

static void tell_ended(struct web_request *r, CURLcode result)
{
        const web_ended ended = r->ended;
        void *userdata = r->userdata;
        char error[WEB_ERROR_MAX];
        long status = 0;

        (void)curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
        (void)snprintf(error, sizeof(error), "%s",
                       r->error[0] ? r->error : curl_easy_strerror(result));
        request_free(r);
        ended(result == CURLE_OK ? (unsigned)status : 0, error, userdata);
}

static void take_ended(struct web *w)
{
        const CURLMsg *message;
        int left;

        /* Take one message at a time: ended() may end other requests. */
        while ((message = curl_multi_info_read(w->multi, &left))) {
                struct web_request *r = NULL;
                const CURLcode result = message->data.result;

                (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&r);
                if (message->msg == CURLMSG_DONE && r)
                        tell_ended(r, result);
        }
}

static int on_socket(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
        struct web *w = userdata;
        int running;
        const int what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                         (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                         (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);

        (void)curl_multi_socket_action(w->multi, fd, what, &running);
        take_ended(w);
        return 0;
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *userdata, void *of_socket)
{
        struct web *w = userdata;
        sd_event_source *source = of_socket;
        const uint32_t events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
                                (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);

        if (what == CURL_POLL_REMOVE || source) {
                (void)sd_event_source_disable_unref(source);
                source = NULL;
        }
        if (what != CURL_POLL_REMOVE &&
            sd_event_add_io(w->loop, &source, fd, events, on_socket, w) < 0)
                return -1;
        (void)curl_multi_assign(w->multi, fd, source);
        return 0;
}

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
        struct web *w = userdata;
        int running;

        (void)curl_multi_socket_action(w->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        take_ended(w);
        return 0;
}

static int set_timer(CURLM *multi, long ms, void *userdata)
{
        struct web *w = userdata;

        if (ms < 0)
                return sd_event_source_set_enabled(w->timer, SD_EVENT_OFF) < 0 ? -1 : 0;
        if (sd_event_source_set_time_relative(w->timer, (uint64_t)ms * 1000) < 0 ||
            sd_event_source_set_enabled(w->timer, SD_EVENT_ONESHOT) < 0)
                return -1;
        return 0;
}

int web_new(sd_event *loop, const struct web_server *server, struct web **ret)
{
        struct web *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        *w = (struct web){.loop = loop, .server = server};
        if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
                free(w);
                return -ENOMEM;
        }
        w->multi = curl_multi_init();
        if (!w->multi ||
            sd_event_add_time_relative(loop, &w->timer, CLOCK_MONOTONIC, 0, 1000, on_time, w) < 0) {
                web_free(w);
                return -ENOMEM;
        }
        (void)sd_event_source_set_enabled(w->timer, SD_EVENT_OFF);
        (void)curl_multi_setopt(w->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
        (void)curl_multi_setopt(w->multi, CURLMOPT_SOCKETDATA, w);
        (void)curl_multi_setopt(w->multi, CURLMOPT_TIMERFUNCTION, set_timer);
        (void)curl_multi_setopt(w->multi, CURLMOPT_TIMERDATA, w);
        *ret = w;
        return 0;
}

const struct web_server *web_server_of(const struct web *w)
{
        return w->server;
}

void web_free(struct web *w)
{
        if (!w)
                return;
        if (w->multi)
                (void)curl_multi_cleanup(w->multi);
        (void)sd_event_source_disable_unref(w->timer);
        curl_global_cleanup();
        free(w);
}

/* ---- requests ---- */

static size_t on_bytes(char *bytes, size_t size, size_t n, void *userdata)
{
        struct web_request *r = userdata;

        return !r->take || r->take(bytes, size * n, r->userdata) ? size * n : 0;
}

static int add_header(struct web_request *r, const char *line)
{
        struct curl_slist *more = curl_slist_append(r->headers, line);

        r->headers = more ? more : r->headers;
        return more ? 0 : -ENOMEM;
}

static int add_token(struct web_request *r, const char *file, char error[static WEB_ERROR_MAX])
{
        _cleanup_free_ char *line = malloc(TOKEN_MAX + 32);
        _cleanup_fclose_ FILE *f = NULL;
        const char before[] = "Authorization: Bearer ";
        const size_t start = sizeof(before) - 1;
        size_t n;

        if (!line)
                return -ENOMEM;
        if (!file[0])
                return 0;
        f = fopen(file, "re");
        if (!f) {
                (void)snprintf(error, WEB_ERROR_MAX, "%.200s: %s", file, strerror(errno));
                return -errno;
        }
        memcpy(line, before, start);
        n = fread(line + start, 1, TOKEN_MAX, f);
        while (n > 0 && isspace((unsigned char)line[start + n - 1]))
                n--;
        line[start + n] = '\0';
        if (n == 0 || strpbrk(line, "\r\n")) {
                (void)snprintf(error, WEB_ERROR_MAX, "%.200s: not a token", file);
                return -EINVAL;
        }
        return add_header(r, line);
}

static void set_options(struct web_request *r, const char *url, unsigned timeout_s)
{
        char agent[64];

        (void)snprintf(agent, sizeof(agent), "%s/" SUBLET_VERSION, r->web->server->program);
        (void)curl_easy_setopt(r->easy, CURLOPT_URL, url);
        (void)curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
        (void)curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, on_bytes);
        (void)curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
        (void)curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
        (void)curl_easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->error);
        (void)curl_easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L);
        (void)curl_easy_setopt(r->easy, CURLOPT_NOPROXY, "*"); /* the server is in the cluster */
        (void)curl_easy_setopt(r->easy, CURLOPT_PROTOCOLS_STR, "http,https");
        (void)curl_easy_setopt(r->easy, CURLOPT_USERAGENT, agent);
        (void)curl_easy_setopt(r->easy, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
        (void)curl_easy_setopt(r->easy, CURLOPT_TIMEOUT, (long)timeout_s);
        (void)curl_easy_setopt(r->easy, CURLOPT_TCP_KEEPALIVE, 1L);
        if (r->web->server->ca_file[0])
                (void)curl_easy_setopt(r->easy, CURLOPT_CAINFO, r->web->server->ca_file);
}

static int add_json(struct web_request *r, const char *json)
{
        const int e = add_header(r, "Content-Type: application/json");

        return e == 0 && curl_easy_setopt(r->easy, CURLOPT_COPYPOSTFIELDS, json) != CURLE_OK
                       ? -ENOMEM
                       : e;
}

/* Begins a request. json: what goes to the server; NULL: this is a GET request. */
static int begin_request(struct web_request *r, const char *path, const char *json,
                         unsigned timeout_s, char error[static WEB_ERROR_MAX])
{
        const struct web_server *server = r->web->server;
        _cleanup_free_ char *url = NULL;
        int e = -ENOMEM;

        r->easy = curl_easy_init();
        r->headers = curl_slist_append(NULL, "Accept: application/json");
        if (r->easy && r->headers && asprintf(&url, "%s%s", server->url, path) >= 0)
                e = add_token(r, server->token_file, error);
        if (e == 0 && json)
                e = add_json(r, json);
        if (e < 0)
                return e;
        set_options(r, url, timeout_s);
        return curl_multi_add_handle(r->web->multi, r->easy) == CURLM_OK ? 0 : -ENOMEM;
}

static int ask(struct web *w, const char *path, const char *json, unsigned timeout_s, web_take take,
               web_ended ended, void *userdata, struct web_request **ret,
               char error[static WEB_ERROR_MAX])
{
        struct web_request *r = calloc(1, sizeof(*r));
        int e;

        (void)snprintf(error, WEB_ERROR_MAX, "out of memory");
        if (!r)
                return -ENOMEM;
        *r = (struct web_request){.web = w, .take = take, .ended = ended, .userdata = userdata};
        e = begin_request(r, path, json, timeout_s, error);
        if (e < 0) {
                if (r->easy)
                        curl_easy_cleanup(r->easy);
                curl_slist_free_all(r->headers);
                free(r);
                return e;
        }
        *ret = r;
        return 0;
}

int web_get(struct web *w, const char *path, unsigned timeout_s, web_take take, web_ended ended,
            void *userdata, struct web_request **ret, char error[static WEB_ERROR_MAX])
{
        return ask(w, path, NULL, timeout_s, take, ended, userdata, ret, error);
}

int web_post(struct web *w, const char *path, const char *json, unsigned timeout_s, web_ended ended,
             void *userdata, struct web_request **ret, char error[static WEB_ERROR_MAX])
{
        return ask(w, path, json, timeout_s, NULL, ended, userdata, ret, error);
}

void web_drop(struct web_request *r)
{
        if (r)
                request_free(r);
}

int web_escape(const char *text, char *ret, size_t n)
{
        size_t used = 0;

        for (; *text; text++) {
                const bool plain = isalnum((unsigned char)*text) || strchr("-_.~", *text);

                if (used + 4 > n)
                        return -ENAMETOOLONG;
                used += (size_t)snprintf(ret + used, n - used, plain ? "%c" : "%%%02X",
                                         (unsigned char)*text);
        }
        ret[used] = '\0';
        return 0;
}

/* ---- which server ---- */

int web_copy_url(const char *text, char ret[static WEB_URL_MAX])
{
        const size_t n = strlen(text);

        if (strncmp(text, "https://", 8) != 0 && strncmp(text, "http://", 7) != 0)
                return -EINVAL;
        if (n >= WEB_URL_MAX || text[n - 1] == '/')
                return -EINVAL;
        memcpy(ret, text, n + 1);
        return 0;
}

int web_url_of_cluster(char ret[static WEB_URL_MAX])
{
        const char *host = getenv("KUBERNETES_SERVICE_HOST");
        const char *port = getenv("KUBERNETES_SERVICE_PORT");
        char url[WEB_URL_MAX];
        bool is_ipv6;

        ret[0] = '\0';
        if (!host || !host[0])
                return 0;
        is_ipv6 = strchr(host, ':');
        (void)snprintf(url, sizeof(url), "https://%s%.255s%s:%.8s", is_ipv6 ? "[" : "", host,
                       is_ipv6 ? "]" : "", port && port[0] ? port : "443");
        return web_copy_url(url, ret);
}
