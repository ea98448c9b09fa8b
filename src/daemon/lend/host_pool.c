/* host_pool.c: owns the memfds of the host pools, and decides whose grows next. Must never take
 * memory away from a process that lives, nor do slow work in the loop: the filler does it.
 * Why: docs/decisions.md, "The host pool is a memfd for each process, and only the daemon fills
 * it". */
#include "daemon/lend/host_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/lend/filler.h"
#include "daemon/state/client.h"

#define UNIT      (UINT64_C(2) << 20)   /* pools grow in multiples of this */
#define PUNCH     (UINT64_C(256) << 20) /* takes about as long as to fill a piece */
#define KEPT_MOST (UINT64_C(1) << 50)   /* more than any machine has: such a figure is a lie */

struct host_pool {
        struct host_pool *next;
        struct client *client; /* NULL: the process has no record, or has ended */
        struct peer peer;      /* the process; its pidfd is a duplicate */
        ino_t container;       /* the container that is the tenant; 0: the user is */
        sd_event_source *exit; /* armed while there is no client */
        int fd;
        bool ending;     /* the process has ended */
        uint64_t filled; /* memory was put behind all offsets below this one */
        uint64_t asked;  /* end of the last FILL: the offset that the client asked for */
        uint64_t wanted; /* offset up to which memory is to be put; at most `asked` */
        uint64_t kept;   /* bytes in pools of earlier daemons, as the process says */
        uint64_t at;     /* ending: memory is taken away from here on; UINT64_MAX: there is none */
        uint64_t served_ns; /* when the filler last worked for it */
};

struct host_pools {
        struct host_pool *list;
        struct filler *filler;
        struct host_pool *at_work; /* whose order the filler carries out; NULL: none, or freed */
        bool fills;                /* that order is FILLER_FILL */
        uint64_t bytes;            /* bytes of that order */
        bool endings;              /* an ending pool was served last */
};

/* ---- figures ---- */

static uint64_t held(const struct host_pool *p)
{
        struct stat st;

        return p->kept + (fstat(p->fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0);
}

/* True if both are of one pod, job, container or user. A user's new pid namespaces make no new
 * tenants: they need a user namespace, and peer_own_container() leaves these out. New uids in a
 * container make none either, because there the container counts. */
static bool same_tenant(const struct host_pool *a, const struct host_pool *b)
{
        if (a->peer.tenant.kind != TENANT_NONE || b->peer.tenant.kind != TENANT_NONE)
                return peer_same_account(&a->peer, &b->peer);
        return a->container == b->container && (a->container || a->peer.uid == b->peer.uid);
}

uint64_t host_pool_held(const struct client *c)
{
        return c->pool ? held(c->pool) : 0;
}

uint64_t host_pools_held(const struct server *s)
{
        uint64_t sum = 0;

        for (const struct host_pool *p = s->host_pools->list; p; p = p->next)
                sum += held(p);
        return sum;
}

static uint64_t held_by_tenant(const struct server *s, const struct host_pool *of)
{
        uint64_t sum = 0;

        for (const struct host_pool *p = s->host_pools->list; p; p = p->next)
                if (same_tenant(p, of))
                        sum += held(p);
        return sum;
}

/* Returns by how much all pools together may grow. Like evicted memory, they come out of the
 * daemon's budget. */
static uint64_t left_of_all(const struct server *s)
{
        return sub_sat(s->host_budget_bytes, s->host_mapped + host_pools_held(s));
}

/* Returns the bytes that a frozen program was asked for and cannot give back: the driver unpins
 * nothing while the program is frozen. */
static uint64_t stuck(const struct server *s, const struct host_pool *p)
{
        const struct client *c = p->client;
        uint64_t sum = 0;

        for (unsigned i = 0; c && c->frozen.since_ns && i < s->gpus.n; i++) {
                struct sched_account_view v;

                if (c->accounts[i].unpin_told && sched_account_view(s->sched, c->id, i, &v) == 0)
                        sum += client_spare_arena(&v);
        }
        return sum ? MIN(sum, held(p)) : 0;
}

/* Returns by how much the tenant's pools may grow. Memory that frozen programs cannot give back
 * does not count: such a program may wait for one that needs pool memory to evict. At most
 * host_pool_bytes are left out so, because a program may say falsely that it is frozen. */
static uint64_t left_of_tenant(const struct server *s, const struct host_pool *of)
{
        const uint64_t bound = s->config->host_pool_bytes;
        uint64_t sum = 0;

        for (const struct host_pool *p = s->host_pools->list; p; p = p->next)
                if (p != of && same_tenant(p, of))
                        sum += stuck(s, p);
        return sub_sat(bound + MIN(sum, bound), held_by_tenant(s, of));
}

enum host_pool_lack host_pool_lack(const struct client *c, uint64_t bytes)
{
        if (!c->pool)
                return HOST_POOL_LACKS_NOTHING;
        if (left_of_all(c->server) < bytes)
                return HOST_POOL_LACKS_OF_ALL;
        return left_of_tenant(c->server, c->pool) < bytes ? HOST_POOL_LACKS_OF_TENANT
                                                          : HOST_POOL_LACKS_NOTHING;
}

bool host_pool_helps(const struct client *other, const struct client *c, enum host_pool_lack lack)
{
        if (!other->pool || held(other->pool) == 0)
                return true;
        return lack == HOST_POOL_LACKS_OF_ALL ||
               (lack == HOST_POOL_LACKS_OF_TENANT && same_tenant(c->pool, other->pool));
}

/* ---- messages ---- */

/* with_fd: send the memfd, because the process may not have it yet. */
static void tell_pool(struct host_pool *p, bool with_fd)
{
        struct client *c = p->client;
        struct wire_message m = {
                .header = {WIRE_HOST_POOL, WIRE_NO_GPU, 0},
                .HOST_POOL = {.bytes = c->server->config->host_pool_bytes, .filled = p->filled}};

        client_send_with(c, &m, &p->fd, with_fd);
}

static void tell_filled(struct host_pool *p, bool refused)
{
        struct wire_message m = {
                .header = {WIRE_FILLED, WIRE_NO_GPU, 0},
                .FILLED = {.filled = p->filled, .end = p->asked, .refused = refused}};

        if (p->client)
                client_send(p->client, &m);
}

/* ---- the filler's orders ---- */

static void unlink_pool(struct server *s, struct host_pool *p)
{
        struct host_pool **link = &s->host_pools->list;

        while (*link != p)
                link = &(*link)->next;
        *link = p->next;
        if (s->host_pools->at_work == p)
                s->host_pools->at_work = NULL;
        (void)sd_event_source_disable_unref(p->exit);
        cleanup_close(&p->peer.pidfd);
        cleanup_close(&p->fd);
        free(p);
}

static bool is_waiting(const struct host_pool *p)
{
        return p->client && !p->client->dropped && p->client->fd >= 0 && p->wanted > p->filled;
}

static void refuse(struct host_pool *p)
{
        p->wanted = p->filled;
        tell_filled(p, true);
}

static void begin_fill(struct server *s, struct host_pool *p)
{
        struct host_pools *all = s->host_pools;
        const uint64_t room = MIN(left_of_tenant(s, p), left_of_all(s));
        uint64_t bytes = MIN(MIN(p->wanted - p->filled, HOST_POOL_PIECE), room) / UNIT * UNIT;

        p->served_ns = clock_now_ns();
        if (bytes == 0 || filler_order(all->filler, FILLER_FILL, p->fd, p->filled, bytes) < 0) {
                refuse(p);
                return;
        }
        all->at_work = p;
        all->fills = true;
        all->bytes = bytes;
}

/* Takes all memory away first: another process may have inherited the memfd, and its memory would
 * stay charged to the daemon. */
static void begin_end(struct server *s, struct host_pool *p)
{
        struct host_pools *all = s->host_pools;

        if (p->at < UINT64_MAX &&
            filler_order(all->filler, FILLER_PUNCH, p->fd, p->at, PUNCH) == 0) {
                all->at_work = p;
                all->fills = false;
                return;
        }
        (void)filler_order(all->filler, FILLER_CLOSE, p->fd, 0, 0);
        unlink_pool(s, p);
}

/* Returns when the filler last worked for the tenant. */
static uint64_t served_ns(const struct server *s, const struct host_pool *of)
{
        uint64_t last = 0;

        for (const struct host_pool *p = s->host_pools->list; p; p = p->next)
                if (same_tenant(p, of))
                        last = MAX(last, p->served_ns);
        return last;
}

/* Returns the pool to fill next. It belongs to the tenant served longest ago, and within this
 * tenant to the process served longest ago. */
static struct host_pool *next_waiting(const struct server *s)
{
        struct host_pool *best = NULL;
        uint64_t best_ns = UINT64_MAX;

        for (struct host_pool *p = s->host_pools->list; p; p = p->next) {
                uint64_t ns;

                if (!is_waiting(p))
                        continue;
                ns = served_ns(s, p);
                if (ns > best_ns || (ns == best_ns && p->served_ns >= best->served_ns))
                        continue;
                best = p;
                best_ns = ns;
        }
        return best;
}

static struct host_pool *next_ending(const struct server *s)
{
        struct host_pool *p = s->host_pools->list;

        while (p && !p->ending)
                p = p->next;
        return p;
}

/* Gives the filler its next order. Ending and waiting pools take turns. */
static void go_on(struct server *s)
{
        struct host_pools *all = s->host_pools;

        while (!filler_is_busy(all->filler)) {
                struct host_pool *waits = next_waiting(s), *ends = next_ending(s);

                if (!waits && !ends)
                        return;
                all->endings = ends && (!waits || !all->endings);
                if (all->endings)
                        begin_end(s, ends);
                else
                        begin_fill(s, waits);
        }
}

static void on_result(void *userdata, int result, uint64_t next)
{
        struct server *s = userdata;
        struct host_pool *p = s->host_pools->at_work;

        s->host_pools->at_work = NULL;
        if (p && !s->host_pools->fills) {
                /* Below `filled` there may be memory that lseek() does not find (filler.c). */
                p->at = p->at + PUNCH < p->filled ? p->at + PUNCH : result < 0 ? UINT64_MAX : next;
        } else if (p && result < 0) {
                refuse(p);
        } else if (p) {
                p->filled += s->host_pools->bytes;
                tell_filled(p, false);
        }
        go_on(s);
}

/* ---- the life of a pool ---- */

static bool too_many(const struct server *s, const struct client *c)
{
        unsigned n = 0;

        for (const struct host_pool *p = s->host_pools->list; p; p = p->next)
                n += p->peer.uid == c->peer.uid;
        return !c->peer.trusted && n >= s->config->connections_per_user;
}

static int make_memfd(int *ret_fd)
{
        _cleanup_close_ int fd = -EBADF;
        struct rlimit size;

        /* A file that grows beyond this limit would end the daemon (SIGXFSZ). */
        if (getrlimit(RLIMIT_FSIZE, &size) < 0 || size.rlim_cur != RLIM_INFINITY)
                return -EFBIG;
        fd = memfd_create("sublet-host-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        if (ftruncate(fd, (off_t)HOST_POOL_SIZE) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int pool_new(struct client *c)
{
        struct host_pools *all = c->server->host_pools;
        struct host_pool *p;
        int r;

        p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        p->peer = c->peer;
        p->fd = -EBADF;
        p->peer.pidfd = fcntl(c->peer.pidfd, F_DUPFD_CLOEXEC, 0);
        r = p->peer.pidfd < 0 ? -errno : make_memfd(&p->fd);
        if (r < 0) {
                cleanup_close(&p->peer.pidfd);
                free(p);
                return r;
        }
        p->container = peer_own_container(&c->peer);
        p->client = c;
        p->next = all->list;
        all->list = p;
        c->pool = p;
        return 0;
}

/* Finds the pool that the process got on an earlier connection. */
static struct host_pool *find_pool(const struct client *c)
{
        struct host_pool *p = c->server->host_pools->list;

        while (p && (p->ending || p->peer.pid != c->peer.pid || peer_ended(p->peer.pidfd)))
                p = p->next;
        return p;
}

void host_pool_attached(struct client *c)
{
        struct host_pool *p;
        int r;

        /* Without a pidfd the daemon does not learn when the process ends; without a pid it cannot
         * find the pool of the process. */
        if (c->pool || c->peer.pidfd < 0 || c->peer.pid <= 0)
                return;
        p = find_pool(c);
        if (p) {
                if (p->client)
                        p->client->pool = NULL;
                p->client = c;
                p->asked = p->wanted = p->filled;
                p->exit = sd_event_source_disable_unref(p->exit);
                c->pool = p;
                tell_pool(p, true);
                return;
        }
        if (!c->server->config->host_pool_bytes || too_many(c->server, c))
                return;
        r = pool_new(c);
        if (r == 0)
                tell_pool(c->pool, true);
        else
                log_warning("no host pool for process %d: %s", (int)c->peer.pid, strerror(-r));
}

int host_pool_fill(struct client *c, const struct wire_message *m)
{
        struct host_pool *p = c->pool;

        if (m->FILL.end > HOST_POOL_SIZE || m->FILL.kept > KEPT_MOST)
                return -EINVAL;
        if (!p)
                return 0;
        p->kept = m->FILL.kept;
        p->asked = p->wanted = m->FILL.end;
        if (p->wanted <= p->filled)
                tell_filled(p, false);
        go_on(c->server);
        return 0;
}

static void pool_end(struct server *s, struct host_pool *p)
{
        p->exit = sd_event_source_disable_unref(p->exit);
        p->client = NULL;
        p->ending = true;
        p->kept = 0;
        go_on(s);
}

static int on_exit_of_process(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct server *s = userdata;

        for (struct host_pool *p = s->host_pools->list; p; p = p->next)
                if (p->exit == src) {
                        pool_end(s, p);
                        break;
                }
        return 0;
}

void host_pool_left(struct client *c)
{
        struct server *s = c->server;
        struct host_pool *p = c->pool;

        if (!p)
                return;
        c->pool = NULL;
        p->client = NULL;
        p->wanted = p->filled;
        if (peer_ended(p->peer.pidfd) ||
            sd_event_add_io(s->event, &p->exit, p->peer.pidfd, EPOLLIN, on_exit_of_process, s) < 0)
                pool_end(s, p);
}

void host_pool_changed(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next) {
                if (!c->id || c->fd < 0 || c->dropped)
                        continue;
                if (c->pool)
                        tell_pool(c->pool, false);
                else
                        host_pool_attached(c);
        }
}

int host_pools_new(struct server *s)
{
        struct host_pools *all = calloc(1, sizeof(*all));
        int r = all ? filler_new(s->event, on_result, s, &all->filler) : -ENOMEM;

        if (r < 0) {
                free(all);
                return r;
        }
        s->host_pools = all;
        return 0;
}

/* Living processes keep their memfds. */
void host_pools_free(struct server *s)
{
        if (!s->host_pools)
                return;
        while (s->host_pools->list)
                unlink_pool(s, s->host_pools->list);
        filler_free(s->host_pools->filler);
        free(s->host_pools);
        s->host_pools = NULL;
}
