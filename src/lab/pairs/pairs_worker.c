/* pairs_worker.c: owns the processes of the workers and the talk with them. Must never wait for a
 * worker without a limit, nor leave one behind. */
#include "lab/pairs/pairs_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/common/cli.h"
#include "client/common/part_paths.h"
#include "mps/mps.h"

#define PERIOD_MS   50
#define WORKERS_MAX 16
#define END_MS      5000 /* a killed process is gone sooner, unless the driver holds it */

bool pairs_worker_runs(const struct pairs_worker *w)
{
        return lab_program_runs(&w->run);
}

/* ---- start and end ---- */

static void become(const struct pairs_worker *w, const char *path)
{
        char budget[24];
        const char *argv[6];
        int n = 0, log = open(w->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        if (log >= 0)
                (void)dup2(log, STDERR_FILENO);
        if (w->mps_dir) {
                (void)setenv("CUDA_MPS_PIPE_DIRECTORY", w->mps_dir, 1);
                (void)setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", MPS_SHARE_PERCENT, 1);
        } else {
                (void)unsetenv("CUDA_MPS_PIPE_DIRECTORY");
        }
        if (w->gpu)
                (void)setenv("CUDA_VISIBLE_DEVICES", w->gpu, 1);
        if (w->measure_dir)
                (void)setenv("SUBLET_MEASURE", w->measure_dir, 1);
        (void)setenv("SUBLET_NAME", w->name, 1);
        if (w->preload)
                (void)setenv("SUBLET_REQUIRE", "1", 1);
        (void)snprintf(budget, sizeof(budget), "%llu", (unsigned long long)w->budget);
        if (w->python)
                argv[n++] = w->python;
        argv[n++] = path;
        if (w->python) {
                argv[n++] = "work";
                argv[n++] = budget;
        }
        argv[n] = NULL;
        (void)execvp(argv[0], (char *const *)argv);
        (void)printf("failed cannot execute %s: %s\n", argv[0], strerror(errno));
        (void)fflush(stdout);
        _exit(CLI_NO_EXECUTE);
}

int pairs_worker_start(struct pairs_worker *w)
{
        char path[PATH_MAX];
        pid_t pid;

        if (parts_find(w->python ? PART_PAIRS_TORCH : PART_PAIRS_JOB, path) < 0)
                return cli_fail(-1, "the program to measure is missing: no %s", path);
        w->run = LAB_PROGRAM_NONE;
        w->job = PAIRS_NO_JOB;
        w->answered = false;
        w->answer[0] = 0;
        w->starts++;
        pid = lab_program_fork(&w->run, w->daemon, w->preload, true);
        if (pid == 0)
                become(w, path);
        return pid < 0 ? -1 : 0;
}

/* Waits for the end of a killed process. One that the driver holds is left to init. */
static void reap(struct pairs_worker *w)
{
        for (unsigned ms = 0; ms < END_MS; ms += 10) {
                const struct timespec t = {.tv_nsec = 10 * (long)NSEC_PER_MSEC};
                const pid_t r = waitpid(w->run.pid, NULL, WNOHANG);

                if (r == w->run.pid || (r < 0 && errno != EINTR))
                        return;
                (void)nanosleep(&t, NULL);
        }
        (void)cli_fail(0, "the killed process %d does not end", (int)w->run.pid);
}

void pairs_worker_end(struct pairs_worker *w)
{
        if (!pairs_worker_runs(w))
                return;
        (void)kill(w->run.pid, SIGKILL);
        (void)close(w->run.output);
        lab_program_close_input(&w->run);
        reap(w);
        w->run = LAB_PROGRAM_NONE;
        w->job = PAIRS_NO_JOB;
}

double pairs_worker_cpu_s(const struct pairs_worker *w)
{
        struct timespec used;
        clockid_t clock;

        if (!pairs_worker_runs(w) || clock_getcpuclockid(w->run.pid, &clock) != 0 ||
            clock_gettime(clock, &used) < 0)
                return NAN;
        return (double)used.tv_sec + (double)used.tv_nsec / (double)NSEC_PER_SEC;
}

/* ---- the talk ---- */

void pairs_worker_order(struct pairs_worker *w, const char *format, ...)
{
        char line[512];
        va_list arguments;
        int n;

        w->answered = false;
        w->answer[0] = 0;
        va_start(arguments, format);
        n = vsnprintf(line, sizeof(line) - 1, format, arguments);
        va_end(arguments);
        n = MIN(n, (int)sizeof(line) - 2);
        line[n++] = '\n';
        if (pairs_worker_runs(w) && send(w->run.input, line, (size_t)n, MSG_NOSIGNAL) != n)
                pairs_worker_end(w); /* it has ended by itself, and the next pair needs another */
        w->answered = !pairs_worker_runs(w);
}

static void hear(void *userdata)
{
        struct pairs_worker *w = userdata;

        (void)snprintf(w->answer, sizeof(w->answer), "%s", w->run.line);
        w->answered = true;
}

static bool waits(const struct pairs_worker *w)
{
        return w && !w->answered && pairs_worker_runs(w);
}

bool pairs_workers_wait(struct pairs_worker *const *workers, unsigned n, double seconds)
{
        const uint64_t until = clock_now_ns() + (uint64_t)(seconds * (double)NSEC_PER_SEC);
        bool all = true;

        for (;;) {
                struct pollfd fds[WORKERS_MAX];
                bool any = false;

                for (unsigned i = 0; i < n; i++) {
                        const bool asked = waits(workers[i]);

                        fds[i] = (struct pollfd){.fd = asked ? workers[i]->run.output : -1,
                                                 .events = POLLIN};
                        any |= asked;
                }
                if (!any)
                        break;
                (void)poll(fds, n, PERIOD_MS);
                for (unsigned i = 0; i < n; i++)
                        if (fds[i].fd >= 0 && fds[i].revents &&
                            !lab_program_read(&workers[i]->run, hear, workers[i]))
                                pairs_worker_end(workers[i]);
                if (clock_now_ns() < until && !lab_interrupted())
                        continue;
                for (unsigned i = 0; i < n; i++)
                        if (waits(workers[i]))
                                pairs_worker_end(workers[i]);
        }
        for (unsigned i = 0; i < n; i++)
                all &= !workers[i] || workers[i]->answer[0];
        return all;
}
