/* peer.c: owns the identification of peers.
 * Must never take a peer's word for who it is. */
#include "daemon/people/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/people/process.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD \
        77 /* Linux 6.5: a pidfd of the process that connected, even if its number was reused */
#endif

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static ino_t pid_namespace(pid_t pid)
{
        struct stat st;
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
        return pid > 0 && stat(path, &st) == 0 ? st.st_ino : 0;
}

static bool is_shortage(int error)
{
        return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* Finds the container of a process. 0, or -errno: no descriptor is free to find out. */
static int find_container(pid_t pid, ino_t *ret)
{
        const ino_t ours = pid_namespace(getpid());
        struct stat st;
        ino_t below = 0;
        char path[64];
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
        fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        while (fd >= 0 && fstat(fd, &st) == 0 && st.st_ino != ours) {
                const int above = ioctl(fd, NS_GET_PARENT);

                below = st.st_ino;
                (void)close(fd);
                fd = above;
        }
        *ret = fd >= 0 ? below : 0; /* no parent is ours: the process is not below us */
        if (fd < 0)
                return pid > 0 && is_shortage(errno) ? -errno : 0;
        (void)close(fd);
        return 0;
}

/* Opens a pidfd of the peer. *ret_pidfd is -EBADF if the kernel or a sandbox offers none: the end
 * of the connection then counts as the end of the process. */
static int open_peer(int fd, pid_t pid, int *ret_pidfd)
{
        socklen_t n = sizeof(*ret_pidfd);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, ret_pidfd, &n) == 0)
                return 0;
        *ret_pidfd = -EBADF;
        if (errno == ESRCH || errno == EINVAL) /* the process has ended; EINVAL before Linux 6.9 */
                return -ESRCH; /* do not open by number, which another process may have by now */
        if (is_shortage(errno))
                return -errno;
        if (pid <= 0)
                return 0;
        *ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (*ret_pidfd >= 0)
                return 0;
        *ret_pidfd = -EBADF;
        return errno == ESRCH || is_shortage(errno) ? -errno : 0;
}

static bool same_pod(const struct peer *a, const struct peer *b)
{
        const bool in_pod = a->tenant.kind == TENANT_POD || b->tenant.kind == TENANT_POD;

        return !in_pod || tenant_same(&a->tenant, &b->tenant);
}

/* In a pod the pid namespace does not count, because each container may have its own. */
bool peer_same_tenant(const struct peer *a, const struct peer *b)
{
        if (a->uid != b->uid || !tenant_same(&a->tenant, &b->tenant))
                return false;
        return a->tenant.kind == TENANT_POD ||
               (a->pid_namespace && a->pid_namespace == b->pid_namespace);
}

bool peer_same_user(const struct peer *a, const struct peer *b)
{
        if (a->uid != b->uid || !same_pod(a, b))
                return false;
        return a->uid != 0 || a->tenant.kind == TENANT_POD ||
               (a->pid_namespace && a->pid_namespace == b->pid_namespace);
}

bool peer_same_account(const struct peer *a, const struct peer *b)
{
        if (!tenant_same(&a->tenant, &b->tenant))
                return false;
        return a->tenant.kind == TENANT_POD || peer_same_user(a, b);
}

bool peer_has_right(const struct peer *by, const struct peer *of)
{
        if (by->trusted)
                return true;
        if (by->uid != of->uid || !same_pod(by, of))
                return false;
        return by->outside || by->tenant.kind == TENANT_POD ||
               (by->pid_namespace && by->pid_namespace == of->pid_namespace);
}

static bool is_on_the_machine(const struct peer *p)
{
        return p->outside && p->tenant.kind != TENANT_POD;
}

enum peer_knowledge peer_may_know(const struct peer *by, const struct peer *of, bool names)
{
        if (peer_has_right(by, of))
                return PEER_KNOWS_ALL;
        return names && is_on_the_machine(by) ? PEER_KNOWS_NAME : PEER_KNOWS_NOTHING;
}

const char *peer_stranger(const struct peer *by, const struct peer *of)
{
        if (is_on_the_machine(by))
                return "another user";
        return of->tenant.kind == TENANT_POD ? "another pod"
               : !of->outside                ? "another container"
                                             : "outside the container";
}

bool peer_ended(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return pidfd >= 0 && poll(&p, 1, 0) == 1;
}

bool peer_outside_container(pid_t pid)
{
        struct process p;

        return process_look(pid, &p) == 0 && p.outside;
}

/* True if the process has the same map of uids as we. Root of a user namespace that some user has
 * made is confined, whatever its uid is outside, and has another map. */
static bool same_user_namespace(pid_t pid)
{
        char path[64], theirs[256], ours[256];
        _cleanup_fclose_ FILE *f = NULL, *own = NULL;
        size_t n, m;

        (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
        f = fopen(path, "re");
        own = fopen("/proc/self/uid_map", "re");
        if (!f || !own)
                return false;
        n = fread(theirs, 1, sizeof(theirs), f);
        m = fread(ours, 1, sizeof(ours), own);
        return n > 0 && n == m && memcmp(theirs, ours, n) == 0;
}

bool peer_in_container(pid_t pid)
{
        return !peer_outside_container(pid) || !same_user_namespace(pid);
}

ino_t peer_own_container(const struct peer *p)
{
        return p->container && same_user_namespace(p->pid) && !peer_ended(p->pidfd) ? p->container
                                                                                    : 0;
}

/* Reads /proc/PID/cgroup. -ENOENT: the process has ended or is hidden from the daemon's user, or
 * this kernel has no cgroups. The kernel does not describe a path longer than PATH_MAX:
 * -ENAMETOOLONG. */
static int read_cgroups(pid_t pid, char **ret)
{
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_free_ char *text = NULL;
        char path[64];
        size_t room = 0;
        ssize_t n;

        (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
        f = fopen(path, "re");
        if (!f)
                return errno == ESRCH || errno == EACCES || errno == EPERM ? -ENOENT : -errno;
        n = getdelim(&text, &room, '\0', f);
        if (ferror(f) || (n < 0 && !feof(f)))
                return errno == ESRCH ? -ENOENT : -errno;
        *ret = n < 0 ? strdup("") : TAKE_PTR(text);
        return *ret ? 0 : -ENOMEM;
}

/* Returns the daemon's own cgroups. They are read once: otherwise a user who moves the daemon to
 * another cgroup could choose its pod. */
static const char *own_cgroups(void)
{
        static char *own;

        if (!own && read_cgroups(getpid(), &own) < 0)
                return "";
        return own;
}

static void own_tenant(struct tenant *ret)
{
        tenant_of_cgroups(own_cgroups(), own_cgroups(), ret);
}

int peer_look_at_self(void)
{
        return *own_cgroups() ? 0 : -ENOENT;
}

/* Finds the pod or the job. After an error the process is refused: root of a pod could hide its pod
 * below cgroups with long names. */
static int find_tenant(struct peer *p)
{
        _cleanup_free_ char *theirs = NULL;
        int r = p->pid > 0 ? read_cgroups(p->pid, &theirs) : -ENOENT;

        p->tenant = (struct tenant){.kind = TENANT_NONE};
        if (r == 0)
                tenant_of_cgroups(theirs, own_cgroups(), &p->tenant);
        if (p->pid > 0 && peer_ended(p->pidfd))
                return -ESRCH; /* another process may have the number */
        return r == -ENOENT ? 0 : r;
}

/* In a pod the daemon's uid is no identity, and root is root of the pod alone, even in the pid
 * namespace of the machine. */
static bool is_in_foreign_pod(const struct peer *p)
{
        struct tenant own;

        own_tenant(&own);
        return p->tenant.kind == TENANT_POD && !tenant_same(&p->tenant, &own);
}

/* Decides whether the peer is trusted. The uid does not suffice: without a user namespace, a
 * container's uid is the same uid here. What /proc says holds only if the process still exists
 * afterwards. 0, or -errno: no descriptor is free to find out. */
static int find_trust(struct peer *p)
{
        const bool entitled = p->uid == geteuid() || p->uid == 0;

        errno = 0;
        p->outside = peer_outside_container(p->pid);
        p->trusted = entitled && p->outside && !is_in_foreign_pod(p) && same_user_namespace(p->pid);
        if (!p->trusted && is_shortage(errno))
                return -errno;
        if (peer_ended(p->pidfd))
                p->outside = p->trusted = false;
        return 0;
}

int peer_identify(int fd, struct peer *ret)
{
        struct ucred cred;
        socklen_t n = sizeof(cred);
        int pidfd, r;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
                return -errno;
        r = open_peer(fd, cred.pid, &pidfd);
        if (r < 0)
                return r;
        *ret = (struct peer){.pid = cred.pid,
                             .uid = cred.uid,
                             .gid = cred.gid,
                             .pidfd = pidfd,
                             .pid_namespace = pid_namespace(cred.pid)};
        r = find_container(cred.pid, &ret->container);
        if (r == 0)
                r = find_tenant(ret);
        if (r == 0)
                r = find_trust(ret);
        if (r < 0)
                cleanup_close(&pidfd);
        return r;
}

void peer_look_at(pid_t pid, uid_t uid, struct peer *ret)
{
        *ret = (struct peer){.pid = pid,
                             .uid = uid,
                             .pidfd = -EBADF,
                             .pid_namespace = pid_namespace(pid),
                             .outside = peer_outside_container(pid)};
        if (find_tenant(ret) < 0)
                ret->tenant = (struct tenant){.kind = TENANT_POD}; /* a pod that nobody is in */
}

int peer_cgroup(const struct peer *p, char ret[static PEER_CGROUP_MAX])
{
        _cleanup_free_ char *text = NULL;
        int r;

        if (p->pid <= 0)
                return -ESRCH;
        r = read_cgroups(p->pid, &text);
        if (r < 0 || peer_ended(p->pidfd))
                return r < 0 && r != -ENOENT ? r : -ESRCH;
        return tenant_path(text, ret, PEER_CGROUP_MAX);
}

void peer_pass_descriptors(int fd, bool pass)
{
        int value = pass;

        (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value));
}

int peer_kill(int pidfd, int signal)
{
        return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

/* The start time is field 22 of /proc/PID/stat, in ticks since boot. The name before it may contain
 * any character, so the search begins behind its bracket. */
uint64_t peer_age_ns(pid_t pid)
{
        _cleanup_fclose_ FILE *f = NULL;
        unsigned long long begun = 0;
        struct timespec up = {0};
        char path[64], line[1024], *after_name;
        uint64_t up_ns, begun_ns;

        (void)clock_gettime(CLOCK_BOOTTIME, &up);
        up_ns = (uint64_t)up.tv_sec * NSEC_PER_SEC + (uint64_t)up.tv_nsec;
        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        f = fopen(path, "re");
        if (f && fgets(line, sizeof(line), f) && (after_name = strrchr(line, ')')))
                (void)sscanf(after_name,
                             ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                             "%*d %*d %*d %llu",
                             &begun);
        begun_ns = begun * (NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK));
        return begun_ns < up_ns ? up_ns - begun_ns : 0;
}
