/* link.c: owns how the daemon is found and started. Must never leave the program a child it could
 * wait for, or a signal. */
#include "preload/link.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
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
#include "base/log.h"
#include "base/paths.h"

extern char **environ;

static int connect_to(const char *dir)
{
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = paths_join(dir, PATHS_CLIENT_SOCKET, sa.sun_path, sizeof(sa.sun_path));
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
                return -errno;
        return TAKE_FD(fd);
}

struct starter {
        const char *path;
        char *const *argv;
        char *const *envp;
};

/* Runs in the child, which shares our memory until it has execed: nothing but system calls. */
static int starter_main(void *userdata)
{
        const struct starter *s = userdata;

        (void)execve(s->path, s->argv, s->envp);
        _exit(127);
}

/* The daemon must not be preloaded with us: it is no CUDA program, and should outlive what we are
 * in. */
static char **environment_without_us(void)
{
        size_t n = 0, kept = 0;
        char **copy;

        while (environ[n])
                n++;
        copy = calloc(n + 1, sizeof(*copy));
        for (size_t i = 0; copy && i < n; i++)
                if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0)
                        copy[kept++] = environ[i];
        return copy;
}

/* subletd detaches itself; what we start ends as soon as its sockets listen. Exit signal 0 and
 * __WCLONE keep the child invisible to the program: no SIGCHLD, and its own wait() never sees it.
 */
static int start_private(const char *dir)
{
        const char *path = getenv("SUBLET_DAEMON");
        char *argv[] = {(char *)"subletd", (char *)"--private", (char *)"--dir", (char *)dir, NULL};
        _cleanup_free_ char **envp = NULL;
        _cleanup_free_ char *stack = NULL;
        const size_t stack_bytes = 64 * 1024;
        struct starter s;
        int status = 0;
        pid_t pid;

        if (!path || access(path, X_OK) < 0)
                return -ENOENT;
        envp = environment_without_us();
        stack = malloc(stack_bytes);
        if (!envp || !stack)
                return -ENOMEM;
        s = (struct starter){.path = path, .argv = argv, .envp = envp};
        pid = clone(starter_main, stack + stack_bytes, CLONE_VM | CLONE_VFORK, &s);
        if (pid < 0)
                return -errno;
        while (waitpid(pid, &status, __WCLONE) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

int link_connect(char where[static 128], int *ret_fd)
{
        enum paths_kind kind;
        int r;

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
                        int started = start_private(where);

                        log_debug("starting a private daemon in %s: %s", where,
                                  started < 0 ? strerror(-started) : "ok");
                        if (started == 0)
                                r = connect_to(where);
                }
        }
        if (r < 0)
                return r;
        *ret_fd = r;
        return 0;
}

int link_send(int fd, const struct wire_message *m)
{
        uint8_t packet[WIRE_SIZE_MAX];
        int n;

        n = wire_encode(m, packet);
        if (n < 0)
                return n;
        if (send(fd, packet, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        return 0;
}

int link_receive(int fd, struct wire_message *ret)
{
        uint8_t packet[WIRE_SIZE_MAX + 1];
        ssize_t n;
        int r;

        n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        if (n == 0)
                return -EPIPE;
        r = wire_decode(packet, (size_t)n, WIRE_DOWN, ret);
        return r < 0 ? r : 1;
}
