/* ipc_link.c: owns the connections to other processes of this user: how they are made, the messages
 * that arrive on them, and their end. Must never wait for the other side, except in a thread of the
 * program that opens memory of another process.
 * Why: docs/decisions.md, "Other processes get descriptors over a brokered connection". */
#include "preload/share/ipc_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "preload/process/link.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"
#include "preload/process/lock.h"

#define MESSAGES_PER_STEP 64
#define RETURN_NS         (3 * NSEC_PER_SEC) /* clients connect to a new daemon within this time */
#define RETRY_NS          (50 * NSEC_PER_MSEC)

uint8_t ipc_name[IPC_NAME];
static bool named; /* this process has a name */
static bool known; /* the daemon has confirmed the name */

static struct ipc_link *links;
static int poll_fd = -EBADF;

/* The question to the daemon; only one may be unanswered. */
static struct {
        bool asked, answered;
        uint32_t of;
        int fd;
} question;
static bool connected_before;
static uint64_t returned_ns; /* when we last connected to another daemon; 0: never */

bool ipc_works(void)
{
        return daemon_may_answer();
}

bool ipc_random(uint8_t bytes[static IPC_NAME])
{
        return syscall(SYS_getrandom, bytes, IPC_NAME, 0) == IPC_NAME;
}

/* ---- our name ---- */

static void say_name(void)
{
        struct wire_message m = {0};

        memcpy(m.NAME.name, ipc_name, IPC_NAME);
        (void)daemon_say(&m, WIRE_NAME);
}

int ipc_be_named(void)
{
        struct core_wait w = {.what = "the daemon"};

        if (!named) {
                if (!ipc_random(ipc_name))
                        return -EIO;
                named = true;
                say_name();
        }
        /* A process with the handle may ask for us at once, so the daemon has to know our name. If
         * no daemon is connected, the next one is told the name. */
        while (!known && daemon_is_up() && !core_passive())
                core_wait(&w, UINT64_MAX);
        return 0;
}

void ipc_on_named(const struct wire_message *m)
{
        known = memcmp(m->NAMED.name, ipc_name, IPC_NAME) == 0;
        bell_ring(&core.changed);
}

void ipc_connected(void)
{
        if (connected_before)
                returned_ns = clock_now_ns();
        connected_before = true;
        if (named)
                say_name();
        bell_ring(&core.changed);
}

void ipc_disconnected(void)
{
        known = false;
        bell_ring(&core.changed);
}

/* ---- connections ---- */

static struct ipc_link *link_add(int fd, const uint8_t *name)
{
        struct ipc_link *l = calloc(1, sizeof(*l));
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};

        if (poll_fd < 0)
                poll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (!l || poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e) < 0) {
                free(l);
                (void)syscall(SYS_close, fd);
                return NULL;
        }
        l->fd = fd;
        l->exporter = !name;
        if (name)
                memcpy(l->name, name, IPC_NAME);
        l->next = links;
        links = l;
        request_kick(); /* the agent has one more descriptor to poll */
        return l;
}

void ipc_part(struct ipc_link *l)
{
        struct ipc_link **at = &links;

        while (*at && *at != l)
                at = &(*at)->next;
        if (!*at)
                return;
        *at = l->next;
        /* A child of the program may have a copy of the descriptor, so closing it does not remove
         * it from the epoll set. */
        (void)epoll_ctl(poll_fd, EPOLL_CTL_DEL, l->fd, NULL);
        (void)syscall(SYS_close, l->fd);
        free(l);
}

void ipc_send(struct ipc_link *l, struct wire_message *m, unsigned type, const int *fds,
              unsigned n_fds)
{
        m->header = (struct wire_header){.type = (uint16_t)type, .gpu = WIRE_NO_GPU};
        /* Each side has only a few messages in flight: a peer that has not read hundreds is stuck.
         */
        if (!l->lost && link_send(l->fd, m, fds, n_fds) < 0) {
                l->lost = true;
                request_kick(); /* the agent removes the connection */
        }
}

void ipc_on_peered(const struct wire_message *m, struct passed *came)
{
        static const uint8_t nobody[IPC_NAME];
        int fd = passed_take(came);

        if (m->PEERED.of == 0 && memcmp(m->PEERED.name, nobody, IPC_NAME) == 0) {
                if (fd >= 0)
                        (void)link_add(fd, NULL);
                return;
        }
        if (!question.asked || question.answered || m->PEERED.of != question.of) {
                if (fd >= 0)
                        (void)syscall(SYS_close, fd);
                return;
        }
        question.fd = fd;
        question.answered = true;
        bell_ring(&core.changed);
}

void ipc_on_refused(const struct wire_message *m)
{
        if (!question.asked || question.answered || m->REFUSED.of != question.of)
                return;
        question.fd = -ESRCH;
        question.answered = true;
        bell_ring(&core.changed);
}

static struct ipc_link *find(const uint8_t *name)
{
        for (struct ipc_link *l = links; l; l = l->next)
                if (!l->exporter && !l->lost && memcmp(l->name, name, IPC_NAME) == 0)
                        return l;
        return NULL;
}

/* Asks the daemon once for a connection to a process. Returns its descriptor; -ESRCH: no process
 * has this name; -EAGAIN: there was no answer. */
static int ask(const uint8_t *name) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "the daemon"};
        struct wire_message m = {0};
        int fd;

        while (question.asked)
                core_wait(&w, UINT64_MAX); /* another thread is asking */
        memcpy(m.PEER.name, name, IPC_NAME);
        question.of = daemon_say(&m, WIRE_PEER);
        question.asked = true;
        question.answered = false;
        question.fd = -EAGAIN;
        while (!question.answered && daemon_is_up() && !core_passive())
                core_wait(&w, UINT64_MAX);
        fd = question.fd;
        question.asked = false;
        bell_ring(&core.changed);
        return fd;
}

static void nap(struct core_wait *w) UNLOCKS(core_lock)
{
        uint64_t until = clock_now_ns() + RETRY_NS, now;

        while ((now = clock_now_ns()) < until && !core_passive())
                core_wait(w, until - now);
}

struct ipc_link *ipc_meet(const uint8_t name[static IPC_NAME])
{
        struct core_wait w = {.what = "the daemon"};

        for (;;) {
                struct ipc_link *l = find(name);
                int fd;

                if (l || core_passive())
                        return l;
                if (!daemon_is_up()) {
                        if (!ipc_works())
                                return NULL;
                        nap(&w);
                        continue;
                }
                fd = ask(name);
                l = find(name); /* another thread may have connected while we asked */
                if (l || fd >= 0) {
                        if (l && fd >= 0)
                                (void)syscall(SYS_close, fd);
                        return l ? l : link_add(fd, name);
                }
                /* After a restart of the daemon the exporter may not be connected yet. */
                if (fd == -ESRCH && (!returned_ns || clock_now_ns() - returned_ns > RETURN_NS))
                        return NULL;
                nap(&w);
        }
}

/* ---- for the agent ---- */

int ipc_poll_fd(void)
{
        return poll_fd;
}

static void hear(struct ipc_link *l) REQUIRES(core_lock)
{
        for (unsigned n = 0; n < MESSAGES_PER_STEP && !l->lost; n++) {
                struct wire_message m;
                struct passed came;
                int r = link_receive(l->fd, WIRE_ACROSS, &m, &came);

                if (r == 0)
                        return;
                if (r < 0) {
                        l->lost = true;
                } else if (l->exporter) {
                        ipc_export_handle(l, &m);
                } else {
                        ipc_import_handle(l, &m, &came);
                }
                passed_close(&came);
        }
}

/* End what depends on each lost connection, and free the connection unless opened memory needs
 * it. */
static void bury_lost(void) REQUIRES(core_lock)
{
        struct ipc_link *l = links;

        while (l) {
                struct ipc_link *next = l->next;

                if (l->lost) {
                        (void)epoll_ctl(poll_fd, EPOLL_CTL_DEL, l->fd, NULL);
                        if (l->exporter)
                                ipc_export_lost(l);
                        else
                                ipc_import_lost(l);
                        if (l->exporter || l->imports == 0)
                                ipc_part(l);
                }
                l = next;
        }
}

bool ipc_step(void)
{
        struct epoll_event events[16];
        int n = poll_fd < 0 ? 0 : epoll_wait(poll_fd, events, 16, 0);

        for (int i = 0; i < n; i++)
                hear(events[i].data.ptr);
        bury_lost();
        return ipc_export_step() || n == 16;
}

void ipc_forget(void)
{
        for (struct ipc_link *l = links; l; l = l->next)
                (void)syscall(SYS_close, l->fd);
        if (poll_fd >= 0)
                (void)syscall(SYS_close, poll_fd);
        links = NULL;
        poll_fd = -EBADF;
}
