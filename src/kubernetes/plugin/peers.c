/* peers.c: owns a second descriptor of each connection, to end it and to hear of its end. Must
 * never read or write there: that is gRPC's. */
#include "kubernetes/plugin/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

#define PEERS_MAX    32u
#define PEERS_OF_ONE 8u /* connections of one process: kubelet has one, at times two */

struct peer {
        struct peers *of;
        struct peer *next; /* the next newer one */
        int grpcs, fd;     /* grpcs: the number of gRPC's descriptor */
        pid_t pid;
        sd_event_source *on_end;
};

struct peers {
        sd_event *loop;
        struct peer *oldest;
        unsigned n;
};

static void forget(struct peer *one)
{
        struct peer **at = &one->of->oldest;

        while (*at != one)
                at = &(*at)->next;
        *at = one->next;
        one->of->n--;
        (void)sd_event_source_disable_unref(one->on_end);
        (void)close(one->fd);
        free(one);
}

static int on_end(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
        forget(userdata);
        return 0;
}

static void end(struct peer *one)
{
        (void)shutdown(one->fd, SHUT_RDWR);
        forget(one);
}

static unsigned count(const struct peers *p, pid_t pid)
{
        unsigned n = 0;

        for (const struct peer *one = p->oldest; one; one = one->next)
                n += one->pid == pid;
        return n;
}

/* Returns the oldest connection of the process that has the most; NULL: no process has two. */
static struct peer *choose(const struct peers *p)
{
        struct peer *most = NULL;
        unsigned n = 1;

        for (struct peer *one = p->oldest; one; one = one->next) {
                const unsigned of_this = count(p, one->pid);

                if (of_this > n) {
                        most = one;
                        n = of_this;
                }
        }
        return most;
}

static struct peer *oldest_of(const struct peers *p, pid_t pid)
{
        struct peer *one = p->oldest;

        while (one && one->pid != pid)
                one = one->next;
        return one;
}

int peers_add(struct peers *p, int fd)
{
        struct ucred who = {.pid = 0};
        socklen_t size = sizeof(who);
        struct peer *one, **at = &p->oldest, *victim = NULL;
        int r;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
                return -errno;
        if (count(p, who.pid) >= PEERS_OF_ONE)
                victim = oldest_of(p, who.pid);
        else if (p->n >= PEERS_MAX)
                victim = choose(p);
        if (victim)
                end(victim);
        else if (p->n >= PEERS_MAX)
                return -EUSERS;
        one = calloc(1, sizeof(*one));
        if (!one)
                return -ENOMEM;
        *one = (struct peer){.of = p, .grpcs = fd, .pid = who.pid};
        one->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (one->fd < 0) {
                r = -errno;
                goto free_one;
        }
        r = sd_event_add_io(p->loop, &one->on_end, one->fd, EPOLLRDHUP, on_end, one);
        if (r < 0)
                goto close_fd;
        while (*at)
                at = &(*at)->next;
        *at = one;
        p->n++;
        return 0;

close_fd:
        (void)close(one->fd);
free_one:
        free(one);
        return r;
}

static struct peer *find(const struct peers *p, const char *peer)
{
        struct peer *one = NULL;
        int fd;

        if (sscanf(peer, "fd:%d", &fd) == 1)
                for (one = p->oldest; one && one->grpcs != fd;)
                        one = one->next;
        return one;
}

pid_t peers_process(const struct peers *p, const char *peer)
{
        const struct peer *one = find(p, peer);

        return one ? one->pid : 0;
}

void peers_end(struct peers *p, const char *peer)
{
        struct peer *one = find(p, peer);

        if (one)
                end(one);
}

int peers_new(sd_event *loop, struct peers **ret)
{
        struct peers *p = calloc(1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        p->loop = loop;
        *ret = p;
        return 0;
}

void peers_free(struct peers *p)
{
        while (p && p->oldest)
                forget(p->oldest);
        free(p);
}
