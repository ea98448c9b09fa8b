/* private.c: owns the supervisor: going to the background, restarting the worker, leaving. Must
 * never touch a GPU or a client, or anything else that could kill it. */
#include "daemon/private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/history/record_ring.h"
#include "daemon/setup/log_form.h"
#include "daemon/state/server.h"
#include "daemon/loop.h"

#define LOG_FILE_MAX    (1024 * 1024)
#define PROVEN_NS       (10 * NSEC_PER_SEC) /* lifetime after which a worker counts as healthy */
#define BACKOFF_MAX_NS  (5 * NSEC_PER_SEC)
#define FAILURES_MAX    10
#define RIVAL_WAIT_NS   (5 * NSEC_PER_SEC)
#define RIVAL_PERIOD_MS 10

/* ---- the worker ---- */

static pid_t start_worker(const struct config *config, struct sources *sources, struct place *place,
                          struct ring *history)
{
        pid_t parent = getpid(), pid = fork();
        int r;

        if (pid != 0)
                return pid;
        /* A worker ends with its supervisor, because nobody would restart it. */
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
                _exit(SERVER_STOPPED);
        r = loop_run(config, sources, place, history, true);
        exit(r < 0 ? EXIT_FAILURE : r);
}

static bool is_order_to_leave(int sig)
{
        return sig == SIGTERM || sig == SIGINT || sig == SIGQUIT;
}

/* Waits for the worker's end. A signal to leave, or to read the settings again, is passed on to the
 * worker. Returns the wait status. */
static int await_worker(pid_t worker, const sigset_t *signals)
{
        int status = 0;

        for (;;) {
                int sig = sigwaitinfo(signals, NULL);

                if (is_order_to_leave(sig))
                        (void)kill(worker, SIGTERM);
                else if (sig == SIGHUP)
                        (void)kill(worker, SIGHUP);
                if (waitpid(worker, &status, WNOHANG) == worker)
                        return status;
        }
}

/* True if a client connected after the worker had decided to leave. */
static bool somebody_waits(const struct place *place)
{
        struct pollfd p = {.fd = place->listening[PLACE_CLIENT], .events = POLLIN};

        return poll(&p, 1, 0) == 1;
}

/* Waits for this time. True: a signal to leave came meanwhile. */
static bool pause_for(uint64_t ns, const sigset_t *signals)
{
        struct timespec ts = {(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
        int sig = sigtimedwait(signals, NULL, &ts);

        return is_order_to_leave(sig);
}

/* Reads the settings for the next worker, which logs what is wrong with them. If the files are
 * wrong, the settings that the last worker kept on disk hold. Without those, the next worker gets
 * what the last one began with. */
static void read_again(struct config *config, struct sources *sources)
{
        struct config next;

        sources_forget(sources);
        if (sources_read(sources, &next) < 0)
                return;
        config_free(config);
        *config = next;
}

static void supervise(struct config *config, struct sources *sources, struct place *place)
{
        struct ring *history = ring_new(); /* the next worker finds what the last one has written */
        unsigned failures = 0;
        sigset_t signals;

        (void)sigprocmask(SIG_BLOCK, NULL, &signals); /* sigwaitinfo() takes only blocked signals */
        for (;;) {
                uint64_t started = clock_now_ns(), wait_ns;
                pid_t worker = start_worker(config, sources, place, history);
                int status;

                if (worker < 0) {
                        log_error("cannot start a worker: %s", strerror(errno));
                        return;
                }
                status = await_worker(worker, &signals);
                if (WIFEXITED(status) && WEXITSTATUS(status) == SERVER_STOPPED)
                        return;
                if (WIFEXITED(status) && WEXITSTATUS(status) == SERVER_AFRESH) {
                        read_again(config, sources);
                        continue;
                }
                if (WIFEXITED(status) && WEXITSTATUS(status) == SERVER_LONELY) {
                        if (!somebody_waits(place))
                                return;
                        read_again(config, sources);
                        continue;
                }
                if (WIFSIGNALED(status))
                        log_warning("the worker was killed by signal %d: restarting it",
                                    WTERMSIG(status));
                else
                        log_warning("the worker failed: restarting it");
                failures = clock_now_ns() - started > PROVEN_NS ? 1 : failures + 1;
                if (failures > FAILURES_MAX) {
                        log_error("%d workers failed one after the other: giving up", FAILURES_MAX);
                        return;
                }
                wait_ns = failures == 1 ? 0 : MIN(50 * NSEC_PER_MSEC << failures, BACKOFF_MAX_NS);
                if (pause_for(wait_ns, &signals))
                        return;
                read_again(config, sources);
        }
}

/* ---- the background ---- */

static int open_log(const char *dir, int flags)
{
        char path[PATHS_DIR_MAX + sizeof(PATHS_LOG) + 1];

        (void)paths_join(dir, PATHS_LOG, path, sizeof(path));
        return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Shortens the file in place, because both processes have it open. Lines written during that may be
 * lost. */
void private_bound_log(const char *dir)
{
        _cleanup_close_ int fd = open_log(dir, O_RDWR);
        off_t from, to = 0;
        struct stat st;
        char part[4096];
        ssize_t n;

        if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= LOG_FILE_MAX)
                return;
        from = st.st_size - LOG_FILE_MAX / 2;
        while ((n = pread(fd, part, sizeof(part), from)) > 0 &&
               pwrite(fd, part, (size_t)n, to) == n) {
                from += n;
                to += n;
        }
        (void)!ftruncate(fd, to);
}

static void redirect_output(const char *dir)
{
        _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC), out = -EBADF;

        private_bound_log(dir);
        out = open_log(dir, O_WRONLY | O_CREAT | O_APPEND);
        if (null >= 0) {
                (void)dup2(null, STDIN_FILENO);
                (void)dup2(null, STDOUT_FILENO);
                (void)dup2(out >= 0 ? out : null, STDERR_FILENO);
        }
}

/* Takes back what was set for the starting program alone, as far as the kernel allows it: CPUs,
 * memory's nodes, priority, soft limits, and how soon the kernel ends it. */
static void forget_restraints(void)
{
        static const int limits[] = {RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE,
                                     RLIMIT_NPROC};
        static unsigned long all_cpus[1024]; /* the kernel ignores CPUs that do not exist */
        const struct sched_param none = {0};
        char score[16] = "";
        int fd;

        memset(all_cpus, 0xff, sizeof(all_cpus));
        (void)syscall(SYS_sched_setaffinity, 0, sizeof(all_cpus), all_cpus);
        (void)syscall(SYS_set_mempolicy, 0 /* MPOL_DEFAULT */, NULL, 0);
        (void)sched_setscheduler(0, SCHED_OTHER, &none);
        (void)setpriority(PRIO_PROCESS, 0, 0);
        for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
                struct rlimit rl;

                if (getrlimit(limits[i], &rl) == 0) {
                        rl.rlim_cur = rl.rlim_max;
                        (void)setrlimit(limits[i], &rl);
                }
        }
        fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return;
        if (read(fd, score, sizeof(score) - 1) > 0 && atoi(score) > 0)
                (void)!pwrite(fd, "0", 1, 0);
        (void)close(fd);
}

/* Resets what the starting program may have changed: signals and descriptors. If that program is a
 * service, its variables would make the daemon report to systemd as that service. */
static void forget_the_starter(void)
{
        static const char *const of_a_service[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC",
                                                   "WATCHDOG_PID"};
        sigset_t none;

        (void)sigemptyset(&none);
        for (int sig = 1; sig < NSIG; sig++)
                (void)signal(sig, SIG_DFL);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        loop_block_signals();
        (void)syscall(SYS_close_range, 3u, ~0u, 0u);
        (void)umask(077);
        for (size_t i = 0; i < ARRAY_SIZE(of_a_service); i++)
                (void)unsetenv(of_a_service[i]);
        forget_restraints();
}

/* Opens the place. If two daemons start at the same moment, one gets the lock, and the other waits
 * until the first one's sockets answer. The waiting daemon tries the lock again each time, because
 * the holder may be leaving. */
static int open_or_find(const struct place_options *o, struct place *ret,
                        char error[static PLACE_ERROR_MAX])
{
        uint64_t until = clock_now_ns() + RIVAL_WAIT_NS;

        for (;;) {
                int r = place_open(o, ret, error);

                if (r != -EALREADY)
                        return r < 0 ? r : 1;
                if (place_answers(o->dir))
                        return 0;
                if (clock_now_ns() > until)
                        return r;
                (void)poll(NULL, 0, RIVAL_PERIOD_MS);
        }
}

int private_start(struct config *config, struct sources *sources, const struct place_options *o,
                  char error[static PLACE_ERROR_MAX])
{
        struct place place = PLACE_INIT;
        int ready[2];
        pid_t pid;
        char byte;
        int r, nice;

        forget_the_starter();
        r = open_or_find(o, &place, error);
        if (r <= 0)
                return r;
        pid = pipe2(ready, O_CLOEXEC) < 0 ? -1 : fork();
        if (pid < 0) {
                r = -errno;
                (void)snprintf(error, PLACE_ERROR_MAX, "cannot start in the background: %s",
                               strerror(-r));
                place_close(&place, true);
                return r;
        }
        if (pid > 0) {
                place_close(&place, false); /* the child has the listening sockets, too */
                /* Return only when the child has left our session: a terminal that closes at our
                 * return would kill it. */
                (void)close(ready[1]);
                (void)!read(ready[0], &byte, 1);
                return 0;
        }
        (void)setsid();
        place_sign(&place); /* before any client is served */
        redirect_output(place.dir);
        (void)close(ready[0]);
        (void)close(ready[1]);
        if (place.dir[0] == '/')
                (void)!chdir("/"); /* so that no mount stays busy; but a relative name must keep its
                                      meaning */
        log_form_open();
        nice = getpriority(PRIO_PROCESS, 0);
        if (nice > 0)
                log_notice("the daemon has niceness %d of the program that started it, which only "
                           "root may lower",
                           nice);
        supervise(config, sources, &place);
        place_keep(&place, "");
        place_close(&place, true);
        exit(EXIT_SUCCESS);
}
