/* link.c: owns the search for the daemon, and its start. Must never leave the program a child that
 * it could wait for, nor send it a SIGCHLD.
 * Why: docs/decisions.md, "The library starts the private daemon". */
#include "preload/process/link.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/daemon_paths.h"
#include "base/places.h"
#include "base/settings.h"

extern char **environ;

static const char *_Atomic refused; /* the result of link_refused() */

const char *link_refused(void)
{
        return refused;
}

static int connect_to(const char *dir)
{
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = paths_join(dir, PATHS_CLIENT_SOCKET, sa.sun_path, sizeof(sa.sun_path));
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        refused = fd < 0 ? "socket" : NULL;
        if (fd < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
                return -errno;
        return TAKE_FD(fd);
}

#define STARTER_STACK (64 * 1024)
#define START_NAPS    600
#define START_NAP_NS  (5 * NSEC_PER_MSEC)

struct starter {
        const char *path;
        char *const *argv;
        char *const *envp;
        char *stack; /* top of the grandchild's stack */
        bool silent; /* the daemon has logged already why it cannot start, or there is no stderr */
};

/* For the two starter functions, which run in our memory while their parent is suspended: they only
 * make system calls. The address sanitizer would report errors on their stack. */
#define ON_OWN_STACK __attribute__((no_sanitize("address")))

static ON_OWN_STACK int starter_grandchild(void *userdata)
{
        const struct starter *s = userdata;
        long fd;

        if (s->silent) {
                fd = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY | O_CLOEXEC);
                if (fd >= 0)
                        (void)syscall(SYS_dup3, fd, STDERR_FILENO, 0);
        }
        (void)execve(s->path, s->argv, s->envp);
        _exit(127);
}

static ON_OWN_STACK int starter_child(void *userdata)
{
        struct starter *s = userdata;

        _exit(clone(starter_grandchild, s->stack, CLONE_VM | CLONE_VFORK, s) < 0 ? 1 : 0);
}

char **link_environment(void)
{
        char *volatile const *all = environ; /* setenv() in another thread may replace the array */
        size_t n = 0, kept = 0;
        char **copy;

        while (all && all[n])
                n++;
        copy = calloc(n + 1, sizeof(*copy));
        for (size_t i = 0; copy && i < n; i++) {
                char *one = all[i];

                if (!one)
                        break; /* unsetenv() in another thread has shortened the array */
                if (strncmp(one, "LD_PRELOAD=", 11) != 0)
                        copy[kept++] = one;
        }
        return copy;
}

/* Starts subletd so that the program never sees a child. A child with exit signal 0 raises no
 * SIGCHLD, and only __WCLONE finds it, but execve() would make it an ordinary child. So a
 * grandchild calls execve(), and the child ends at once. */
static int start_private(const char *dir, bool silent)
{
        const char *path = setting_text(SETTING_DAEMON);
        char *argv[] = {(char *)"subletd", (char *)"--private", (char *)"--dir", (char *)dir, NULL};
        _cleanup_free_ char **envp = NULL;
        _cleanup_free_ char *stacks = NULL;
        struct starter s;
        int status = 0;
        pid_t pid;

        if (!path || access(path, X_OK) < 0)
                return -ENOENT;
        envp = link_environment();
        stacks = malloc((size_t)2 * STARTER_STACK);
        if (!envp || !stacks)
                return -ENOMEM;
        s = (struct starter){path, argv, envp, stacks + STARTER_STACK, silent || !log_has_stderr()};
        pid = clone(starter_child, stacks + (size_t)2 * STARTER_STACK, CLONE_VM | CLONE_VFORK, &s);
        refused = pid < 0 ? "clone" : NULL;
        if (pid < 0)
                return -errno;
        while (waitpid(pid, &status, __WCLONE) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* Connects to a daemon that was just started: it listens within milliseconds. */
static int connect_soon(const char *dir)
{
        const struct timespec nap = {.tv_nsec = START_NAP_NS};
        int r = -ENOENT;

        /* Naps are counted, not time: if the whole machine was suspended, so was the daemon. */
        for (unsigned n = 0; n < START_NAPS && (r == -ENOENT || r == -ECONNREFUSED); n++) {
                (void)nanosleep(&nap, NULL);
                r = connect_to(dir);
        }
        return r;
}

/* Says once where the daemon is, if the environment names another directory. */
static void tell_place(const char *dir)
{
        static _Atomic bool told;
        const struct paths_input in = paths_input_here();
        char named[PATHS_DIR_MAX];

        if (paths_private_dir(&in, "", named, sizeof(named)) < 0 || strcmp(named, dir) == 0 || told)
                return;
        told = true;
        log_notice("your daemon is in %s; this environment names %s, where none answers", dir,
                   named);
}

int link_connect(char where[static 128], int *ret_fd)
{
        static _Atomic bool failed; /* the daemon that was started last did not listen */
        enum paths_kind kind;
        int r;

        refused = NULL;
        r = paths_daemon_dir(NULL, where, 128, &kind);
        if (r < 0)
                return r;
        if (kind == PATHS_PRIVATE) {
                r = paths_make_private(where, getuid());
                if (r < 0)
                        return r;
        }
        r = connect_to(where);
        if ((r == -ENOENT || r == -ECONNREFUSED) && kind != PATHS_SYSTEM) {
                int may = paths_check_private(where, getuid());

                if (may == 0 || may == -ENOENT) {
                        int started = start_private(where, failed);

                        log_debug("starting a private daemon in %s: %s", where,
                                  started < 0 ? strerror(-started) : "ok");
                        if (started == 0) {
                                r = connect_soon(where);
                                failed = r < 0;
                        } else if (refused) {
                                r = started;
                        }
                }
        }
        if (r < 0)
                return r;
        if (kind == PATHS_PRIVATE)
                tell_place(where);
        *ret_fd = r;
        return 0;
}

int link_send(int fd, const struct wire_message *m, const int *fds, unsigned n_fds)
{
        uint8_t packet[WIRE_SIZE_MAX];
        union descriptors room;
        struct iovec data = {.iov_base = packet};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        int n;

        n = wire_encode(m, packet);
        if (n < 0)
                return n;
        data.iov_len = (size_t)n;
        descriptors_attach(&h, &room, fds, n_fds);
        /* No sendmsg(): it is a cancellation point, and a cancelled thread would end there with our
         * lock held. */
        if (syscall(SYS_sendmsg, fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        return 0;
}

int link_receive(int fd, enum wire_direction direction, struct wire_message *ret,
                 struct passed *ret_came)
{
        uint8_t packet[WIRE_SIZE_MAX + 1];
        union descriptors room;
        struct iovec data = {.iov_base = packet, .iov_len = sizeof(packet)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        ssize_t n;
        int r;

        ret_came->count = 0;
        descriptors_expect(&h, &room);
        n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        ret_came->count = descriptors_take(&h, DESCRIPTORS_MAX, ret_came->fds);
        if (n == 0)
                return -EPIPE;
        r = wire_decode(packet, (size_t)n, direction, ret);
        if (r < 0)
                passed_close(ret_came);
        return r < 0 ? r : 1;
}
