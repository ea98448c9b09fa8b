/* client_connection.c: owns clients' connections: accepting, receiving, ending. Must never block on
 * a client, trust a packet, or free anything inside a handler. */
#include "daemon/net/client_connection.h"
#include "daemon/state/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/people/hangup.h"
#include "daemon/setup/kill_point.h"
#include "daemon/net/read_turns.h"
#include "daemon/net/session.h"
#include "daemon/ledger/card_figures.h"

#define LAST_WORDS_MAX       1024 /* messages of ended processes; a socket's buffer holds fewer */
#define GREETING_TIMEOUT_US  (10 * UINT64_C(1000000))
#define CONNECTIONS_PER_SLOT 2 /* connections in all, for each client of the scheduler */

static bool settle_gone(struct client *c);

/* ---- receiving ---- */

/* Receives a message, and its descriptors into the server's pass. 1: a message; 0: none left, or
 * -errno. If more descriptors come than one message may bring, the kernel closes the surplus. */
static int client_read(struct client *c, struct wire_message *ret)
{
        uint8_t packet[WIRE_SIZE_MAX + 1];
        union descriptors room;
        union hangup_room strange;
        struct iovec data = {packet, sizeof(packet)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        struct pass *p = &c->server->pass;
        ssize_t n;

        if (c->peer.trusted)
                descriptors_expect(&h, &room);
        else
                hangup_expect(&h, &strange);
        n = recvmsg(c->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        if (c->peer.trusted) {
                p->n = descriptors_take(&h, DESCRIPTORS_MAX, p->fds);
        } else if (hangup_take(&h)) {
                if (users_credit(c->user, clock_now_ns()) < 0)
                        return -EUSERS;
                users_charge(c->user, HANGUP_NS, clock_now_ns());
        }
        if (n == 0)
                return -ENOTCONN;
        return wire_decode(packet, (size_t)n, WIRE_UP, ret) < 0 ? -EBADMSG : 1;
}

/* True if the message must wait for a look. The daemon looks at a card before a client attaches it:
 * the client's figures count only if NVML has none, and foreign bytes may have changed. A JOIN
 * names a card that the daemon must know. */
static bool waits_for_look(struct client *c, const struct wire_message *m)
{
        uint64_t now = clock_now_ns();

        if ((m->header.type != WIRE_ATTACH && m->header.type != WIRE_JOIN) || !c->greeted ||
            !reader_ask(c->server->reader))
                return false;
        c->held = (struct client_held){*m, now, false};
        return true;
}

void client_looked(struct client *c)
{
        if (c->ended && !c->gone)
                settle_gone(c);
        if (!c->held.since_ns || c->dropped ||
            (c->server->look && c->held.since_ns > c->server->look_ns))
                return;
        c->held.due = true;
        read_turns_wait(c);
}

static void handle_held(struct client *c)
{
        struct wire_message m = c->held.message;

        c->held.since_ns = 0;
        (void)session_handle(c, &m);
}

/* Handles one message. False: nothing more to read now. */
static bool receive(struct client *c)
{
        struct wire_message m = {.header = {0}};
        int r;

        if (c->held.since_ns) {
                if (c->held.due)
                        handle_held(c);
                return c->held.due && !c->dropped;
        }
        r = client_read(c, &m);
        if (r == 0)
                return false;
        if (r == -EBADMSG) {
                client_refuse(c, WIRE_REFUSED_PROTOCOL,
                              "this is not a message of this release: use one release of library "
                              "and daemon");
        } else if (r == -EUSERS) {
                client_refuse(c, WIRE_REFUSED_LIMIT,
                              "it attaches too many descriptors to its messages");
        } else if (r < 0) {
                client_drop_after(c, r);
        } else {
                log_debug("from %d: %s gpu %u sequence %u", (int)c->peer.pid,
                          wire_name(m.header.type), m.header.gpu, m.header.sequence);
                kill_point_message("heard", m.header.type);
                if (!waits_for_look(c, &m))
                        (void)session_handle(c, &m);
        }
        pass_end(c->server); /* close the descriptors of this message, used or not */
        return !c->dropped && !c->held.since_ns;
}

/* After the process has ended, still reads what it sent (BYE), up to a limit: another process may
 * hold its socket and go on sending. */
bool client_turn(struct client *c)
{
        bool more = !c->dropped && c->fd >= 0 && receive(c);

        if (c->exited) {
                if (more && c->last_words++ < LAST_WORDS_MAX)
                        return true;
                client_drop(c, NULL);
                client_check_gone(c);
                return false;
        }
        if (!more && !c->dropped)
                client_watch(c);
        return more;
}

static int on_io(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct client *c = userdata;

        (void)src;
        (void)fd;
        if (!c->dropped && (events & EPOLLOUT))
                client_flush(c);
        if (!c->dropped && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                read_turns_wait(c);
        client_watch(c);
        return 0;
}

/* ---- the process ---- */

static int on_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct client *c = userdata;

        (void)src;
        (void)usec;
        if (c->ended) {
                client_check_gone(c);
                return 0;
        }
        if (!c->greeted)
                (void)receive(c); /* read once more: perhaps the daemon itself was late */
        if (!c->greeted)
                client_drop(c, "it did not say HELLO");
        return 0;
}

static int arm_timer(struct client *c, uint64_t usec)
{
        int r;

        if (!c->timer)
                return sd_event_add_time_relative(c->server->event, &c->timer, CLOCK_MONOTONIC,
                                                  usec, 1000, on_timer, c);
        r = sd_event_source_set_time_relative(c->timer, usec);
        return r < 0 ? r : sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

/* The process has ended, but the driver may still be freeing its memory. If NVML has listed the
 * process, wait until NVML no longer does; otherwise wait half a second. */
static bool settle_gone(struct client *c)
{
        static const uint64_t unsure_ns = 500 * NSEC_PER_MSEC;
        bool sure, free_now = figures_is_gone(c->server, c, c->ended_ns, &sure);

        if (free_now && (sure || clock_now_ns() - c->ended_ns >= unsure_ns))
                client_mark_gone(c);
        return c->gone;
}

/* Asks for a look; if many processes end at once, one look serves all of them. */
void client_check_gone(struct client *c)
{
        if (c->gone)
                return;
        if (!c->ended) {
                c->ended = true;
                c->ended_ns = clock_now_ns();
        }
        if (settle_gone(c))
                return;
        (void)reader_ask(c->server->reader);
        if (c->gone_checks++ == 100)
                log_warning("process %d has ended, but the card still holds memory of it: see "
                            "nvidia-smi; a child of it may live",
                            (int)c->peer.pid);
        if (arm_timer(c, MIN(20000u * c->gone_checks, 1000000u)) < 0)
                client_mark_gone(c); /* without a timer nobody would check later */
}

/* Releases a client whose connection has ended, but not its process, if NVML shows that it holds
 * nothing. A library that still runs will reconnect, and its context stays on the card; exec() ends
 * both. If NVML cannot tell, the client is charged until the process ends. */
void client_check_left(struct client *c)
{
        bool sure;

        if (c->fd >= 0 || !c->id || c->ended || c->gone ||
            !figures_is_gone(c->server, c, c->lost_ns, &sure) || !sure)
                return;
        log_info("process %d (%s) lives, and has nothing on a card any more", (int)c->peer.pid,
                 c->name);
        client_mark_gone(c);
}

static int on_exit_of_process(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct client *c = userdata;

        (void)fd;
        (void)events;
        (void)sd_event_source_set_enabled(src, SD_EVENT_OFF);
        c->exited = true;
        read_turns_wait(c);
        return 0;
}

/* ---- a client's beginning and end ---- */

/* A process has one connection. A new connection replaces an older one of the same living process,
 * and takes over the old record's memory when it attaches. */
static void find_former(struct client *c)
{
        for (struct client *o = c->server->clients; o; o = o->next) {
                if (o == c || o->peer.pid != c->peer.pid || c->peer.pid == 0 || o->ended ||
                    peer_ended(o->peer.pidfd))
                        continue;
                if (!o->dropped)
                        client_drop(o, "the process connected again");
                if (o->id && !c->former) /* the newest: the list begins with it */
                        c->former = o;
        }
}

static int client_new(struct server *s, int fd, const struct peer *peer, struct user *user)
{
        struct client *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        c->server = s;
        c->fd = fd;
        c->peer = *peer;
        c->user = user;
        /* Accept descriptors only from this user: they are memory for other processes of the user.
         * Other users' descriptors are closed unread (hangup.h). */
        if (peer->trusted)
                peer_pass_descriptors(fd, true);
        memset(c->gpu_of, 0xff, sizeof(c->gpu_of)); /* sets each entry to -1 */
        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++)
                c->accounts[i].ordinal = -1;
        r = sd_event_add_io(s->event, &c->io, fd, EPOLLIN, on_io, c);
        if (r >= 0 && peer->pidfd >= 0)
                r = sd_event_add_io(s->event, &c->exit, peer->pidfd, EPOLLIN, on_exit_of_process,
                                    c);
        if (r >= 0)
                r = arm_timer(c, GREETING_TIMEOUT_US);
        if (r < 0) {
                (void)sd_event_source_disable_unref(c->io);
                (void)sd_event_source_disable_unref(c->exit);
                free(c);
                return r;
        }
        c->next = s->clients;
        if (c->next)
                c->next->previous = c;
        s->clients = c;
        s->n_clients++;
        find_former(c);
        kill_point("accepted");
        return 0;
}

static void refuse_connection(int fd, const char *text)
{
        struct wire_message m = client_refusal(WIRE_REFUSED_LIMIT, text);
        uint8_t packet[WIRE_SIZE_MAX];
        int size = wire_encode(&m, packet);

        (void)!send(fd, packet, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int client_begin(struct server *s, int fd)
{
        struct peer peer;
        struct user *user;
        uint64_t now = clock_now_ns();
        int r = peer_identify(fd, &peer);

        if (r < 0)
                return r;
        r = users_connect(s->users, users_key_of(&peer), now, &user);
        if (r < 0) {
                log_info("connection of user %u refused: %s", (unsigned)peer.uid, strerror(-r));
                refuse_connection(fd, "its user has too many connections: end programs, or ask for "
                                      "a larger connections_per_user");
                cleanup_close(&peer.pidfd);
                return r;
        }
        if (s->n_clients >= s->config->sched.clients_max * CONNECTIONS_PER_SLOT) {
                refuse_connection(fd, "the daemon has too many connections: end programs, or raise "
                                      "its key clients_max");
                r = -EUSERS;
        } else {
                r = client_new(s, fd, &peer, user);
        }
        users_charge(user, clock_now_ns() - now, clock_now_ns());
        if (r < 0) {
                users_disconnect(user);
                users_forget(user);
                cleanup_close(&peer.pidfd);
        }
        return r;
}

/* A connection needs two descriptors, its own and one for its process: accept only if both are
 * free. */
static int accept_with_room(int fd)
{
        _cleanup_close_ int room = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        int c;

        if (room < 0)
                return -errno;
        c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        return c < 0 ? -errno : c;
}

int client_accept(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct server *s = userdata;

        uint64_t began = clock_now_ns();

        (void)src;
        (void)events;
        while (clock_now_ns() - began < TURN_NS && server_may_accept(s)) {
                int c = accept_with_room(fd);

                if (c >= 0) {
                        if (client_begin(s, c) < 0)
                                (void)hangup_close(c);
                        continue;
                }
                if (c == -EMFILE || c == -ENFILE || c == -ENOMEM || c == -ENOBUFS)
                        server_no_descriptor(s);
                break;
        }
        return 0;
}

void client_close(struct client *c)
{
        uint64_t began, made, now;

        if (c->fd < 0)
                return;
        c->io = sd_event_source_disable_unref(c->io);
        began = clock_now_ns();
        made = hangup_close(c->fd) ? HANGUP_NS : 0;
        now = clock_now_ns();
        users_charge(c->user, now - began + made, now);
        c->fd = -EBADF;
        free(c->queue);
        c->queue = NULL;
        c->queue_used = 0;
        users_disconnect(c->user);
}

void client_free(struct client *c)
{
        struct server *s = c->server;

        client_close(c);
        read_turns_leave(c);
        for (struct client *o = s->clients; o; o = o->next)
                if (o->former == c)
                        o->former = NULL;
        (void)sd_event_source_disable_unref(c->exit);
        (void)sd_event_source_disable_unref(c->timer);
        cleanup_close(&c->peer.pidfd);
        if (c->previous)
                c->previous->next = c->next;
        else
                s->clients = c->next;
        if (c->next)
                c->next->previous = c->previous;
        s->n_clients--;
        users_forget(c->user);
        free(c);
}
