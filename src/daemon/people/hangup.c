/* hangup.c: owns the end of connections, and descriptors that came over them uninvited. Must never
 * be the last process to close a descriptor from another user.
 * Why: docs/decisions.md, "Descriptors from untrusted users are closed by a process that ends". */
#include "daemon/people/hangup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"

#define UNREAD_MAX    4096 /* packets: more than fit a socket's buffer */
#define PACKET_BYTES  4096
#define PROCESSES_MAX 64
#define LINGER_S      1 /* limit on closing descriptors, in seconds */

static unsigned processes;

static int by_number(const void *a, const void *b)
{
        return *(const int *)a - *(const int *)b;
}

static void close_between(int first, int last)
{
        if (first <= last)
                (void)syscall(SYS_close_range, (unsigned)first, (unsigned)last, 0u);
}

/* Runs in the closing process: keeps these descriptors open until the parent has closed its copies,
 * then ends. All other descriptors are closed first, so that a slow end holds neither the daemon's
 * lock nor its connections. Some may belong to another closing process, so an alarm ends a slow
 * close. */
static _Noreturn void hold_and_end(int *fds, size_t n, const int go[static 2])
{
        int next = 0;
        char byte;

        (void)alarm(LINGER_S);
        (void)close(go[1]); /* needed if the kernel cannot close ranges (before Linux 5.9) */
        fds[n++] = go[0];
        qsort(fds, n, sizeof(*fds), by_number);
        for (size_t i = 0; i < n; i++) {
                close_between(next, fds[i] - 1);
                next = fds[i] + 1;
        }
        (void)syscall(SYS_close_range, (unsigned)next, ~0u, 0u);
        (void)!read(go[0], &byte, 1);
        _exit(0);
}

/* Lets a process close these descriptors. The array fds has room for one more. If no process can be
 * made, they are closed here. */
static void close_elsewhere(int *fds, size_t n)
{
        int go[2] = {-EBADF, -EBADF};
        pid_t pid = pipe2(go, O_CLOEXEC) < 0 ? -1 : fork();

        if (pid == 0)
                hold_and_end(fds, n, go);
        processes += pid > 0;
        for (size_t i = 0; i < n; i++)
                (void)close(fds[i]);
        cleanup_close(&go[0]);
        cleanup_close(&go[1]);
}

bool hangup_is_busy(void)
{
        return processes >= PROCESSES_MAX;
}

void hangup_reaped(void)
{
        processes -= processes > 0;
}

void hangup_expect(struct msghdr *h, union hangup_room *room)
{
        h->msg_control = room;
        h->msg_controllen = sizeof(*room);
}

bool hangup_take(struct msghdr *h)
{
        int fds[HANGUP_BRINGS_MAX + 1];
        unsigned n = descriptors_take(h, HANGUP_BRINGS_MAX, fds);

        if (n > 0)
                close_elsewhere(fds, n);
        return n > 0;
}

static bool is_stream(int fd)
{
        int type = 0;
        socklen_t size = sizeof(type);

        return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* Reads until the end of the connection, or until a message brings descriptors, *ret_n in number.
 * False: there may be more. With SO_PASSCRED every packet brings credentials, so an empty packet
 * differs from the end. */
static bool read_rest(int fd, int *ret_fds, size_t *ret_n)
{
        bool stream = is_stream(fd);

        *ret_n = 0;
        (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int));
        for (unsigned n = 0; n < UNREAD_MAX && *ret_n == 0; n++) {
                char packet[PACKET_BYTES];
                union hangup_room room;
                struct iovec data = {packet, sizeof(packet)};
                struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
                ssize_t size;

                hangup_expect(&h, &room);
                size = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                if (size < 0 || (size == 0 && (stream || h.msg_controllen == 0)))
                        return true;
                *ret_n = descriptors_take(&h, HANGUP_BRINGS_MAX, ret_fds);
        }
        return false;
}

bool hangup_close(int fd)
{
        int fds[HANGUP_BRINGS_MAX + 2];
        size_t n;

        (void)shutdown(fd, SHUT_RD); /* nothing more can come in */
        if (read_rest(fd, fds, &n)) {
                (void)close(fd);
                return false;
        }
        fds[n++] = fd;
        close_elsewhere(fds, n);
        return true;
}
