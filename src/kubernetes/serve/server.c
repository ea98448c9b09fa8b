/* server.c: owns the sockets, the loop around MHD, and when a connection has to end. One thread
 * does all: an answer takes less time than a handshake. Must never wait for a client. */
#include "kubernetes/serve/server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <microhttpd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "kubernetes/serve/certificate.h"
#include "kubernetes/serve/client_ca.h"

/* While all are in use, new clients wait in the socket's queue. */
#define CONNECTIONS_MAX 256u
#define QUEUE_MAX       4096
/* What a connection must hold at most: the header of its request. MHD frees it with the
 * connection. */
#define MEMORY_MAX 8192ul
/* From the first byte of a connection or request to its last: no API server waits longer. */
#define REQUEST_NS (10 * NSEC_PER_SEC)
/* The API server closes its idle connections after 90 s. If the server were the first, a request
 * that is just being sent would be lost. */
#define IDLE_NS (120 * NSEC_PER_SEC)
#define LOOK_MS 500
#define BUSY_MS 20 /* between two tries of an answer that has to wait */

struct connection {
        struct connection *next, **link;
        struct MHD_Connection *mhd;
        struct certificate *certificate;
        struct request *request;
        uint64_t since_ns; /* its request began, or its last one was answered */
        int fd;
        bool busy; /* a request is expected, or on its way */
        bool ended;
        bool looked, vouched_for; /* whether its certificate was looked at, and was good */
};

struct server {
        struct MHD_Daemon *http;
        struct requests *requests;
        struct connection *connections; /* the newest first */
        unsigned n;
        int listen_fd;
        char *client_ca;              /* NULL: all may ask */
        uint64_t linger_ns, close_ns; /* when the door closes, once the program ends */
        bool ending, quiet;           /* quiet: nobody new is let in */
};

/* ---- connections ---- */

static struct connection *of(struct MHD_Connection *c)
{
        return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* MHD notices the end, and closes. */
static void end_connection(struct connection *k)
{
        k->ended = true;
        (void)shutdown(k->fd, SHUT_RDWR);
}

static void start_connection(struct server *s, struct MHD_Connection *c, void **ret)
{
        struct connection *k = calloc(1, sizeof(*k));
        int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;

        *ret = k;
        if (!k) {
                (void)shutdown(fd, SHUT_RDWR);
                return;
        }
        certificate_refresh();
        *k = (struct connection){
                .next = s->connections,
                .link = &s->connections,
                .mhd = c,
                .certificate = certificate_hold(),
                .since_ns = clock_now_ns(),
                .fd = fd,
                .busy = true,
        };
        if (k->next)
                k->next->link = &k->next;
        s->connections = k;
        s->n++;
}

static void on_connection(void *userdata, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
        struct server *s = userdata;
        struct connection *k = *socket_context;

        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
                start_connection(s, c, socket_context);
                return;
        }
        if (!k)
                return;
        *k->link = k->next;
        if (k->next)
                k->next->link = k->link;
        s->n--;
        certificate_release(k->certificate);
        free(k);
}

/* Ends connections whose client is late. If all are in use, ends the one that is idle longest. */
static void look_at_connections(struct server *s)
{
        const uint64_t now = clock_now_ns();
        struct connection *oldest = NULL;

        for (struct connection *k = s->connections; k; k = k->next) {
                if (k->ended)
                        continue;
                if (k->request && requests_waits(k->request))
                        k->since_ns = now;
                if (now - k->since_ns > (k->busy ? REQUEST_NS : s->quiet ? 0 : IDLE_NS))
                        end_connection(k);
                else if (!k->busy && (!oldest || k->since_ns < oldest->since_ns))
                        oldest = k;
        }
        if (oldest && s->n >= CONNECTIONS_MAX)
                end_connection(oldest);
}

/* ---- requests ---- */

static bool may_ask(const struct server *s, struct connection *k)
{
        if (s->client_ca && !k->looked)
                k->vouched_for = client_ca_vouches(
                        MHD_get_connection_info(k->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)
                                ->tls_session);
        k->looked = true;
        return !s->client_ca || k->vouched_for;
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
        struct server *s = userdata;
        struct connection *k = of(c);
        int r;

        if (!k)
                return MHD_NO;
        if (*request)
                return requests_take(*request, upload, upload_size) < 0 ? MHD_NO : MHD_YES;
        if (!k->busy)
                k->since_ns = clock_now_ns();
        k->busy = true;
        r = requests_begin(s->requests, c, url, method, may_ask(s, k), &k->request);
        *request = k->request;
        return r < 0 ? MHD_NO : MHD_YES;
}

static void on_completed(void *userdata, struct MHD_Connection *c, void **request,
                         enum MHD_RequestTerminationCode how)
{
        struct connection *k = of(c);

        requests_finish(*request);
        *request = NULL;
        if (!k)
                return;
        k->request = NULL;
        k->busy = false;
        k->since_ns = clock_now_ns();
}

/* ---- the sockets ---- */

/* Reads "ADDR:PORT", "[ADDR]:PORT" or ":PORT". 0 or -EINVAL. */
static int read_address(const char *text, int family, struct addrinfo **ret)
{
        const struct addrinfo wanted = {.ai_family = family,
                                        .ai_socktype = SOCK_STREAM,
                                        .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
        const char *colon = strrchr(text, ':');
        char host[64];
        size_t length;

        if (!colon || !colon[1])
                return -EINVAL;
        length = (size_t)(colon - text);
        if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
                text++;
                length -= 2;
        }
        if (length >= sizeof(host))
                return -EINVAL;
        memcpy(host, text, length);
        host[length] = '\0';
        return getaddrinfo(length ? host : NULL, colon + 1, &wanted, ret) == 0 ? 0 : -EINVAL;
}

static int listen_on(const struct addrinfo *a, int *ret)
{
        _cleanup_close_ int fd =
                socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
        const int one = 1, zero = 0;

        if (fd < 0)
                return -errno;
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (a->ai_family == AF_INET6)
                (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
        if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, QUEUE_MAX) < 0)
                return -errno;
        *ret = TAKE_FD(fd);
        return 0;
}

/* Without an address: all of both families, or of IPv4 where the kernel has no IPv6. */
static int open_socket(const char *text, int *ret)
{
        const int families[] = {AF_INET6, AF_INET};
        int r = -EINVAL;

        for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
                struct addrinfo *a;

                if (read_address(text, families[i], &a) < 0)
                        continue;
                r = listen_on(a, ret);
                freeaddrinfo(a);
                if (r != -EAFNOSUPPORT && r != -EADDRNOTAVAIL)
                        return r;
        }
        return r;
}

static void say_where(int fd, const char *many)
{
        struct sockaddr_storage at;
        socklen_t size = sizeof(at);
        char host[64], port[16];

        if (getsockname(fd, (struct sockaddr *)&at, &size) == 0 &&
            getnameinfo((struct sockaddr *)&at, size, host, sizeof(host), port, sizeof(port),
                        NI_NUMERICHOST | NI_NUMERICSERV) == 0)
                log_info("serves %s on %s port %s", many, host, port);
}

/* MHD refuses options of TLS without TLS. */
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
                (plain ? 0 : MHD_USE_TLS) | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
                on_request, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_ARRAY, tls,
                MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                MEMORY_MAX, MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_NOTIFY_CONNECTION,
                on_connection, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_END);
}

/* ---- the loop ---- */

void server_block_signals(void)
{
        sigset_t set;

        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGTERM);
        (void)sigaddset(&set, SIGINT);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
        (void)signal(SIGPIPE, SIG_IGN);
}

static int open_signals(int *ret)
{
        sigset_t set;

        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGTERM);
        (void)sigaddset(&set, SIGINT);
        *ret = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return *ret < 0 ? -errno : 0;
}

/* How long the loop may sleep; -1: until something happens. */
static int sleep_ms(const struct server *s)
{
        MHD_UNSIGNED_LONG_LONG mhd;
        int ms = s->n || s->ending ? LOOK_MS : -1;

        if (requests_any_busy(s->requests))
                ms = BUSY_MS;
        if (MHD_get_timeout(s->http, &mhd) == MHD_YES && (ms < 0 || mhd < (unsigned)ms))
                ms = (int)mhd;
        return ms;
}

/* Clients in the socket's queue have been told that they are connected: they are served first. */
static void close_door(struct server *s)
{
        struct pollfd p = {.fd = s->listen_fd, .events = POLLIN};

        if (s->quiet || clock_now_ns() < s->close_ns || poll(&p, 1, 0) > 0)
                return;
        s->quiet = true;
        (void)close(MHD_quiesce_daemon(s->http));
}

static bool is_done(const struct server *s)
{
        if (!s->quiet)
                return false;
        for (const struct connection *k = s->connections; k; k = k->next)
                if (k->busy && !k->ended)
                        return false;
        return true;
}

static void loop(struct server *s, int signal_fd, const struct server_beside *beside)
{
        const int http_fd = MHD_get_daemon_info(s->http, MHD_DAEMON_INFO_EPOLL_FD)->listen_fd;
        struct pollfd fds[] = {{.fd = http_fd, .events = POLLIN},
                               {.fd = signal_fd, .events = POLLIN},
                               {.fd = beside ? beside->fd : -1, .events = POLLIN}};
        uint64_t look_ns = 0;

        if (beside)
                beside->turn(beside->userdata);
        while (!is_done(s)) {
                (void)poll(fds, ARRAY_SIZE(fds), sleep_ms(s));
                if (fds[1].revents && !s->ending) {
                        log_info("ends, after open requests");
                        s->ending = true;
                        s->close_ns = clock_now_ns() + s->linger_ns;
                        fds[1].fd = -1;
                        requests_end(s->requests);
                }
                if (fds[2].revents)
                        beside->turn(beside->userdata);
                requests_retry(s->requests);
                (void)MHD_run(s->http);
                if (s->ending)
                        close_door(s);
                if (clock_now_ns() >= look_ns) {
                        look_at_connections(s);
                        look_ns = clock_now_ns() + LOOK_MS * NSEC_PER_MSEC / 2;
                }
        }
}

static int fail(int r, const char *what, char error[static SERVER_ERROR_MAX])
{
        (void)snprintf(error, SERVER_ERROR_MAX, "%.150s: %s", what, strerror(-r));
        return r;
}

/* client_ca: the text; NULL: all may ask. */
static int serve(const struct server_options *o, char *client_ca,
                 const struct requests_service *service, const struct server_beside *beside,
                 char error[static SERVER_ERROR_MAX])
{
        _cleanup_close_ int signal_fd = -EBADF;
        struct server s = {.listen_fd = -EBADF, .client_ca = client_ca, .linger_ns = o->linger_ns};
        int r = open_socket(o->listen, &s.listen_fd);

        if (r == -EINVAL)
                (void)snprintf(error, SERVER_ERROR_MAX,
                               "\"%.100s\" is no address such as 0.0.0.0:8443, [::]:8443 or :8443",
                               o->listen);
        if (r < 0)
                return r == -EINVAL ? r : fail(r, o->listen, error);
        r = open_signals(&signal_fd);
        s.requests = requests_new(service);
        s.http = r < 0 || !s.requests ? NULL : start_http(&s, o->plain);
        if (!s.http) {
                (void)close(s.listen_fd);
                requests_free(s.requests);
                return fail(r < 0 ? r : -ENOMEM, "cannot start the web server", error);
        }
        say_where(s.listen_fd, service->many);
        loop(&s, signal_fd, beside);
        MHD_stop_daemon(s.http);
        requests_free(s.requests);
        return 0;
}

int server_run(const struct server_options *o, const struct requests_service *service,
               const struct server_beside *beside, char error[static SERVER_ERROR_MAX])
{
        char *client_ca = NULL;
        int r = 0;

        _Static_assert(CLIENT_CA_ERROR_MAX <= SERVER_ERROR_MAX, "a sentence would be cut");
        if (o->client_ca)
                r = client_ca_read(o->client_ca, &client_ca, error);
        if (r == 0)
                r = serve(o, client_ca, service, beside, error);
        client_ca_free(client_ca);
        return r;
}
