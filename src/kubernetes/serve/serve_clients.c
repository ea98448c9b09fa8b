/* serve_clients.c: owns the places, and the order in which clients get them. Must never let one
 * address keep all others out.
 * Why: docs/decisions.md, "Servers of Kubernetes choose whom they serve". */
#include "kubernetes/serve/serve_clients.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

struct clients {
        struct peer *peers;
        struct client *served, *waiting; /* waiting: the first one first */
        struct client **last;
        unsigned n_served, n_waiting, n_ended;
};

struct clients *clients_new(void)
{
        struct clients *c = calloc(1, sizeof(*c));

        if (c)
                c->last = &c->waiting;
        return c;
}

void clients_free(struct clients *c)
{
        free(c);
}

unsigned clients_count(const struct clients *c)
{
        return c->n_served + c->n_waiting;
}

bool clients_any_busy(const struct clients *c)
{
        if (c->waiting)
                return true;
        for (const struct client *k = c->served; k; k = k->next)
                if (k->phase != CLIENT_IDLE && !k->ended)
                        return true;
        return false;
}

/* ---- peers ---- */

/* An address of IPv4 stands in the last bytes, as the kernel maps it for a socket of IPv6. */
static void read_address(const struct sockaddr_storage *from, unsigned char ret[static 16])
{
        memset(ret, 0, 16);
        if (from->ss_family == AF_INET6) {
                memcpy(ret, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
        } else if (from->ss_family == AF_INET) {
                memset(ret + 10, 0xff, 2);
                memcpy(ret + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
        }
}

static struct peer *find_peer(struct clients *c, const struct sockaddr_storage *from)
{
        unsigned char address[16];
        struct peer *p;

        read_address(from, address);
        for (p = c->peers; p; p = p->next)
                if (memcmp(p->address, address, sizeof(address)) == 0)
                        return p;
        p = calloc(1, sizeof(*p));
        if (!p)
                return NULL;
        memcpy(p->address, address, sizeof(address));
        p->next = c->peers;
        c->peers = p;
        return p;
}

static void release_peer(struct clients *c, struct peer *p)
{
        struct peer **link = &c->peers;

        if (p->served || p->waiting)
                return;
        while (*link != p)
                link = &(*link)->next;
        *link = p->next;
        free(p);
}

/* ---- lists ---- */

static void link_waiting(struct clients *c, struct client *k)
{
        k->next = NULL;
        k->link = c->last;
        *c->last = k;
        c->last = &k->next;
        c->n_waiting++;
        k->peer->waiting++;
}

static void link_served(struct clients *c, struct client *k)
{
        k->next = c->served;
        k->link = &c->served;
        if (k->next)
                k->next->link = &k->next;
        c->served = k;
        c->n_served++;
        k->peer->served++;
}

static void unlink_client(struct clients *c, struct client *k)
{
        *k->link = k->next;
        if (k->next)
                k->next->link = k->link;
        else if (k->phase == CLIENT_WAITS)
                c->last = k->link;
        if (k->phase == CLIENT_WAITS) {
                c->n_waiting--;
                k->peer->waiting--;
                return;
        }
        c->n_served--;
        k->peer->served--;
        if (k->ended)
                c->n_ended--;
}

struct client *clients_come(struct clients *c, int fd, const struct sockaddr_storage *from,
                            socklen_t size, uint64_t now_ns)
{
        struct client *k = calloc(1, sizeof(*k));
        struct peer *p = k ? find_peer(c, from) : NULL;

        if (!p) {
                free(k);
                return NULL;
        }
        *k = (struct client){.peer = p,
                             .phase = CLIENT_WAITS,
                             .since_ns = now_ns,
                             .fd = fd,
                             .from = *from,
                             .from_size = size};
        link_waiting(c, k);
        return k;
}

void clients_leave(struct clients *c, struct client *k)
{
        unlink_client(c, k);
        release_peer(c, k->peer);
        free(k);
}

void clients_set_phase(struct client *k, enum client_phase phase, uint64_t now_ns)
{
        k->phase = phase;
        k->since_ns = now_ns;
}

/* ---- who comes in ---- */

static struct client *first_in_line(const struct clients *c)
{
        struct client *first = c->waiting;

        for (struct client *k = first; k; k = k->next)
                if (k->peer->served < first->peer->served)
                        first = k;
        return first;
}

struct client *clients_next(struct clients *c, uint64_t now_ns)
{
        struct client *k = c->n_served < CLIENTS_PLACES ? first_in_line(c) : NULL;

        if (!k)
                return NULL;
        unlink_client(c, k);
        clients_set_phase(k, CLIENT_BEGINS, now_ns);
        link_served(c, k);
        return k;
}

struct client *clients_surplus(struct clients *c)
{
        struct client *newest = NULL;

        if (c->n_waiting <= CLIENTS_WAITING)
                return NULL;
        for (struct client *k = c->waiting; k; k = k->next)
                if (!newest || k->peer->waiting >= newest->peer->waiting)
                        newest = k;
        return newest;
}

/* ---- who goes ---- */

static bool is_late(const struct client *k, bool ending, uint64_t now_ns)
{
        const uint64_t limits[] = {
                [CLIENT_BEGINS] = CLIENTS_HEADER_NS,
                [CLIENT_ASKS] = CLIENTS_REQUEST_NS,
                [CLIENT_HELD] = UINT64_MAX,
                [CLIENT_IDLE] = ending ? 0 : CLIENTS_IDLE_NS,
        };

        return sub_sat(now_ns, k->since_ns) > limits[k->phase];
}

/* True if a gives up its place before b: idle clients do first, then those of the peer with the
 * most places, then the oldest. */
static bool goes_before(const struct client *a, const struct client *b)
{
        if ((a->phase == CLIENT_IDLE) != (b->phase == CLIENT_IDLE))
                return a->phase == CLIENT_IDLE;
        if (a->peer->served != b->peer->served)
                return a->peer->served > b->peer->served;
        return a->since_ns < b->since_ns;
}

/* Returns a client whose place goes to one that waits: an idle one, unless its peer has fewer
 * places; or one that stands still and whose peer has more. */
static struct client *find_place(const struct clients *c, uint64_t now_ns)
{
        const unsigned least = first_in_line(c)->peer->served;
        struct client *found = NULL;

        for (struct client *k = c->served; k; k = k->next) {
                const bool idle = k->phase == CLIENT_IDLE && k->peer->served >= least;
                const bool still =
                        k->peer->served > least + 1 && now_ns > k->since_ns + CLIENTS_SCARCE_NS;

                if (!k->ended && (idle || still) && (!found || goes_before(k, found)))
                        found = k;
        }
        return found;
}

struct client *clients_to_end(const struct clients *c, bool ending, uint64_t now_ns)
{
        struct client *k = c->served;

        while (k && (k->ended || !is_late(k, ending, now_ns)))
                k = k->next;
        /* Those that have ended leave soon, and their places are free then. */
        if (!k && c->n_served >= CLIENTS_PLACES && c->n_waiting > c->n_ended)
                k = find_place(c, now_ns);
        return k;
}

void clients_end(struct clients *c, struct client *k)
{
        k->ended = true;
        c->n_ended++;
}
