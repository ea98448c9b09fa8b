/* web.h: requests to one server, without waiting for them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <systemd/sd-event.h>

#define WEB_ERROR_MAX 320

struct web;
struct web_request;

#define WEB_URL_MAX 512

struct web_server {
        char url[WEB_URL_MAX];  /* "https://host:port", without a slash at the end */
        const char *token_file; /* read for each request, since tokens are replaced; "": none */
        const char *ca_file;    /* "": the machine's authorities */
        const char *program;    /* the name of this program, for the server's log */
};

/* Called with each piece of the answer as it comes. False ends the request. */
typedef bool (*web_take)(const char *bytes, size_t n, void *userdata);
/* Called once, unless the request was dropped: with HTTP's status, or with 0 and an error. The
 * request is gone. */
typedef void (*web_ended)(unsigned status, const char *error, void *userdata);

/* The strings of the server outlive the web. 0 or -errno. */
int web_new(sd_event *loop, const struct web_server *server, struct web **ret);
const struct web_server *web_server_of(const struct web *w);
/* All requests must have ended or been dropped. NULL is a no-op. */
void web_free(struct web *w);

/* Begins a GET request. Neither callback is called before this returns. 0, or -errno with a
 * sentence. */
int web_get(struct web *w, const char *path, unsigned timeout_s, web_take take, web_ended ended,
            void *userdata, struct web_request **ret, char error[static WEB_ERROR_MAX]);
/* Begins a POST request with a text of JSON, which is copied. The text of the answer is dropped. */
int web_post(struct web *w, const char *path, const char *json, unsigned timeout_s, web_ended ended,
             void *userdata, struct web_request **ret, char error[static WEB_ERROR_MAX]);
/* Drops the request: its callbacks are not called any more. NULL is a no-op. Must not be called
 * from take(). */
void web_drop(struct web_request *r);

/* Writes text so that it can be a part of a query. 0 or -ENAMETOOLONG. */
int web_escape(const char *text, char *ret, size_t n);

#define WEB_SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/" /* token, ca.crt */

/* Copies the URL of a server, if it can be one. 0 or -EINVAL. */
int web_copy_url(const char *text, char ret[static WEB_URL_MAX]);
/* Writes the API server that Kubernetes names in the variables of each pod; "": it names none. 0 or
 * -EINVAL. */
int web_url_of_cluster(char ret[static WEB_URL_MAX]);
