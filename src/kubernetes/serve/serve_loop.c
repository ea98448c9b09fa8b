/* serve_loop.c: owns the loop's parts around MHD: who is let in, when a connection has to end, and
 * the end of the program. One thread does all: an answer takes less time than a handshake. Must
 * never wait for a client. */
#include "kubernetes/serve/serve_loop.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <microhttpd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/standard.h"
#include "http/http.h"
#include "kubernetes/serve/certificate.h"
#include "kubernetes/serve/client_ca.h"
#include "kubernetes/serve/serve_clients.h"
#include "kubernetes/serve/socket.h"

/* What a connection must hold at most: the header of its request. MHD frees it with the
 * connection. */
#define MEMORY_MAX    8192ul
#define LOOK_USEC     UINT64_C(250000)
#define BUSY_USEC     UINT64_C(20000) /* between two tries of an answer that has to wait */
#define ACCEPTS_MAX   64u             /* clients that are accepted in one turn of the loop */
#define FILES_RESERVE 128u            /* descriptors of other things than clients */

struct server {
        sd_event *event;
        struct MHD_Daemon *http;
        struct http_loop *http_loop;
        struct requests *requests;
        struct clients *clients;
        struct client *starting; /* the client that is being passed to MHD */
        int listen_fd;
        char *client_ca; /* NULL: all may ask */
        uint64_t linger_ns;
        bool ending, quiet; /* quiet: nobody new is let in */
        bool scarce;        /* there are no descriptors for new clients */
        sd_event_source *listen, *look, *busy, *door, *post, *terminated, *interrupted;
};

/* ---- connections ---- */

/* Shuts the connection down. MHD notices that, and closes it. */
static void end_client(struct server *s, struct client *k)
{
        clients_end(s->clients, k);
        (void)shutdown(k->fd, SHUT_RDWR);
        requests_abandon(k->request);
}

static void on_connection(void *userdata, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
        struct server *s = userdata;
        struct client *k = *socket_context;

        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
                k = TAKE_PTR(s->starting);
                k->mhd = c;
                certificate_refresh();
                k->certificate = certificate_hold();
                *socket_context = k;
                return;
        }
        certificate_release(k->certificate);
        clients_leave(s->clients, k);
}

/* Passes clients that have a place to MHD, which closes those that it does not take. */
static void let_in(struct server *s)
{
        struct client *k;

        while ((k = clients_next(s->clients, clock_now_ns()))) {
                s->starting = k;
                (void)MHD_add_connection(s->http, k->fd, (struct sockaddr *)&k->from, k->from_size);
                if (s->starting)
                        clients_leave(s->clients, TAKE_PTR(s->starting));
        }
}

static void turn_away(struct server *s)
{
        struct client *k;

        while ((k = clients_surplus(s->clients))) {
                (void)close(k->fd);
                clients_leave(s->clients, k);
        }
}

/* Ends connections whose client is late, or in the way of others. */
static void end_late_ones(struct server *s)
{
        const uint64_t now = clock_now_ns();
        struct client *k;

        while ((k = clients_to_end(s->clients, s->quiet, now)))
                end_client(s, k);
        k = requests_find_slow(s->requests, now);
        if (k)
                end_client(s, k);
}

/* Accepts one client. 0 or -errno. */
static int accept_client(struct server *s)
{
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof(from);
        int fd = accept4(s->listen_fd, (struct sockaddr *)&from, &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
                return -errno;
        if (!clients_come(s->clients, fd, &from, size, clock_now_ns()))
                (void)close(fd);
        turn_away(s);
        return 0;
}

static int on_listen(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct server *s = userdata;
        int r = 0;

        for (unsigned n = 0; n < ACCEPTS_MAX && r == 0; n++)
                r = accept_client(s);
        /* The socket stays readable. on_look() tries again. */
        s->scarce = r == -EMFILE || r == -ENFILE || r == -ENOBUFS || r == -ENOMEM;
        return s->scarce ? sd_event_source_set_enabled(src, SD_EVENT_OFF) : 0;
}

/* ---- requests ---- */

static bool may_ask(const struct server *s, struct client *k)
{
        if (s->client_ca && !k->looked)
                k->vouched_for = client_ca_vouches(
                        MHD_get_connection_info(k->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)
                                ->tls_session);
        k->looked = true;
        return !s->client_ca || k->vouched_for;
}

static struct client *of(struct MHD_Connection *c)
{
        return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
        struct server *s = userdata;
        struct client *k = of(c);
        int r;

        if (*request)
                return requests_take(*request, upload, upload_size) < 0 ? MHD_NO : MHD_YES;
        clients_set_phase(k, CLIENT_ASKS, clock_now_ns());
        r = requests_begin(s->requests, k, url, method, may_ask(s, k), &k->request);
        *request = k->request;
        return r < 0 ? MHD_NO : MHD_YES;
}

static void on_completed(void *userdata, struct MHD_Connection *c, void **request,
                         enum MHD_RequestTerminationCode how)
{
        struct client *k = of(c);

        requests_finish(*request);
        *request = NULL;
        k->request = NULL;
        clients_set_phase(k, CLIENT_IDLE, clock_now_ns());
}

/* Starts MHD, without the options of TLS if plain: MHD would refuse them. */
static struct MHD_Daemon *start_http(struct server *s, bool plain)
{
        struct MHD_OptionItem tls[] = {
                {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)certificate_retrieve},
                {MHD_OPTION_HTTPS_PRIORITIES, 0,
                 (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
                {s->client_ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, s->client_ca},
                {MHD_OPTION_END, 0, NULL}};

        if (plain)
                tls[0].option = MHD_OPTION_END;
        return MHD_start_daemon(
                (plain ? 0 : MHD_USE_TLS) | MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET |
                        MHD_ALLOW_SUSPEND_RESUME,
                0, NULL, NULL, on_request, s, MHD_OPTION_ARRAY, tls, MHD_OPTION_CONNECTION_LIMIT,
                CLIENTS_PLACES, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_MAX,
                MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_END);
}

/* ---- the loop ---- */

static void in_a_while(sd_event_source *timer, uint64_t usec)
{
        int enabled;

        if (sd_event_source_get_enabled(timer, &enabled) > 0)
                return;
        (void)sd_event_source_set_time_relative(timer, usec);
        (void)sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

/* Runs after each turn of the loop, because places may have become free. */
static int on_post(sd_event_source *src, void *userdata)
{
        struct server *s = userdata;

        let_in(s);
        end_late_ones(s);
        if (clients_count(s->clients) || s->scarce)
                in_a_while(s->look, LOOK_USEC);
        if (requests_any_busy(s->requests))
                in_a_while(s->busy, BUSY_USEC);
        if (requests_any_resumed(s->requests))
                http_loop_wake(s->http_loop);
        return s->quiet && !clients_any_busy(s->clients) ? sd_event_exit(s->event, 0) : 0;
}

/* on_post() runs next, and does the rest. */
static int on_look(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct server *s = userdata;

        s->scarce = false;
        return s->quiet ? 0 : sd_event_source_set_enabled(s->listen, SD_EVENT_ON);
}

static int on_busy(sd_event_source *src, uint64_t usec, void *userdata)
{
        requests_retry(((struct server *)userdata)->requests);
        return 0;
}

/* ---- the end ---- */

/* Clients in the socket's queue have been told that they are connected: they are served first. */
static int on_door(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct server *s = userdata;

        while (accept_client(s) == 0)
                continue;
        s->listen = sd_event_source_disable_unref(s->listen);
        cleanup_close(&s->listen_fd);
        s->listen_fd = -EBADF;
        s->quiet = true;
        return 0;
}

static int on_signal(sd_event_source *src, const struct signalfd_siginfo *info, void *userdata)
{
        struct server *s = userdata;

        if (s->ending)
                return 0;
        log_info("ends, after open requests");
        s->ending = true;
        requests_end(s->requests);
        (void)sd_event_source_set_time_relative(s->door, s->linger_ns / NSEC_PER_USEC);
        return sd_event_source_set_enabled(s->door, SD_EVENT_ONESHOT);
}

void server_block_signals(void)
{
        sigset_t set;

        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGTERM);
        (void)sigaddset(&set, SIGINT);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
        (void)signal(SIGPIPE, SIG_IGN);
}

/* ---- the whole ---- */

static int add_timer(struct server *s, sd_event_source **ret, sd_event_time_handler_t on_time)
{
        int r = sd_event_add_time_relative(s->event, ret, CLOCK_MONOTONIC, 0, 1, on_time, s);

        return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

static int begin_server(struct server *s, const struct server_options *o,
                        const struct requests_service *service)
{
        int r;

        s->requests = requests_new(service);
        s->clients = clients_new();
        s->http = s->requests && s->clients ? start_http(s, o->plain) : NULL;
        if (!s->http)
                return -ENOMEM;
        if ((r = http_loop_new(s->event, s->http, &s->http_loop)) < 0 ||
            (r = sd_event_add_io(s->event, &s->listen, s->listen_fd, EPOLLIN, on_listen, s)) < 0 ||
            (r = add_timer(s, &s->look, on_look)) < 0 ||
            (r = add_timer(s, &s->busy, on_busy)) < 0 ||
            (r = add_timer(s, &s->door, on_door)) < 0 ||
            (r = sd_event_add_signal(s->event, &s->terminated, SIGTERM, on_signal, s)) < 0 ||
            (r = sd_event_add_signal(s->event, &s->interrupted, SIGINT, on_signal, s)) < 0 ||
            (r = sd_event_add_post(s->event, &s->post, on_post, s)) < 0)
                return r;
        return 0;
}

static void end(struct server *s)
{
        sd_event_source *const sources[] = {s->listen, s->look,       s->busy,       s->door,
                                            s->post,   s->terminated, s->interrupted};

        for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
                (void)sd_event_source_disable_unref(sources[i]);
        http_loop_free(s->http_loop);
        if (s->http)
                MHD_stop_daemon(s->http); /* closes all connections */
        cleanup_close(&s->listen_fd);
        clients_free(s->clients);
        requests_free(s->requests);
}

static int fail_server(int r, const char *what, char error[static SERVER_ERROR_MAX])
{
        (void)snprintf(error, SERVER_ERROR_MAX, "%.150s: %s", what, strerror(-r));
        return r;
}

int server_run(sd_event *event, const struct server_options *o,
               const struct requests_service *service, char error[static SERVER_ERROR_MAX])
{
        struct server s = {.event = event, .listen_fd = -EBADF, .linger_ns = o->linger_ns};
        int r = 0;

        _Static_assert(CLIENT_CA_ERROR_MAX <= SERVER_ERROR_MAX, "a sentence would be cut");
        if (o->client_ca)
                r = client_ca_read(o->client_ca, &s.client_ca, error);
        if (r < 0)
                return r;
        r = socket_open(o->listen, &s.listen_fd);
        if (r == -EINVAL)
                (void)snprintf(error, SERVER_ERROR_MAX,
                               "\"%.100s\" is no address such as 0.0.0.0:8443, [::]:8443 or :8443",
                               o->listen);
        else if (r < 0)
                (void)fail_server(r, o->listen, error);
        if (r == 0) {
                (void)standard_allow(CLIENTS_PLACES + CLIENTS_WAITING + FILES_RESERVE);
                r = begin_server(&s, o, service);
                if (r == 0) {
                        socket_say_where(s.listen_fd, service->many);
                        r = sd_event_loop(event);
                }
                if (r < 0)
                        (void)fail_server(r, "cannot serve", error);
        }
        end(&s);
        client_ca_free(s.client_ca);
        return r;
}
