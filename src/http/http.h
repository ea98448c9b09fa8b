/* http.h: libmicrohttpd (MHD) in a loop of sd-event, without threads.
 *
 * The caller starts MHD with MHD_USE_EPOLL and without a socket that listens: at its limit of
 * connections MHD stops to watch such a socket, and does not say when it looks again. So the caller
 * accepts connections, and passes them to MHD_add_connection(). Not thread-safe. */
#pragma once

#include <microhttpd.h>
#include <systemd/sd-event.h>

struct http_loop;

/* From now on, the loop calls MHD whenever MHD has something to do. 0 or -errno. */
int http_loop_new(sd_event *event, struct MHD_Daemon *http, struct http_loop **ret);
/* Lets MHD run soon: call it after MHD_resume_connection(), which makes nothing readable. */
void http_loop_wake(struct http_loop *l);
/* Call it before MHD_stop_daemon(). NULL is a no-op. */
void http_loop_free(struct http_loop *l);

/* Returns the path in the target of a request, which may be a whole address (RFC 9112, 3.2.2). */
const char *http_path(const char *target);
