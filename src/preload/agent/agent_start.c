/* agent_start.c: owns the start of the agent, and what is told if the process may not make a system
 * call that sharing needs. Must never leave a thread or a descriptor after a failed start.
 * Why: docs/decisions.md, "A program that cannot be shared learns it in cuInit". */
#include "preload/agent/agent_state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "preload/agent/agent.h"
#include "preload/process/libc_compat.h"
#include "preload/process/link.h"
#include "preload/process/require.h"

/* ---- what is told ---- */

static void limit_text(int resource, char *text, size_t n)
{
        struct rlimit l;

        if (getrlimit((__rlimit_resource_t)resource, &l) < 0 || l.rlim_cur == RLIM_INFINITY)
                (void)snprintf(text, n, "unlimited");
        else
                (void)snprintf(text, n, "%llu", (unsigned long long)l.rlim_cur);
}

/* Says which limit is in the way, and what to do. */
static void remedy(const char *call, int error, char *text, size_t n)
{
        char limit[24];

        switch (error) {
        case EMFILE:
                limit_text(RLIMIT_NOFILE, limit, sizeof(limit));
                (void)snprintf(text, n, "its limit of open files is %s: raise it (ulimit -n)",
                               limit);
                break;
        case ENFILE:
                (void)snprintf(text, n,
                               "the machine's limit of open files is reached: raise fs.file-max");
                break;
        case EAGAIN:
                limit_text(RLIMIT_NPROC, limit, sizeof(limit));
                (void)snprintf(text, n,
                               "its user's limit of threads is %s: raise it (ulimit -u), or the "
                               "cgroup's pids.max",
                               limit);
                break;
        case ENOMEM:
                (void)snprintf(text, n, "no memory is left: free some, or raise ulimit -v");
                break;
        default:
                (void)snprintf(text, n, "a sandbox (seccomp) may forbid it: allow %s there", call);
        }
}

/* Logs that a system call has failed. True: the program must not run without sharing. Frameworks
 * try again and again, so the same failure is logged once. */
static bool tell(const char *call, int error)
{
        static _Atomic uintptr_t told;
        const uintptr_t now = (uintptr_t)call + (uintptr_t)error;
        const char *forbids = require_sharing();
        char text[128];

        remedy(call, error, text, sizeof(text));
        if (atomic_exchange(&told, now) == now)
                return forbids;
        if (forbids)
                log_error("CUDA does not start (error %d), because %s, and this program cannot be "
                          "shared: %s failed (%s); %s",
                          CUDA_ERROR_OPERATING_SYSTEM, forbids, call, strerror(error), text);
        else
                log_warning("this program runs without sharing: %s failed (%s); %s", call,
                            strerror(error), text);
        return forbids;
}

/* True if a setting that limits the program is malformed: the program must not run without that
 * limit. */
static bool limit_is_malformed(void)
{
        static _Atomic bool told;
        char form[SETTING_FORM_MAX];
        const enum setting s = require_malformed();

        if (s == SETTING_COUNT)
                return false;
        if (!atomic_exchange(&told, true))
                log_error("CUDA does not start (error %d), because %s is %s, not '%s': correct it, "
                          "or unset it",
                          CUDA_ERROR_OPERATING_SYSTEM, settings[s].name, setting_form(s, form),
                          setting_text(s));
        return true;
}

void agent_refuse_alone(const char *why)
{
        static _Atomic bool told;

        if (require_daemon() || daemon_line.instance)
                return;
        agent.refused = true;
        bell_ring(&core.changed);
        if (!atomic_exchange(&told, true))
                log_error("CUDA does not start (error %d), because %s, which only a daemon keeps, "
                          "and no daemon answers%s%s (%s); start one, then this program",
                          CUDA_ERROR_OPERATING_SYSTEM, require_sharing(),
                          *agent.where ? " in " : "", agent.where, why);
}

/* ---- the attempt ---- */

/* True if a sandbox or a limit keeps the process from this call. The calls below have arguments to
 * which the kernel itself answers with other errors. */
static bool is_refusal(int error)
{
        return error == EPERM || error == EACCES || error == ENOSYS || error == EMFILE ||
               error == ENFILE || error == EAGAIN || error == ENOMEM || error == ENOBUFS;
}

/* Makes the calls of a conversation with the daemon, on a socket that has no peer. Otherwise a
 * program in a sandbox would find out only from an answer that never comes. Bare system calls,
 * because the C library's are cancellation points, and the caller may hold the lock. 0 or
 * -errno. */
static int try_to_talk(int wake, const char **ret_call)
{
        struct pollfd p = {.fd = wake, .events = POLLIN};
        const struct sockaddr nobody = {.sa_family = AF_UNIX};
        const struct timespec now = {0};
        struct msghdr empty = {0};
        int fd, r = 0;

        *ret_call = "ppoll";
        if (syscall(SYS_ppoll, &p, 1, &now, NULL, 0) < 0 && is_refusal(errno))
                return -errno;
        *ret_call = "socket";
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        *ret_call = "connect";
        if (syscall(SYS_connect, fd, &nobody, 0) < 0 && is_refusal(errno))
                r = -errno;
        if (r == 0) {
                *ret_call = "sendmsg";
                if (syscall(SYS_sendmsg, fd, &empty, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
                    is_refusal(errno))
                        r = -errno;
        }
        if (r == 0) {
                *ret_call = "recvmsg";
                if (syscall(SYS_recvmsg, fd, &empty, MSG_DONTWAIT) < 0 && is_refusal(errno))
                        r = -errno;
        }
        (void)syscall(SYS_close, fd);
        return r;
}

static void *nothing(void *unused)
{
        return NULL;
}

/* The thread that is started here ends at once. If it stayed, a program that only counts GPUs would
 * have it, too: unshare() would fail there, and Python would warn at each fork(). */
bool agent_may_start(void)
{
        _cleanup_close_ int wake = -EBADF;
        const char *call;
        int r;

        if (atomic_load(&agent.started))
                return true;
        if (limit_is_malformed())
                return false;
        if (!require_sharing())
                return true;
        call = "eventfd";
        wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = wake < 0 ? -errno : try_to_talk(wake, &call);
        if (r == 0) {
                call = "clone";
                r = -compat_thread_try(nothing);
        }
        return r == 0 || !tell(call, -r);
}

bool agent_begin(void *(*thread)(void *))
{
        const char *call = "eventfd";
        int r;

        if (agent.started)
                return true;
        r = request_open();
        if (r == 0)
                r = try_to_talk(request_fd(), &call);
        if (r == 0) {
                call = "clone";
                r = -compat_thread_start(thread, NULL);
        }
        if (r == 0) {
                agent.started = true;
                return true;
        }
        request_close();
        if (!tell(call, -r))
                atomic_store(&core.bystander, true);
        return false;
}

bool agent_refused(int error)
{
        const char *call = link_refused();

        if (!call || daemon_line.instance || !require_sharing())
                return false;
        agent.refused = tell(call, -error);
        bell_ring(&core.changed);
        return agent.refused;
}
