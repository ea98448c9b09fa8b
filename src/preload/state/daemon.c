/* daemon.c: owns the sending end of the connection to the daemon. Must never wait for an answer. If
 * the connection is lost, it only sets the state. */
#include "preload/state/daemon.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/process/link.h"
#include "preload/state/core.h"
#include "preload/state/request.h"

struct daemon_line daemon_line = {.fd = -1};

bool daemon_is_up(void)
{
        return daemon_line.link == LINK_UP;
}

bool daemon_may_answer(void)
{
        return daemon_is_up() ||
               (daemon_line.link != LINK_REFUSED && daemon_line.instance && !daemon_line.warned);
}

static void lost(int error)
{
        daemon_line.link = LINK_LOST;
        daemon_line.error = error;
        request_kick();
        bell_ring(&core.changed);
}

int daemon_send_with(struct wire_message *m, unsigned type, unsigned gpu, const int *fds,
                     unsigned n_fds)
{
        int r;

        if (!daemon_is_up() && type != WIRE_HELLO)
                return 0;
        m->header = (struct wire_header){
                .type = (uint16_t)type, .gpu = (uint16_t)gpu, .sequence = ++daemon_line.sequence};
        r = link_send(daemon_line.fd, m, fds, n_fds);
        if (r == -EAGAIN) {
                /* The daemon has left hundreds of messages unread: give it a moment, then treat it
                 * as lost. A bare system call, because poll() is a cancellation point. */
                struct pollfd p = {.fd = daemon_line.fd, .events = POLLOUT};
                const struct timespec most = {.tv_nsec = 100 * 1000 * 1000};

                (void)syscall(SYS_ppoll, &p, 1, &most, NULL, 0);
                r = link_send(daemon_line.fd, m, fds, n_fds);
        }
        if (r == -EPERM && n_fds > 0)
                return r;
        if (r < 0)
                lost(r);
        return 0;
}

void daemon_send(struct wire_message *m, unsigned type, unsigned gpu)
{
        (void)daemon_send_with(m, type, gpu, NULL, 0);
}

uint32_t daemon_say(struct wire_message *m, unsigned type)
{
        if (!daemon_is_up())
                return 0;
        daemon_send(m, type, WIRE_NO_GPU);
        return daemon_is_up() ? daemon_line.sequence : 0;
}
