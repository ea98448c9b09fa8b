/* mps.c: owns the processes and directories of MPS. Must never run an MPS program with more rights
 * than its user has, nor kill a process of another user.
 * Why: docs/decisions.md, "A server of MPS is for one user, and outlives the daemon". */
#include "mps/mps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/oom.h"

#define PATH_LENGTH  512
#define POLL_NS      (10 * NSEC_PER_MSEC)
#define QUIT_MS      4000u /* the server gets 2 s of them */
#define GONE_MS      3000u
#define COMM         "nvidia-cuda-mps" /* the kernel keeps 15 characters of a name */
#define ENVIRON_MOST (256u * 1024u)
#define LEFT_MOST    4096u /* files that are removed: MPS leaves far fewer */

/* ---- the program ---- */

static bool is_program(const char *folder, size_t length, char ret[static PATH_LENGTH])
{
        const int n = snprintf(ret, PATH_LENGTH, "%.*s/" MPS_CONTROL, (int)length, folder);

        return length > 0 && folder[0] == '/' && n > 0 && n < PATH_LENGTH && access(ret, X_OK) == 0;
}

const char *mps_program(void)
{
        static const char usual[] = "/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/opt/nvidia/bin:"
                                    "/run/nvidia/driver/usr/bin:/usr/lib/nvidia/current";
        static char found[PATH_LENGTH];
        const char *lists[] = {getenv("PATH"), usual};

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                for (const char *at = lists[i]; at;) {
                        const size_t length = strcspn(at, ":");

                        if (is_program(at, length, found))
                                return found;
                        at = at[length] ? at + length + 1 : NULL;
                }
        found[0] = '\0';
        return NULL;
}

/* ---- the directory ---- */

/* No link is followed, so that no other user can choose the directory. */
static int make_own(const char *path, uid_t uid, gid_t gid)
{
        _cleanup_close_ int fd = -EBADF;
        const bool made = mkdir(path, 0700) == 0;
        struct stat st;

        if (!made && errno != EEXIST)
                return -errno;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return errno == ELOOP ? -ENOTDIR : -errno;
        if (st.st_uid == uid)
                return fchmod(fd, 0700) < 0 ? -errno : 0;
        if (!made)
                return -EPERM;
        return fchown(fd, uid, gid) < 0 ? -errno : 0;
}

int mps_make_dir(const char *dir, uid_t uid, gid_t gid)
{
        char path[PATH_LENGTH];
        int r;

        if (strlen(dir) >= MPS_DIR_MAX)
                return -ENAMETOOLONG;
        r = make_own(dir, uid, gid);
        (void)snprintf(path, sizeof(path), "%s/control", dir);
        if (r == 0 && mps_find(dir, uid) == 0)
                (void)unlink(path); /* a killed control daemon has left it */
        return r; /* the control daemon's process makes the folder of logs: dir is the user's now */
}

/* The directory is the user's, so what is in it is removed by name from an open descriptor, and no
 * link is followed. The user may put any number of files there, at any time, so at most *left more
 * are looked at. */
static void empty(int fd, unsigned depth, unsigned *left)
{
        DIR *d = fdopendir(fd);
        const struct dirent *e;

        if (!d) {
                (void)close(fd);
                return;
        }
        while (*left > 0 && (e = readdir(d))) {
                int below;

                (*left)--;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (unlinkat(dirfd(d), e->d_name, 0) == 0 || depth == 0)
                        continue;
                below = openat(dirfd(d), e->d_name,
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (below < 0)
                        continue;
                empty(below, depth - 1, left);
                (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        }
        (void)closedir(d);
}

void mps_remove_dir(const char *dir)
{
        const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        unsigned left = LEFT_MOST;

        if (fd >= 0)
                empty(fd, 1, &left);
        (void)rmdir(dir);
}

/* ---- processes ---- */

/* What a process of MPS has in its environment. */
struct surroundings {
        char pipe[PATH_LENGTH], log[PATH_LENGTH], gpu[PATH_LENGTH], path[4096], libraries[4096];
        char *list[6];
};

static void surround(const struct mps_options *o, struct surroundings *s)
{
        const char *path = getenv("PATH"), *libraries = getenv("LD_LIBRARY_PATH");
        unsigned n = 0;

        (void)snprintf(s->pipe, sizeof(s->pipe), "CUDA_MPS_PIPE_DIRECTORY=%s", o->dir);
        (void)snprintf(s->log, sizeof(s->log), "CUDA_MPS_LOG_DIRECTORY=%s/log", o->dir);
        (void)snprintf(s->gpu, sizeof(s->gpu), "CUDA_VISIBLE_DEVICES=%s", o->gpu ? o->gpu : "");
        (void)snprintf(s->path, sizeof(s->path), "PATH=%s", path ? path : "/usr/bin:/bin");
        (void)snprintf(s->libraries, sizeof(s->libraries), "LD_LIBRARY_PATH=%s",
                       libraries ? libraries : "");
        s->list[n++] = s->pipe;
        s->list[n++] = s->log;
        s->list[n++] = s->path;
        if (o->gpu)
                s->list[n++] = s->gpu;
        if (libraries)
                s->list[n++] = s->libraries;
        s->list[n] = NULL;
}

static bool become(const struct mps_options *o)
{
        if (geteuid() == o->uid && getuid() == o->uid)
                return true;
        return setgroups(o->n_groups, o->groups) == 0 && setresgid(o->gid, o->gid, o->gid) == 0 &&
               setresuid(o->uid, o->uid, o->uid) == 0;
}

/* In the child: settings that the caller has made for itself must not hold for the program. When
 * memory runs out, the kernel spares the machine's daemon; it must not spare a user's program. */
static void reset(void)
{
        sigset_t none;

        oom_spare_no_more();
        for (int s = 1; s < NSIG; s++)
                (void)signal(s, SIG_DFL);
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the child: becomes the program. in, out: descriptors for stdin and stdout; -1: /dev/null. */
static _Noreturn void become_program(const struct mps_options *o, struct surroundings *s,
                                     const char *program, bool foreground, int in, int out)
{
        char *argv[] = {(char *)MPS_CONTROL, foreground ? (char *)"-f" : NULL, NULL};
        const int null = open("/dev/null", O_RDWR);

        reset();
        if (null < 0 || dup2(in >= 0 ? in : null, 0) < 0 || dup2(out >= 0 ? out : null, 1) < 0 ||
            dup2(out >= 0 ? 1 : null, 2) < 0)
                _exit(EXIT_FAILURE);
        closefrom(3);
        if (!become(o))
                _exit(MPS_EXIT_NOT_USER);
        (void)umask(0077);
        if (foreground)
                (void)mkdir(s->log + strlen("CUDA_MPS_LOG_DIRECTORY="), 0700);
        if (chdir("/") == 0)
                (void)execve(program, argv, s->list);
        _exit(MPS_EXIT_NO_FILE);
}

/* In the child: ends MPS when the process that asked for it ends, or sends SIGTERM to this
 * child. */
static _Noreturn void guard(const struct mps_options *o, struct surroundings *s,
                            const char *program, pid_t parent)
{
        sigset_t awaited;
        int status = 0;
        pid_t pid;

        (void)sigemptyset(&awaited);
        (void)sigaddset(&awaited, SIGTERM);
        (void)sigaddset(&awaited, SIGCHLD);
        (void)sigprocmask(SIG_BLOCK, &awaited, NULL);
        (void)signal(SIGCHLD, SIG_DFL);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        closefrom(3);
        if (getppid() != parent)
                _exit(EXIT_FAILURE);
        pid = fork();
        if (pid == 0)
                become_program(o, s, program, true, -1, -1);
        for (int caught = 0; pid > 0 && waitpid(pid, &status, WNOHANG) == 0;) {
                if (sigwait(&awaited, &caught) == 0 && caught == SIGTERM) {
                        mps_stop(o, pid);
                        _exit(EXIT_SUCCESS);
                }
        }
        (void)mps_kill(o->dir, o->uid); /* a server that its control daemon has left behind */
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
}

int mps_spawn(const struct mps_options *o, pid_t *ret_pid)
{
        const char *program = mps_program();
        const pid_t parent = getpid();
        struct surroundings s = {.list = {NULL}};
        pid_t pid;

        if (!program)
                return -ENOENT;
        surround(o, &s);
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0) {
                (void)setsid();
                if (!o->outlives)
                        guard(o, &s, program, parent);
                become_program(o, &s, program, true, -1, -1);
        }
        *ret_pid = pid;
        return 0;
}

/* Tries to connect to the socket. 0 or -errno. Never waits. */
static int try_to_connect(int type, const char *path)
{
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
        return fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ? -errno : 0;
}

/* The socket has its name a moment before the control daemon listens. No link is followed: the user
 * owns the directory, and could lead us anywhere. */
bool mps_is_ready(const char *dir)
{
        char path[PATH_LENGTH];
        _cleanup_close_ int fd = -EBADF;
        int r;

        (void)snprintf(path, sizeof(path), "%s/control", dir);
        fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return false;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        r = try_to_connect(SOCK_SEQPACKET, path);
        if (r == -EPROTOTYPE)
                r = try_to_connect(SOCK_STREAM, path);
        return r == 0 || r == -EAGAIN; /* the queue of connections is full */
}

/* ---- finding them ---- */

static bool has_name(int proc, uid_t uid)
{
        char comm[32] = "";
        struct stat st;
        const int fd = openat(proc, "comm", O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return false;
        (void)read(fd, comm, sizeof(comm) - 1);
        (void)close(fd);
        return strncmp(comm, COMM, strlen(COMM)) == 0 && fstat(proc, &st) == 0 && st.st_uid == uid;
}

/* A process can make its environment as long as it likes: only the first part is read. */
static bool has_variable(int proc, const char *wanted)
{
        _cleanup_free_ char *text = malloc(ENVIRON_MOST + 1);
        const int fd = text ? openat(proc, "environ", O_RDONLY | O_CLOEXEC) : -1;
        size_t used = 0;
        ssize_t n;

        if (fd < 0)
                return false;
        while ((n = read(fd, text + used, ENVIRON_MOST - used)) > 0)
                used += (size_t)n;
        (void)close(fd);
        text[used] = '\0';
        for (const char *at = text; at < text + used; at += strlen(at) + 1)
                if (strcmp(at, wanted) == 0)
                        return true;
        return false;
}

/* Control daemons and servers have names that begin alike. */
static bool is_control(int proc)
{
        char line[64] = "";
        const int fd = openat(proc, "cmdline", O_RDONLY | O_CLOEXEC);
        const char *name;

        if (fd < 0)
                return false;
        (void)read(fd, line, sizeof(line) - 1); /* reads up to the first argument */
        (void)close(fd);
        name = strrchr(line, '/');
        return strcmp(name ? name + 1 : line, MPS_CONTROL) == 0;
}

struct found {
        pid_t pid;
        int proc; /* the process's folder in /proc, which never becomes another process's */
        bool control;
};

/* Calls back for each process of MPS with this directory. */
static unsigned each(const char *dir, uid_t uid, void (*found)(const struct found *f, void *user),
                     void *user)
{
        char wanted[PATH_LENGTH];
        DIR *d = *dir ? opendir("/proc") : NULL; /* an empty name would find the user's own MPS */
        const struct dirent *e;
        unsigned n = 0;

        if (!d)
                return 0;
        (void)snprintf(wanted, sizeof(wanted), "CUDA_MPS_PIPE_DIRECTORY=%s", dir);
        while ((e = readdir(d))) {
                const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
                const int proc =
                        pid > 0 ? openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                : -1;

                if (proc < 0)
                        continue;
                if (has_name(proc, uid) && has_variable(proc, wanted)) {
                        found(&(struct found){pid, proc, is_control(proc)}, user);
                        n++;
                }
                (void)close(proc);
        }
        (void)closedir(d);
        return n;
}

/* Keeps the oldest of several: the others are processes that give orders. */
static void note_control(const struct found *f, void *user)
{
        pid_t *ret = user;

        if (f->control && (*ret == 0 || f->pid < *ret))
                *ret = f->pid;
}

pid_t mps_find(const char *dir, uid_t uid)
{
        pid_t pid = 0;

        (void)each(dir, uid, note_control, &pid);
        return pid;
}

static void note_nothing(const struct found *f, void *user)
{
        (void)f;
        (void)user;
}

unsigned mps_count(const char *dir, uid_t uid)
{
        return each(dir, uid, note_nothing, NULL);
}

static void count_server(const struct found *f, void *user)
{
        unsigned *n = user;

        *n += !f->control;
}

unsigned mps_count_servers(const char *dir, uid_t uid)
{
        unsigned n = 0;

        (void)each(dir, uid, count_server, &n);
        return n;
}

/* Kills by the folder in /proc, because the pid may be another process's by now. */
static void end_one(const struct found *f, void *user)
{
        (void)user;
        if (syscall(SYS_pidfd_send_signal, f->proc, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
                (void)kill(f->pid, SIGKILL); /* the kernel lacks that call */
}

unsigned mps_kill(const char *dir, uid_t uid)
{
        return each(dir, uid, end_one, NULL);
}

/* ---- orders ---- */

int mps_ask_begin(const struct mps_options *o, const char *order, pid_t *ret_pid, int *ret_fd)
{
        _cleanup_close_ int in = -EBADF, in_end = -EBADF, out = -EBADF, out_end = -EBADF;
        const char *program = mps_program();
        struct surroundings s = {.list = {NULL}};
        int fds[2];
        pid_t pid;

        if (!program)
                return -ENOENT;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        in = fds[0];
        in_end = fds[1];
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        out = fds[0];
        out_end = fds[1];
        /* A pipe holds the order before anybody reads it. */
        if (dprintf(in_end, "%s\n", order) < 0 || fcntl(out, F_SETFL, O_NONBLOCK) < 0)
                return -errno;
        surround(o, &s);
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                become_program(o, &s, program, false, in, out_end);
        *ret_pid = pid;
        *ret_fd = TAKE_FD(out);
        return 0;
}

unsigned mps_numbers(const char *answer, pid_t *ret, unsigned most)
{
        unsigned n = 0;

        for (const char *at = answer; *at;) {
                const size_t space = strspn(at, " \t\r\n"), length = strcspn(at + space, " \t\r\n");
                char *end;
                long v;

                at += space;
                v = strtol(at, &end, 10);
                if (length > 0 && end == at + length && v > 0 && v <= INT32_MAX) {
                        if (n < most)
                                ret[n] = (pid_t)v;
                        n++;
                }
                at += length;
        }
        return n;
}

/* ---- these wait ---- */

static void pause_ns(uint64_t ns)
{
        const struct timespec t = {.tv_nsec = (long)ns};

        (void)nanosleep(&t, NULL);
}

static uint64_t after_ms(unsigned ms)
{
        return clock_now_ns() + ms * NSEC_PER_MSEC;
}

/* Waits for a child to end. False: it still runs. */
static bool reap_until(pid_t pid, uint64_t until_ns)
{
        while (waitpid(pid, NULL, WNOHANG) == 0) {
                if (clock_now_ns() >= until_ns)
                        return false;
                pause_ns(POLL_NS);
        }
        return true;
}

static int why_ended(int status)
{
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;

        return code == MPS_EXIT_NOT_USER ? -EPERM : code == MPS_EXIT_NO_FILE ? -ENOENT : -EIO;
}

int mps_start(const struct mps_options *o, pid_t *ret_pid)
{
        const uint64_t until = after_ms(MPS_START_MS);
        int r = mps_find(o->dir, o->uid) ? -EALREADY : mps_make_dir(o->dir, o->uid, o->gid);
        int status;
        pid_t pid;

        if (r == 0)
                r = mps_spawn(o, &pid);
        if (r < 0)
                return r;
        while (!mps_is_ready(o->dir)) {
                if (waitpid(pid, &status, WNOHANG) != 0)
                        return why_ended(status);
                if (clock_now_ns() >= until) {
                        mps_stop(o, pid);
                        return -ETIMEDOUT;
                }
                pause_ns(POLL_NS);
        }
        *ret_pid = pid;
        return 0;
}

/* Reads to the end. 0, or -ETIMEDOUT. */
static int read_answer(int fd, uint64_t until_ns, char *ret, size_t n)
{
        char rest[512];
        size_t used = 0;

        for (;;) {
                const bool full = used + 1 >= n;
                const ssize_t got =
                        full ? read(fd, rest, sizeof(rest)) : read(fd, ret + used, n - used - 1);
                struct pollfd p = {.fd = fd, .events = POLLIN};

                if (got == 0)
                        break;
                if (clock_now_ns() >= until_ns) /* even if the answer never ends */
                        return -ETIMEDOUT;
                if (got > 0) {
                        used += full ? 0 : (size_t)got;
                        continue;
                }
                if (errno != EAGAIN && errno != EINTR)
                        break;
                (void)poll(&p, 1, (int)(POLL_NS / NSEC_PER_MSEC));
        }
        ret[used] = '\0';
        return 0;
}

int mps_ask(const struct mps_options *o, const char *order, unsigned limit_ms, char *ret, size_t n)
{
        const uint64_t until = after_ms(limit_ms);
        _cleanup_close_ int fd = -EBADF;
        int r, status = 0;
        pid_t pid;

        r = mps_ask_begin(o, order, &pid, &fd);
        if (r < 0)
                return r;
        r = read_answer(fd, until, ret, n);
        while (r == 0 && waitpid(pid, &status, WNOHANG) == 0) {
                if (clock_now_ns() >= until)
                        r = -ETIMEDOUT;
                else
                        pause_ns(POLL_NS);
        }
        if (r == -ETIMEDOUT) {
                (void)kill(pid, SIGKILL);
                (void)waitpid(pid, NULL, 0);
                return r;
        }
        return status == 0 ? 0 : why_ended(status);
}

void mps_stop(const struct mps_options *o, pid_t pid)
{
        char answer[MPS_ANSWER_MAX];
        uint64_t until;

        (void)mps_ask(o, "quit -t 2", QUIT_MS, answer, sizeof(answer));
        until = after_ms(GONE_MS);
        while (mps_find(o->dir, o->uid) && clock_now_ns() < until) {
                if (pid > 0 && waitpid(pid, NULL, WNOHANG) != 0)
                        pid = 0;
                pause_ns(POLL_NS);
        }
        while (mps_kill(o->dir, o->uid) > 0 && clock_now_ns() < until + NSEC_PER_SEC)
                pause_ns(POLL_NS);
        if (pid > 0 && !reap_until(pid, until + NSEC_PER_SEC)) {
                (void)kill(pid, SIGKILL);
                (void)waitpid(pid, NULL, 0);
        }
        mps_remove_dir(o->dir);
}
