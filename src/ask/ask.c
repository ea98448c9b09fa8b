/* ask.c: owns the connection to a daemon's control.sock. Must never wait for ever. */
#include "ask/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/orders.h"

#define ANSWER_MAX (16u << 20)
#define LATER_NS   (250 * (long)NSEC_PER_MSEC) /* time between two attempts */

static int connect_to(const char *dir, enum paths_kind kind, const char *name, bool wait,
                      int *ret_fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct timeval patience = {.tv_sec = ASK_TIMEOUT_S};
        _cleanup_close_ int fd = -EBADF;
        int r;

        /* Anybody can create /tmp/sublet-UID, so a daemon is asked there only if the directory is
         * ours. */
        if (kind == PATHS_PRIVATE) {
                r = paths_check_private(dir, getuid());
                if (r < 0)
                        return r == -ENOENT ? r : -EPERM;
        }
        r = paths_join(dir, name, address.sun_path, sizeof(address.sun_path));
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (wait ? 0 : SOCK_NONBLOCK), 0);
        if (fd < 0)
                return -errno;
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return errno == EAGAIN ? -ETIMEDOUT : -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int send_line(int fd, json_t *order)
{
        _cleanup_free_ char *text = json_dumps(order, JSON_COMPACT), *line = NULL;
        size_t sent = 0, length;

        if (!text || asprintf(&line, "%s\n", text) < 0)
                return -ENOMEM;
        length = strlen(line);
        while (sent < length) {
                ssize_t n = send(fd, line + sent, length - sent, MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? -ETIMEDOUT : -errno;
                sent += (size_t)n;
        }
        return 0;
}

/* Reads the `size` bytes that follow the line of an answer. n of them were read already. */
static int read_bytes(int fd, const char *rest, size_t n, size_t size, void **ret)
{
        _cleanup_free_ char *bytes = size > ANSWER_MAX ? NULL : malloc(size + 1);

        if (!bytes)
                return -ENOMEM;
        n = MIN(n, size);
        memcpy(bytes, rest, n);
        while (n < size) {
                ssize_t more = recv(fd, bytes + n, size - n, 0);

                if (more < 0 && errno == EINTR)
                        continue;
                if (more < 0)
                        return errno == EAGAIN ? -ETIMEDOUT : -errno;
                if (more == 0) /* the daemon needs the place for another reader, or has ended */
                        return -ECONNABORTED;
                n += (size_t)more;
        }
        *ret = TAKE_PTR(bytes);
        return 0;
}

bool ask_is_public(json_t *order)
{
        return order_is_public(json_string_value(json_object_get(order, "order")));
}

int ask_begin(const char *dir, enum paths_kind kind, json_t *order, bool wait, struct ask_talk *ret)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = connect_to(dir, kind, PATHS_CONTROL_SOCKET, wait, &fd);
        /* -ENOENT: containers have no control socket. */
        if (r == -EACCES || r == -ENOENT) {
                const int status = connect_to(dir, kind, PATHS_STATUS_SOCKET, wait, &fd);

                if (status == 0)
                        r = ask_is_public(order) ? 0 : -EACCES;
                else if (status == -ECONNREFUSED)
                        r = status; /* a killed daemon has left both sockets */
        }
        if (r == 0)
                r = send_line(fd, order);
        if (r < 0)
                return r;
        *ret = (struct ask_talk){.fd = TAKE_FD(fd), .most = ANSWER_MAX};
        return 0;
}

void ask_end(struct ask_talk *t)
{
        (void)close(t->fd);
        free(t->text);
        *t = (struct ask_talk){.fd = -EBADF};
}

/* Reads the line that ends at t->line. */
static int read_answer(struct ask_talk *t, json_t **ret)
{
        json_t *answer = json_loadb(t->text, t->line, 0, NULL);

        if (!json_is_object(answer)) {
                json_decref(answer);
                return -EBADMSG;
        }
        *ret = answer;
        return 1;
}

/* Waits until there is something to read, at most until end_ns. The caller sets end_ns once for all
 * parts of an answer, so that the waits for them do not add up. */
static int await_more(int fd, uint64_t end_ns)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int r;

        do {
                const uint64_t left_ns = sub_sat(end_ns, clock_now_ns());

                r = poll(&p, 1, (int)(left_ns / NSEC_PER_MSEC));
        } while (r < 0 && errno == EINTR);
        return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

/* The line ends with a newline or with the connection. */
int ask_more(struct ask_talk *t, bool wait, json_t **ret_answer)
{
        const uint64_t end_ns = clock_now_ns() + ASK_TIMEOUT_S * NSEC_PER_SEC;

        for (;;) {
                int r;
                char *end;
                ssize_t n;

                if (t->used + 4096 > t->room) {
                        const size_t room = t->room ? t->room * 2 : 16384;
                        char *bigger = room > t->most ? NULL : realloc(t->text, room);

                        if (!bigger)
                                return -ENOMEM;
                        t->text = bigger;
                        t->room = room;
                }
                r = wait ? await_more(t->fd, end_ns) : 0;
                if (r < 0)
                        return r;
                n = recv(t->fd, t->text + t->used, t->room - t->used, MSG_DONTWAIT);
                if (n < 0 && (errno == EINTR || (errno == EAGAIN && wait)))
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return 0;
                if (n < 0)
                        return -errno;
                if (n == 0 && t->used == 0)
                        return -ECONNRESET;
                end = memchr(t->text + t->used, '\n', (size_t)n);
                t->used += (size_t)n;
                if (end || n == 0) {
                        t->line = end ? (size_t)(end + 1 - t->text) : t->used;
                        return read_answer(t, ret_answer);
                }
        }
}

/* ret_bytes NULL: no bytes follow the answer. */
static int ask_once(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer,
                    void **ret_bytes)
{
        struct ask_talk talk;
        json_t *answer = NULL;
        int r = ask_begin(dir, kind, order, true, &talk);

        if (r < 0)
                return r;
        r = ask_more(&talk, true, &answer);
        if (r > 0 && ret_bytes)
                r = read_bytes(talk.fd, talk.text + talk.line, talk.used - talk.line,
                               (size_t)json_integer_value(json_object_get(answer, "bytes")),
                               ret_bytes);
        ask_end(&talk);
        if (r < 0) {
                json_decref(answer);
                return r;
        }
        *ret_answer = answer;
        return 0;
}

int ask_daemon_bytes(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer,
                     void **ret_bytes)
{
        static const struct timespec nap = {.tv_nsec = LATER_NS};
        const uint64_t end_ns = clock_now_ns() + ASK_TIMEOUT_S * NSEC_PER_SEC;
        int r;

        while ((r = ask_once(dir, kind, order, ret_answer, ret_bytes)) == 0 &&
               json_is_true(json_object_get(*ret_answer, "later")) && clock_now_ns() < end_ns) {
                json_decref(*ret_answer);
                if (ret_bytes) {
                        free(*ret_bytes);
                        *ret_bytes = NULL;
                }
                (void)nanosleep(&nap, NULL);
        }
        json_decref(order);
        return r;
}

int ask_daemon(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer)
{
        return ask_daemon_bytes(dir, kind, order, ret_answer, NULL);
}
