/* meet_server.c: owns one name's server and the messages. Must never trust a connection of another
 * user, and never wait. */
#include "ranks/meet/meet_server.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"

/* ---- messages ---- */

void said_close(int fds[static MEET_FDS])
{
        for (unsigned i = 0; i < MEET_FDS; i++) {
                if (fds[i] >= 0)
                        (void)close(fds[i]);
                fds[i] = -EBADF;
        }
}

int said_send(int fd, const struct said *said, const int *fds, unsigned n_fds)
{
        union {
                char room[CMSG_SPACE(MEET_FDS * sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {.iov_base = (void *)said, .iov_len = sizeof(*said)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        if (n_fds > 0) {
                struct cmsghdr *c;

                m.msg_control = control.room;
                m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                (void)memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Takes the descriptors that came with a message; closes those beyond MEET_FDS. */
static void take_fds(struct msghdr *m, int ret_fds[static MEET_FDS])
{
        unsigned n = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                const unsigned here = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                for (unsigned i = 0; i < here; i++) {
                        int fd;

                        (void)memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        if (n < MEET_FDS)
                                ret_fds[n++] = fd;
                        else
                                (void)close(fd);
                }
        }
}

int said_receive(int fd, struct said *ret, int ret_fds[static MEET_FDS])
{
        union {
                char room[CMSG_SPACE(MEET_FDS * sizeof(int))];
                struct cmsghdr align;
        } control;
        struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.room,
                           .msg_controllen = sizeof(control.room)};
        ssize_t n;

        for (unsigned i = 0; i < MEET_FDS; i++)
                ret_fds[i] = -EBADF;
        n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        /* The other end has closed without reading all. Its own last message is still here. */
        if (n < 0 && errno == ECONNRESET)
                n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
                return -errno;
        if (n == 0)
                return 0;
        take_fds(&m, ret_fds);
        if (n == sizeof(*ret))
                return 1;
        said_close(ret_fds);
        return -EBADMSG;
}

/* ---- the server ---- */

static socklen_t address_of(const uint8_t name[static MEET_NAME], struct sockaddr_un *ret)
{
        static const char prefix[] = "sublet-ranks-";
        char *at = ret->sun_path + 1; /* after a NUL: the abstract namespace */

        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        at = stpcpy(at, prefix);
        for (unsigned i = 0; i < MEET_NAME; i++) {
                *at++ = "0123456789abcdef"[name[i] >> 4];
                *at++ = "0123456789abcdef"[name[i] & 15];
        }
        return (socklen_t)(at - (char *)ret);
}

/* True if the other end's process is this user's. Any user may connect to an abstract name. */
static bool is_ours(int fd)
{
        struct ucred peer;
        socklen_t n = sizeof(peer);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

int server_new(const uint8_t name[static MEET_NAME], struct server **ret)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_un address = {0};
        const socklen_t n = address_of(name, &address);
        struct server *s;

        if (fd < 0 || bind(fd, (struct sockaddr *)&address, n) < 0 ||
            listen(fd, MEET_RANKS_MAX) < 0)
                return -errno;
        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        for (unsigned i = 0; i < MEET_RANKS_MAX; i++) {
                s->seats[i].fd = -EBADF;
                (void)memset(s->seats[i].fds, 0xff, sizeof(s->seats[i].fds));
        }
        s->fd = TAKE_FD(fd);
        *ret = s;
        return 0;
}

int server_connect(const uint8_t name[static MEET_NAME])
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        struct sockaddr_un address = {0};
        const socklen_t n = address_of(name, &address);

        if (fd < 0 || connect(fd, (struct sockaddr *)&address, n) < 0)
                return -errno;
        return is_ours(fd) ? TAKE_FD(fd) : -EACCES;
}

unsigned server_descriptors(const struct server *s, struct pollfd *fds)
{
        unsigned n = 0;

        if (fds)
                fds[n] = (struct pollfd){.fd = s->n_pending < MEET_RANKS_MAX ? s->fd : -1,
                                         .events = POLLIN};
        n++;
        for (unsigned i = 0; i < s->n_pending; i++, n++)
                if (fds)
                        fds[n] = (struct pollfd){.fd = s->pending[i], .events = POLLIN};
        for (int i = 0; i < s->n; i++, n++)
                if (fds)
                        fds[n] = (struct pollfd){.fd = s->behind ? -1 : s->seats[i].fd,
                                                 .events = POLLIN};
        return n;
}

static void tell_gone(struct server *s, int rank, enum said_kind how, const uint8_t *data)
{
        struct said gone = {.kind = how, .rank = rank};

        if (data)
                (void)memcpy(gone.data, data, sizeof(gone.data));
        for (int i = 0; i < s->n; i++)
                if (s->seats[i].fd >= 0)
                        (void)said_send(s->seats[i].fd, &gone, NULL, 0);
}

/* Ends a rank's seat. bye: the rank's last message; NULL: its process has ended without one. */
static void leave_seat(struct server *s, int rank, const struct said *bye)
{
        struct seat *seat = &s->seats[rank];

        (void)close(seat->fd);
        seat->fd = -EBADF;
        seat->left = true;
        said_close(seat->fds);
        tell_gone(s, rank, bye ? SAID_LEAVE : SAID_LOST, bye ? bye->data : NULL);
}

/* Passes to a rank the messages of this round that it has not got yet. False: the kernel takes no
 * more now. */
static bool pass_to(struct server *s, struct seat *to)
{
        while (to->fd >= 0 && to->got < s->n) {
                const struct seat *from = &s->seats[to->got];
                unsigned n = 0;
                int r;

                while (n < MEET_FDS && from->fds[n] >= 0)
                        n++;
                r = said_send(to->fd, &from->said, from->fds, n);
                /* Descriptors that nobody has received yet count against RLIMIT_NOFILE. */
                if (r == -ETOOMANYREFS || r == -EAGAIN || r == -ENOBUFS || r == -ENOMEM)
                        return false;
                if (r < 0)
                        break; /* the next read finds the end of the connection */
                to->got++;
        }
        return true;
}

/* Sends every rank what all have told, once all have. */
static void pass_on(struct server *s)
{
        for (int i = 0; i < s->n; i++)
                if (!s->seats[i].told)
                        return;
        s->behind = false;
        for (int i = 0; i < s->n; i++)
                s->behind = !pass_to(s, &s->seats[i]) || s->behind;
        for (int i = 0; i < s->n && !s->behind; i++) {
                s->seats[i].told = false;
                s->seats[i].got = 0;
                said_close(s->seats[i].fds);
        }
}

static void read_seat(struct server *s, int rank)
{
        struct seat *seat = &s->seats[rank];
        struct said said;
        int fds[MEET_FDS], r;

        while (!s->behind && seat->fd >= 0 && (r = said_receive(seat->fd, &said, fds)) != -EAGAIN) {
                if (r <= 0 || said.kind != SAID_TELL || seat->told) {
                        said_close(fds);
                        leave_seat(s, rank, r > 0 && said.kind == SAID_LEAVE ? &said : NULL);
                        break;
                }
                seat->said = said;
                seat->said.rank = rank;
                (void)memcpy(seat->fds, fds, sizeof(fds));
                seat->told = true;
                /* A rank that has left will not end this round, so tell those that wait in it. */
                for (int i = 0; i < s->n; i++)
                        if (s->seats[i].left)
                                tell_gone(s, i, SAID_LOST, NULL);
                pass_on(s);
        }
}

/* Gives a new connection its seat. False: it has not said who it is yet. */
static bool seat_pending(struct server *s, int fd)
{
        struct said said;
        int fds[MEET_FDS], r = said_receive(fd, &said, fds);

        if (r == -EAGAIN)
                return false;
        said_close(fds);
        if (r <= 0 || said.kind != SAID_HELLO || said.n < 1 || said.n > MEET_RANKS_MAX ||
            (s->n && said.n != s->n) || said.rank < 0 || said.rank >= said.n ||
            s->seats[said.rank].here) {
                (void)close(fd);
                return true;
        }
        s->n = said.n;
        s->seats[said.rank].fd = fd;
        s->seats[said.rank].here = true;
        s->came++;
        return true;
}

bool server_step(struct server *s)
{
        bool empty = s->n > 0 && s->came == s->n;
        int fd;

        while (s->n_pending < MEET_RANKS_MAX &&
               (fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
                if (is_ours(fd))
                        s->pending[s->n_pending++] = fd;
                else
                        (void)close(fd);
        }
        for (unsigned i = 0; i < s->n_pending;)
                if (seat_pending(s, s->pending[i]))
                        s->pending[i] = s->pending[--s->n_pending];
                else
                        i++;
        if (s->behind)
                pass_on(s);
        for (int i = 0; i < s->n; i++) {
                read_seat(s, i);
                empty = empty && s->seats[i].left;
        }
        return !empty;
}

void server_close(struct server *s)
{
        (void)close(s->fd);
        for (unsigned i = 0; i < s->n_pending; i++)
                (void)close(s->pending[i]);
        for (unsigned i = 0; i < MEET_RANKS_MAX; i++) {
                if (s->seats[i].fd >= 0)
                        (void)close(s->seats[i].fd);
                said_close(s->seats[i].fds);
        }
}

void server_free(struct server *s)
{
        server_close(s);
        free(s);
}
