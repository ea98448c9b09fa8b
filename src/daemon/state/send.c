/* send.c: owns the messages sent to a client and the queue of those that wait. Must never block on
 * a client, nor free a client: it marks clients, and the sweep frees them. */
#include "daemon/state/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/descriptors.h"
#include "base/log.h"
#include "daemon/setup/kill_point.h"

void client_drop(struct client *c, const char *why)
{
        if (c->dropped)
                return;
        c->dropped = true;
        c->server->marked = true;
        if (c->greeted && !why)
                log_info("client %d (%s) has left", (int)c->peer.pid, c->name);
        else if (c->greeted)
                log_info("client %d (%s) disconnected: %s", (int)c->peer.pid, c->name, why);
        else
                log_debug("process %d ended its connection before it said HELLO: %s",
                          (int)c->peer.pid, why ? why : "it has left");
}

/* A peer that closes its end with messages unread resets the connection, which is no trouble. */
void client_drop_after(struct client *c, int error)
{
        const bool closed = error == -ENOTCONN || error == -ECONNRESET || error == -EPIPE;

        client_drop(c, closed ? NULL : strerror(-error));
}

void client_mark_gone(struct client *c)
{
        c->gone = true;
        c->server->marked = true;
}

/* A client that waits for its turn, or for a look at the cards, is not read until then. */
void client_watch(struct client *c)
{
        bool waits = c->turn_waits || c->held.since_ns;
        uint32_t events = (waits ? 0 : EPOLLIN) | (c->queue_used ? EPOLLOUT : 0);

        if (!c->io)
                return;
        if (events)
                (void)sd_event_source_set_io_events(c->io, events);
        (void)sd_event_source_set_enabled(c->io, events ? SD_EVENT_ON : SD_EVENT_OFF);
}

static void enqueue(struct client *c, const uint8_t *bytes, size_t size)
{
        struct client_packet *p;

        if (!c->queue)
                c->queue = calloc(CLIENT_QUEUE, sizeof(*c->queue));
        if (!c->queue || c->queue_used == CLIENT_QUEUE) {
                client_drop(c, "it does not read its messages");
                return;
        }
        p = &c->queue[(c->queue_first + c->queue_used) % CLIENT_QUEUE];
        memcpy(p->bytes, bytes, size);
        p->size = (uint16_t)size;
        c->queue_used++;
        client_watch(c);
}

/* Sends one packet. 1: sent; 0: the socket is full; or -errno. */
static int send_packet(struct client *c, const uint8_t *bytes, size_t size, const int *fds,
                       unsigned n_fds)
{
        union descriptors room;
        struct iovec data = {(void *)bytes, size};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};

        descriptors_attach(&h, &room, fds, n_fds);
        if (sendmsg(c->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
                return 1;
        return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : -errno;
}

void client_send(struct client *c, struct wire_message *m)
{
        client_send_with(c, m, NULL, 0);
}

void client_send_with(struct client *c, struct wire_message *m, const int *fds, unsigned n_fds)
{
        uint8_t packet[WIRE_SIZE_MAX];
        int size, r = 0;

        if (c->fd < 0 || c->dropped)
                return;
        c->sequence++;
        if (m->header.type != WIRE_LIMIT) /* LIMITs have a count of their own */
                m->header.sequence = c->sequence;
        size = wire_encode(m, packet);
        if (size < 0)
                return;
        log_debug("to %d: %s gpu %u sequence %u", (int)c->peer.pid, wire_name(m->header.type),
                  m->header.gpu, m->header.sequence);
        kill_point_message("sending", m->header.type);
        if (c->queue_used == 0)
                r = send_packet(c, packet, (size_t)size, fds, n_fds);
        if (r < 0)
                client_drop_after(c, r);
        else if (r == 0)
                enqueue(c, packet, (size_t)size);
        kill_point_message("sent", m->header.type);
}

void client_flush(struct client *c)
{
        while (c->queue_used && !c->dropped) {
                const struct client_packet *p = &c->queue[c->queue_first];
                int r = send_packet(c, p->bytes, p->size, NULL, 0);

                if (r < 0)
                        client_drop_after(c, r);
                if (r <= 0)
                        break;
                c->queue_first = (c->queue_first + 1) % CLIENT_QUEUE;
                c->queue_used--;
        }
        client_watch(c);
}

struct wire_message client_refusal(enum wire_refusal code, const char *text)
{
        struct wire_message m = {.header = {WIRE_REFUSED, WIRE_NO_GPU, 1}};

        m.REFUSED.magic = WIRE_MAGIC;
        m.REFUSED.code = code;
        m.REFUSED.protocol = WIRE_VERSION;
        (void)snprintf(m.REFUSED.text, sizeof(m.REFUSED.text), "%s", text);
        return m;
}

void client_refuse(struct client *c, enum wire_refusal code, const char *text)
{
        struct wire_message m = client_refusal(code, text);

        if (!c->greeted)
                log_info("process %d of user %u is refused: %s", (int)c->peer.pid,
                         (unsigned)c->peer.uid, text);
        client_send(c, &m);
        client_drop(c, text);
}
