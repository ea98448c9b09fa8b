/* hand.c: owns the life of the hand's process, and the daemon's talk with it. Must never wait for
 * the process.
 * Why: docs/decisions.md, "The daemon's hand". */
#include "daemon/hand/hand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/hand/hand_process.h"
#include "daemon/people/child_process.h"
#include "wire/hand_page.h"

#define WAIT_NS     (NSEC_PER_SEC / 2) /* pause before the next start, doubled each time */
#define WAIT_MAX_NS (64 * NSEC_PER_SEC)

struct hand {
        sd_event *event;
        struct hand_calls calls;
        void *userdata;
        struct child_process process;
        unsigned programs; /* known to the process */
        enum hand_state state;
        char why[128]; /* it is missing; empty: it is not */
        uint64_t wait_ns, next_ns;
};

/* Logs each reason once: a retry usually gives the same one. */
static void set_missing(struct hand *h, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
static void set_missing(struct hand *h, const char *format, ...)
{
        char why[sizeof(h->why)];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(why, sizeof(why), format, args);
        va_end(args);
        if (h->state == HAND_MISSING && strcmp(h->why, why) == 0)
                return;
        h->state = HAND_MISSING;
        (void)strcpy(h->why, why);
        log_notice("no program can be taken off the GPU without its help here: %s", h->why);
}

static void note_begun(struct hand *h, int error)
{
        switch (error) {
        case 0:
                h->state = HAND_WORKS;
                h->why[0] = '\0';
                return;
        case -EPROTO:
                set_missing(h, "this release of sublet does not know the kernel driver's calls");
                break;
        case -EIO:
                set_missing(h, "the kernel driver gives the daemon's hand no GPU");
                break;
        case -ENOTSUP:
                set_missing(h, "the kernel cannot filter the system calls of the daemon's hand");
                break;
        case -EAGAIN:
                set_missing(h, "the daemon's hand cannot start its threads");
                break;
        default:
                set_missing(h, "the daemon's hand cannot open /dev/nvidiactl (%s)",
                            strerror(-error));
        }
        h->wait_ns = WAIT_MAX_NS;
        h->next_ns = clock_now_ns() + h->wait_ns;
}

static void lose(struct hand *h)
{
        child_process_drop(&h->process);
        h->programs = 0;
        h->wait_ns = MIN(MAX(2 * h->wait_ns, WAIT_NS), WAIT_MAX_NS);
        h->next_ns = clock_now_ns() + h->wait_ns;
        h->calls.lost(h->userdata);
}

/* Ends the talk with a process that does not read. The loop sees the end of it: here the scheduler
 * may be at work, and must not be told anything. */
static void give_up(struct hand *h)
{
        (void)shutdown(h->process.fd, SHUT_RDWR);
}

static void say_lost(struct hand *h)
{
        if (h->state == HAND_WORKS) {
                log_warning("the hand (the process that takes programs off the GPU) has ended: its "
                            "programs go on, and another one is started");
                (void)strcpy(h->why, "its process has ended, and another one is started");
                h->state = HAND_MISSING;
        } else if (h->state == HAND_UNTRIED) {
                set_missing(h, "the process of the daemon's hand ended at its start");
        }
}

static int on_report(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct hand *h = userdata;
        struct hand_packet m;
        const ssize_t n = recv(fd, &m, sizeof(m), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n != (ssize_t)sizeof(m) && h->programs == 0) {
                child_process_drop(&h->process);
                return 0;
        }
        if (n != (ssize_t)sizeof(m)) {
                say_lost(h);
                lose(h);
                return 0;
        }
        switch (m.what) {
        case HAND_BEGUN:
                note_begun(h, m.error);
                break;
        case HAND_READY:
                h->wait_ns = 0;
                h->calls.ready(h->userdata, m.id, true);
                break;
        case HAND_NOT_READY:
                if (m.error)
                        log_warning("the kernel driver failed to take a program off the GPU: it is "
                                    "left alone from now on");
                h->calls.ready(h->userdata, m.id, false);
                break;
        case HAND_DONE:
                h->calls.done(h->userdata, m.id, m.ns);
                break;
        case HAND_LATE:
                log_warning("the kernel driver has not answered for %llu ms, since the hand asked "
                            "it to take a program off the GPU or to let it run",
                            (unsigned long long)(m.ns / NSEC_PER_MSEC));
                break;
        }
        return 0;
}

static int send_order(struct hand *h, uint64_t id, enum hand_what what, const int *fds, unsigned n)
{
        struct hand_packet o = {.id = id, .what = what};
        union descriptors room;
        struct iovec data = {&o, sizeof(o)};
        struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};

        descriptors_attach(&m, &room, fds, n);
        return sendmsg(h->process.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A page cannot shrink under the hand. */
static int make_page(void)
{
        int fd = memfd_create("sublet-hand", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0)
                return -errno;
        if (ftruncate(fd, sizeof(struct hand_page)) == 0 &&
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
                return fd;
        (void)close(fd);
        return -EIO;
}

static int start(struct hand *h)
{
        int r;

        if (h->process.fd >= 0)
                return 0;
        if (clock_now_ns() < h->next_ns)
                return -EAGAIN;
        r = child_process_start(&h->process, h->event, SOCK_SEQPACKET, on_report, hand_process, h);
        if (r == -EBUSY && h->state == HAND_MISSING) /* else it has ended without an error */
                set_missing(h, "the process of the daemon's hand hangs in the kernel driver");
        else if (r < 0 && r != -EBUSY)
                set_missing(h, "the process of the daemon's hand cannot be started (%s)",
                            strerror(-r));
        return r;
}

int hand_add(struct hand *h, uint64_t id, int ret_fds[static 2])
{
        _cleanup_close_ int page = -EBADF, near = -EBADF, far = -EBADF;
        int ends[2], r = start(h);

        if (r < 0)
                return r;
        page = make_page();
        if (page < 0)
                return page;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        near = ends[0];
        far = ends[1];
        r = send_order(h, id, HAND_ADD, (int[]){page, near}, 2);
        if (r < 0)
                return r;
        h->programs++;
        ret_fds[0] = page;
        ret_fds[1] = far;
        page = far = -EBADF;
        return 0;
}

void hand_drop(struct hand *h, uint64_t id)
{
        if (h->process.fd < 0 || h->programs == 0)
                return;
        if (send_order(h, id, HAND_DROP, NULL, 0) < 0)
                give_up(h);
        else
                h->programs--;
}

void hand_order(struct hand *h, uint64_t id, bool off)
{
        if (h->process.fd >= 0 && send_order(h, id, off ? HAND_TAKE : HAND_LET_GO, NULL, 0) < 0)
                give_up(h);
}

enum hand_state hand_state(const struct hand *h, const char **ret_why)
{
        *ret_why = h->why;
        return h->state;
}

int hand_new(sd_event *event, const struct hand_calls *calls, void *userdata, struct hand **ret)
{
        struct hand *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        *h = (struct hand){.event = event, .calls = *calls, .userdata = userdata};
        child_process_init(&h->process);
        *ret = h;
        return 0;
}

void hand_free(struct hand *h)
{
        if (!h)
                return;
        child_process_free(&h->process);
        free(h);
}
