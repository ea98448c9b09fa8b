/* child_process.c: owns the start and the end of the daemon's helper processes. Must never wait for
 * one. */
#include "daemon/people/child_process.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"

static struct child_process *all;

void child_process_init(struct child_process *c)
{
        *c = (struct child_process){.fd = -EBADF, .next = all};
        all = c;
}

void child_process_free(struct child_process *c)
{
        struct child_process **p = &all;

        child_process_drop(c);
        while (*p != c)
                p = &(*p)->next;
        *p = c->next;
}

int child_process_start(struct child_process *c, sd_event *event, int socket_type,
                        sd_event_io_handler_t on_io,
                        void (*run)(int fd, pid_t parent, void *userdata), void *userdata)
{
        const pid_t parent = getpid();
        int fds[2], r;

        if (c->pid > 0)
                return -EBUSY;
        if (socketpair(AF_UNIX, socket_type | SOCK_CLOEXEC, 0, fds) < 0)
                return -errno;
        c->pid = fork();
        if (c->pid == 0)
                run(fds[1], parent, userdata);
        r = c->pid < 0 ? -errno : sd_event_add_io(event, &c->io, fds[0], EPOLLIN, on_io, userdata);
        (void)close(fds[1]);
        c->pid = MAX(c->pid, 0);
        c->fd = fds[0];
        if (r < 0)
                child_process_drop(c);
        return MIN(r, 0);
}

void child_process_begin(int fd, pid_t parent)
{
        /* Signals stay blocked as in the daemon: the process ends with the daemon. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(fd, CHILD_FD) < 0)
                _exit(EXIT_FAILURE);
        /* The daemon's lock, sockets and connections must end with the daemon. */
        closefrom(CHILD_FD + 1);
}

void child_process_drop_capabilities(void)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

        (void)syscall(SYS_capset, &header, none);
        (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

void child_process_drop(struct child_process *c)
{
        c->io = sd_event_source_disable_unref(c->io);
        cleanup_close(&c->fd);
        c->fd = -EBADF;
        if (c->pid > 0)
                (void)kill(c->pid, SIGKILL);
}

bool child_process_reaped(pid_t pid)
{
        struct child_process *c = all;

        while (c && c->pid != pid)
                c = c->next;
        if (c)
                c->pid = 0;
        return c;
}
