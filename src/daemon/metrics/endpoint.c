/* endpoint.c: owns the socket for the metrics, its connections, and the HTTP server behind them.
 * Must never wait for a reader, and never let one in that is not on this machine. */
#include "daemon/metrics/endpoint.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/metrics/collect.h"
#include "daemon/people/hangup.h"
#include "daemon/people/peer.h"
#include "daemon/setup/address.h"
#include "daemon/state/server.h"
#include "http/http.h"

#define CONNECTIONS_MAX 8
#define TIMEOUT_S       10u     /* seconds without a byte in either direction */
#define MEMORY_MAX      16384ul /* bytes for a connection: its request must fit */
#define FRESH_NS        (NSEC_PER_SEC / 2)
#define FRESH_PER_COST  20u /* an answer stays fresh so many times as long as making it took */

struct connection {
        int fd; /* owned by MHD */
        struct sockaddr_storage from;
        struct connection *next;
};

/* A text that was made a moment ago is sent again: many readers must not keep the loop busy. */
struct answer {
        struct MHD_Response *response;
        uint64_t fresh_until_ns;
        bool names;
};

struct endpoint {
        struct server *server;
        struct MHD_Daemon *http;
        struct sockaddr_storage address;
        int fd;
        bool named; /* the socket's name in the file system is ours */
        sd_event_source *listen;
        struct http_loop *loop;
        struct connection *connections; /* the newest first */
        struct answer answers[EXPOSITION_FORMATS];
};

/* ---- requests ---- */

static struct MHD_Response *respond(char *text, size_t size, const char *type)
{
        struct MHD_Response *r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);

        if (!r) {
                free(text);
                return NULL;
        }
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
        return r;
}

static void drop_answer(struct answer *a)
{
        if (a->response)
                MHD_destroy_response(a->response);
        a->response = NULL;
}

/* Returns the metrics as text; NULL: no memory. The answer stays ours. */
static struct MHD_Response *metrics(struct endpoint *e, enum exposition_format format)
{
        const bool names = e->address.ss_family == AF_UNIX || e->server->config->metrics_names;
        struct answer *a = &e->answers[format];
        const uint64_t now = clock_now_ns();
        struct exposition *samples;
        char *text = NULL;
        size_t size;

        if (a->response && a->names == names && now < a->fresh_until_ns)
                return a->response;
        drop_answer(a);
        samples = collect(e->server, names);
        if (samples && exposition_write(samples, format, &text, &size) == 0)
                a->response = respond(text, size, exposition_content_type(format));
        exposition_free(samples);
        a->fresh_until_ns = now + MAX(FRESH_NS, FRESH_PER_COST * (clock_now_ns() - now));
        a->names = names;
        return a->response;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *sentence)
{
        char *text = strdup(sentence);
        struct MHD_Response *r = text ? respond(text, strlen(text), "text/plain") : NULL;
        enum MHD_Result done;

        if (!r)
                return MHD_NO;
        done = MHD_queue_response(c, status, r);
        MHD_destroy_response(r);
        return done;
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
        struct endpoint *e = userdata;
        const char *accept;
        struct MHD_Response *r;

        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
                return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are served\n");
        if (strcmp(http_path(url), "/metrics") != 0)
                return refuse(c, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n");
        accept = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
        r = metrics(e, exposition_negotiate(accept));
        return r ? MHD_queue_response(c, MHD_HTTP_OK, r)
                 : refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "there is no memory for the metrics\n");
}

/* ---- connections ---- */

static int socket_of(struct MHD_Connection *c)
{
        return MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static void read_from(struct MHD_Connection *c, struct sockaddr_storage *ret)
{
        const struct sockaddr *from =
                MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;

        if (from && from->sa_family == AF_INET)
                memcpy(ret, from, sizeof(struct sockaddr_in));
        else if (from && from->sa_family == AF_INET6)
                memcpy(ret, from, sizeof(struct sockaddr_in6));
}

/* All peers at a UNIX socket count as one address. */
static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
        if (a->ss_family != b->ss_family)
                return false;
        if (a->ss_family == AF_INET)
                return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
                       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
        return a->ss_family != AF_INET6 ||
               memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

static void on_connection(void *userdata, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
        struct endpoint *e = userdata;
        struct connection **link = &e->connections, *k;

        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
                k = calloc(1, sizeof(*k));
                *socket_context = k;
                if (!k) {
                        (void)shutdown(socket_of(c), SHUT_RDWR);
                        return;
                }
                k->fd = socket_of(c);
                read_from(c, &k->from);
                k->next = e->connections;
                e->connections = k;
                return;
        }
        while (*link && *link != *socket_context)
                link = &(*link)->next;
        k = *link;
        if (k)
                *link = k->next;
        free(k);
}

static unsigned count(const struct endpoint *e, const struct sockaddr_storage *from)
{
        unsigned n = 0;

        for (const struct connection *k = e->connections; k; k = k->next)
                n += same_address(&k->from, from);
        return n;
}

/* If there are as many connections as allowed, ends the oldest one of the address that has most. So
 * neither readers that do nothing nor readers that come all the time keep others out. MHD sees the
 * end and frees it. */
static void make_place(struct endpoint *e, const struct sockaddr_storage *from)
{
        const struct connection *victim = NULL;
        unsigned n = 0, most = 0;

        for (const struct connection *k = e->connections; k; k = k->next) {
                const unsigned of_this = count(e, &k->from) + same_address(&k->from, from);

                n++;
                if (of_this >= most) {
                        most = of_this;
                        victim = k;
                }
        }
        if (victim && n >= CONNECTIONS_MAX)
                (void)shutdown(victim->fd, SHUT_RDWR);
}

/* The kernel would close descriptors that come with a request while we read it, which may take for
 * ever (hangup.h). So at the UNIX socket only trusted peers are read. */
static bool is_welcome(const struct endpoint *e, int fd)
{
        struct peer peer;

        if (e->address.ss_family != AF_UNIX)
                return true;
        if (peer_identify(fd, &peer) < 0)
                return false;
        cleanup_close(&peer.pidfd);
        return peer.trusted;
}

static int on_connect(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct endpoint *e = userdata;
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        socklen_t size = sizeof(from);
        int c;

        if (!server_may_accept(e->server))
                return 0;
        c = accept4(fd, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (c < 0 && (errno == EMFILE || errno == ENFILE))
                server_no_descriptor(e->server);
        if (c < 0)
                return 0;
        if (!is_welcome(e, c)) {
                (void)hangup_close(c);
                return 0;
        }
        make_place(e, &from);
        (void)MHD_add_connection(e->http, c, (struct sockaddr *)&from, size); /* it closes c */
        return 0;
}

/* ---- the socket ---- */

static int say(const char *address, int r, char error[static CONFIG_ERROR_MAX])
{
        (void)snprintf(error, CONFIG_ERROR_MAX, "cannot serve metrics at %s: %s", address,
                       strerror(-r));
        return r;
}

/* Removes a socket that an earlier daemon has left: nobody answers there. */
static int clear_way(const struct sockaddr_un *sa)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct stat st;

        if (fd < 0)
                return -errno;
        if (lstat(sa->sun_path, &st) < 0)
                return 0;
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        if (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0 || errno != ECONNREFUSED)
                return -EADDRINUSE;
        (void)unlink(sa->sun_path);
        return 0;
}

static int listen_at(struct endpoint *e, socklen_t size)
{
        const bool local = e->address.ss_family == AF_UNIX;
        mode_t mask;
        int r = local ? clear_way((const struct sockaddr_un *)&e->address) : 0;

        if (r < 0)
                return r;
        e->fd = socket(e->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (e->fd < 0)
                return -errno;
        if (!local) /* connections of an earlier daemon may linger */
                (void)setsockopt(e->fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        mask = umask(0177);
        r = bind(e->fd, (struct sockaddr *)&e->address, size) < 0 ? -errno : 0;
        (void)umask(mask);
        e->named = r == 0 && local;
        return r == 0 && listen(e->fd, SOMAXCONN) < 0 ? -errno : r;
}

__attribute__((format(printf, 2, 0))) static void on_log(void *userdata, const char *format,
                                                         va_list list)
{
        char text[256];
        int n = vsnprintf(text, sizeof(text), format, list);

        while (n > 0 && n < (int)sizeof(text) && text[n - 1] == '\n')
                text[--n] = '\0';
        log_debug("metrics: %s", text);
}

static int start_http(struct endpoint *e)
{
        int r;

        e->http = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0,
                                   NULL, NULL, on_request, e, MHD_OPTION_EXTERNAL_LOGGER, on_log,
                                   NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, e,
                                   MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S,
                                   MHD_OPTION_CONNECTION_LIMIT, 2u * CONNECTIONS_MAX,
                                   MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_MAX, MHD_OPTION_END);
        if (!e->http)
                return -ENOMEM;
        r = http_loop_new(e->server->event, e->http, &e->loop);
        if (r < 0)
                return r;
        return sd_event_add_io(e->server->event, &e->listen, e->fd, EPOLLIN, on_connect, e);
}

int endpoint_open(struct server *s, const char *address, struct endpoint **ret,
                  char error[static CONFIG_ERROR_MAX])
{
        struct endpoint *e = calloc(1, sizeof(*e));
        socklen_t size;
        int r;

        if (!e)
                return say(address, -ENOMEM, error);
        e->server = s;
        e->fd = -EBADF;
        r = address_parse(address, &e->address, &size);
        if (r == 0)
                r = listen_at(e, size);
        if (r == 0)
                r = start_http(e);
        if (r < 0) {
                endpoint_free(e);
                return say(address, r, error);
        }
        log_info("metrics are served at %s", address);
        *ret = e;
        return 0;
}

void endpoint_free(struct endpoint *e)
{
        if (!e)
                return;
        (void)sd_event_source_disable_unref(e->listen);
        http_loop_free(e->loop);
        if (e->http)
                MHD_stop_daemon(e->http); /* closes all connections */
        for (unsigned i = 0; i < EXPOSITION_FORMATS; i++)
                drop_answer(&e->answers[i]);
        if (e->named)
                (void)unlink(((struct sockaddr_un *)&e->address)->sun_path);
        cleanup_close(&e->fd);
        free(e);
}

void endpoint_use(struct server *s, struct endpoint *e)
{
        endpoint_free(s->endpoint);
        s->endpoint = e;
        s->metrics_source = e ? e->listen : NULL;
}
