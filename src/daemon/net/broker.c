/* broker.c: owns the brokering of connections between two processes. Must never connect two
 * tenants, nor give a descriptor to a client that does not read.
 * Why: docs/decisions.md, "Other processes get descriptors over a brokered connection". */
#include "daemon/net/broker.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include "base/cleanup.h"
#include "daemon/state/client.h"
#include "daemon/ledger/event.h"

/* Descriptors that were sent but not received count against the daemon's own user, so only few may
 * be on their way to a client. */
#define UNREAD_BYTES_MAX 4096

static bool reads_its_messages(const struct client *c)
{
        int unread = 0;

        return c->queue_used == 0 && ioctl(c->fd, SIOCOUTQ, &unread) == 0 &&
               unread < UNREAD_BYTES_MAX;
}

int broker_name(struct client *c, const struct wire_message *m)
{
        struct wire_message answer = {.header = {WIRE_NAMED, WIRE_NO_GPU, 0}};

        memcpy(c->broker_name, m->NAME.name, sizeof(c->broker_name));
        c->may_be_met = true;
        memcpy(answer.NAMED.name, m->NAME.name, sizeof(answer.NAMED.name));
        client_send(c, &answer);
        return 0;
}

/* Returns the client with this name. Names are random, so two are equal only if one tenant intends
 * it. */
static struct client *find(struct client *c, const uint8_t *name)
{
        for (struct client *o = c->server->clients; o; o = o->next)
                if (o != c && o->may_be_met && o->fd >= 0 && !o->dropped &&
                    memcmp(o->broker_name, name, sizeof(o->broker_name)) == 0 &&
                    peer_same_tenant(&o->peer, &c->peer))
                        return o;
        return NULL;
}

static void send_end(struct client *c, const uint8_t *name, uint32_t of, int fd)
{
        struct wire_message m = {.header = {WIRE_PEERED, WIRE_NO_GPU, 0}};

        if (name)
                memcpy(m.PEERED.name, name, sizeof(m.PEERED.name));
        m.PEERED.of = of;
        client_send_with(c, &m, &fd, 1);
}

int broker_peer(struct client *c, const struct wire_message *m)
{
        _cleanup_close_ int near = -EBADF, far = -EBADF;
        struct client *o = find(c, m->PEER.name);
        int ends[2];

        if (!o || !reads_its_messages(o) || !reads_its_messages(c) ||
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
                event_refuse(c, WIRE_NO_GPU, WIRE_REFUSED_PEER, m->header.sequence,
                             "no process of this name answers here");
                return 0;
        }
        near = ends[0];
        far = ends[1];
        send_end(o, NULL, 0, far);
        send_end(c, m->PEER.name, m->header.sequence, near);
        return 0;
}
