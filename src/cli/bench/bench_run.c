/* bench_run.c: owns one run: its daemon, its programs, and the clock. Must leave no process behind,
 * however the run ends. */
#include "cli/bench/bench_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/control.h"
#include "cli/demo/demo.h"
#include "cli/launch.h"
#include "cli/parts.h"

#define PERIOD_MS 100

struct program {
        pid_t pid;
        int input, output; /* -EBADF: closed; the output is open as long as the program runs */
        bool filled;
        uint64_t started_ns, begun_ns;
        char line[160];
        size_t line_used;
};

struct watch {
        struct bench_run *run;
        struct launch launch;
        char dir[PATHS_DIR_MAX]; /* the daemon's directory */
        struct program programs[BENCH_JOBS_MAX];
        uint64_t begun_ns;
};

static double since(uint64_t begun_ns)
{
        return (double)(clock_now_ns() - begun_ns) / (double)NSEC_PER_SEC;
}

/* ---- the daemon ---- */

static void set_environment(const struct launch *l, const char *except)
{
        for (unsigned i = 0; i < l->n_variables; i++)
                if (!except || strcmp(l->variables[i].name, except) != 0)
                        (void)setenv(l->variables[i].name, l->variables[i].value, 1);
}

/* Starts a daemon whose settings are those of an installation that nobody has configured. */
static int start_daemon(const struct watch *w)
{
        const struct bench_run *run = w->run;
        char path[PATH_MAX], capacity[24], settings[PATH_MAX];
        FILE *file;
        int status = 0;
        pid_t pid;

        if (parts_find(PART_DAEMON, path) < 0)
                return cli_fail(CLI_FAILED, "the daemon is missing: no %s", path);
        (void)snprintf(settings, sizeof(settings), "%s.conf", w->dir);
        file = fopen(settings, "we");
        if (!file)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", settings);
        (void)fprintf(file, "[daemon]\nquantum = %s\n", run->quantum ? run->quantum : "auto");
        (void)fclose(file);
        (void)snprintf(capacity, sizeof(capacity), "%llu",
                       (unsigned long long)run->stage->capacity);
        pid = fork();
        if (pid == 0) {
                set_environment(&w->launch, "LD_PRELOAD");
                (void)execl(path, "subletd", "--private", "--dir", w->dir, "--config", settings,
                            "--capacity", capacity, (char *)NULL);
                _exit(CLI_NO_EXECUTE);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
                return cli_fail(CLI_FAILED, "subletd did not start in %s", w->dir);
        return CLI_OK;
}

static int ask(const struct watch *w, const char *order, json_t **ret_answer)
{
        json_t *words = json_pack("{ss}", "order", order);
        int r = ask_daemon(w->dir, PATHS_PRIVATE, words, ret_answer);

        json_decref(words);
        return r;
}

static void stop_daemon(const struct watch *w)
{
        json_t *answer = NULL;

        if (ask(w, "stop", &answer) == 0)
                json_decref(answer);
}

static uint64_t figure(const json_t *object, const char *field)
{
        return (uint64_t)json_integer_value(json_object_get(object, field));
}

/* Adds what was moved for a program that is about to end, and how long it waited. */
static void count(struct watch *w, unsigned number)
{
        const struct program *p = &w->programs[number];
        json_t *status = NULL, *gpu, *client;
        uint64_t handoffs = 0;
        size_t i, k;

        if (!w->run->shared || ask(w, "status", &status) < 0)
                return;
        json_array_foreach (json_object_get(status, "gpus"), i, gpu) {
                handoffs += figure(gpu, "handoffs");
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        if (figure(client, "pid") != (uint64_t)p->pid)
                                continue;
                        w->run->jobs[number].waiting =
                                json_number_value(json_object_get(client, "waited_s")) /
                                since(p->started_ns);
                        w->run->moved_out += figure(client, "moved_out");
                        w->run->moved_in += figure(client, "moved_in");
                }
        }
        w->run->handoffs = handoffs;
        json_decref(status);
}

/* ---- the programs ---- */

static void become(const struct watch *w, unsigned k, const char *path)
{
        const struct bench_job *job = &w->run->jobs[k];
        const char *python = w->run->stage->python;
        char words[7][32], name[32], priority[16];
        const char *argv[12];
        int n = 0;

        (void)snprintf(words[0], sizeof(words[0]), "%llu", (unsigned long long)job->bytes);
        (void)snprintf(words[1], sizeof(words[1]), "%llu", (unsigned long long)job->seed);
        (void)snprintf(words[2], sizeof(words[2]), "%.6f", job->cpu);
        (void)snprintf(words[3], sizeof(words[3]), "%.6f", job->pause);
        (void)snprintf(words[4], sizeof(words[4]), "%.6f", job->seconds);
        (void)snprintf(words[5], sizeof(words[5]), "%llu", (unsigned long long)job->rounds);
        (void)snprintf(words[6], sizeof(words[6]), "%u", job->phases);
        if (python)
                argv[n++] = python;
        argv[n++] = path;
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                argv[n++] = words[i];
        if (job->managed)
                argv[n++] = "managed";
        else if (python && job->role->server)
                argv[n++] = "decoder";
        argv[n] = NULL;
        set_environment(&w->launch, NULL);
        (void)snprintf(name, sizeof(name), "bench-%u", k + 1);
        (void)setenv("SUBLET_NAME", name, 1);
        (void)setenv("SUBLET_QUIET", "1", 1);
        (void)setenv("SUBLET_REQUIRE", "1", 1);
        (void)snprintf(priority, sizeof(priority), "%d", job->role->priority);
        (void)setenv("SUBLET_PRIORITY", priority, 1);
        if (!w->run->shared)
                (void)unsetenv("LD_PRELOAD");
        (void)execvp(argv[0], (char *const *)argv);
        _exit(CLI_NO_EXECUTE);
}

static int start(struct watch *w, unsigned k)
{
        const bool torch = w->run->stage->python != NULL;
        struct program *p = &w->programs[k];
        char path[PATH_MAX];
        int in[2] = {-EBADF, -EBADF}, out[2];

        if (parts_find(torch ? PART_BENCH_TORCH : PART_BENCH_JOB, path) < 0)
                return cli_fail(CLI_FAILED, "the program to measure is missing: no %s", path);
        /* A socket, not a pipe: writing to one whose program is gone must not raise SIGPIPE. */
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0 ||
            pipe2(out, O_CLOEXEC) < 0) {
                cleanup_close(&in[0]);
                cleanup_close(&in[1]);
                return cli_fail(CLI_FAILED, "no pipe: %m");
        }
        p->started_ns = p->begun_ns = clock_now_ns();
        w->run->jobs[k].waiting = -1;
        p->pid = fork();
        if (p->pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)dup2(in[0], STDIN_FILENO);
                (void)dup2(out[1], STDOUT_FILENO);
                become(w, k, path);
        }
        (void)close(in[0]);
        (void)close(out[1]);
        p->input = in[1];
        p->output = out[0];
        if (p->pid < 0) {
                cleanup_close(&p->input);
                cleanup_close(&p->output);
                p->input = p->output = -EBADF;
                return cli_fail(CLI_FAILED, "cannot start a program: %m");
        }
        return CLI_OK;
}

static void close_input(struct program *p)
{
        cleanup_close(&p->input);
        p->input = -EBADF;
}

static void add_delay(struct bench_job *job, double seconds)
{
        double *more = reallocarray(job->delays, job->n_delays + 1, sizeof(*more));

        if (!more)
                return;
        job->delays = more;
        job->delays[job->n_delays++] = seconds;
}

static void hear_line(struct watch *w, unsigned k)
{
        struct bench_job *job = &w->run->jobs[k];
        struct program *p = &w->programs[k];
        unsigned long long rounds, mismatches;
        double seconds;
        char text[48];
        int result;

        if (strcmp(p->line, "filled") == 0) {
                p->filled = true;
        } else if (sscanf(p->line, "phase %lf", &seconds) == 1) {
                add_delay(job, seconds);
        } else if (strncmp(p->line, "memory", 6) == 0) {
                job->outcome = BENCH_NO_MEMORY;
        } else if (sscanf(p->line, "done %llu %llu %23s", &rounds, &mismatches, text) == 3) {
                job->outcome = BENCH_COMPLETED;
                job->rounds = rounds;
                job->mismatches = mismatches;
                (void)snprintf(job->digest, sizeof(job->digest), "%.23s", text);
                count(w, k);
                close_input(p);
        } else if (sscanf(p->line, "failed %47s %d", text, &result) == 2) {
                job->outcome = BENCH_BROKEN;
                (void)snprintf(job->trouble, sizeof(job->trouble), "%.40s answered %d", text,
                               result);
        }
}

static void hear_end(struct watch *w, unsigned k)
{
        struct bench_job *job = &w->run->jobs[k];
        struct program *p = &w->programs[k];
        int status = 0;

        (void)close(p->output);
        p->output = -EBADF;
        close_input(p);
        (void)waitpid(p->pid, &status, 0);
        job->took = since(p->begun_ns);
        if (status == 0 && job->outcome != BENCH_NOT_RUN)
                return;
        if (job->outcome == BENCH_NOT_RUN || job->outcome == BENCH_COMPLETED)
                job->outcome = BENCH_BROKEN;
        if (job->trouble[0])
                return;
        if (WIFSIGNALED(status))
                (void)snprintf(job->trouble, sizeof(job->trouble), "killed by signal %d",
                               WTERMSIG(status));
        else
                (void)snprintf(job->trouble, sizeof(job->trouble), "ended with status %d",
                               WEXITSTATUS(status));
}

static void hear(struct watch *w, unsigned k)
{
        struct program *p = &w->programs[k];
        char text[512];
        ssize_t n = read(p->output, text, sizeof(text));

        if (n < 0 && errno == EINTR)
                return;
        if (n <= 0) {
                hear_end(w, k);
                return;
        }
        for (ssize_t i = 0; i < n; i++) {
                if (text[i] == '\n') {
                        p->line[p->line_used] = 0;
                        p->line_used = 0;
                        hear_line(w, k);
                } else if (p->line_used + 1 < sizeof(p->line)) {
                        p->line[p->line_used++] = text[i];
                }
        }
}

/* ---- the course of a run ---- */

static bool running(const struct program *p)
{
        return p->output >= 0;
}

/* Lets the programs begin: each as soon as it is there, or all at the same moment. */
static void let_begin(struct watch *w)
{
        const uint64_t now = clock_now_ns();

        for (unsigned k = 0; w->run->meet && k < w->run->n; k++)
                if (running(&w->programs[k]) && !w->programs[k].filled)
                        return;
        for (unsigned k = 0; k < w->run->n; k++) {
                struct program *p = &w->programs[k];

                if (!running(p) || !p->filled)
                        continue;
                p->filled = false; /* told only once */
                if (w->run->meet)
                        p->begun_ns = w->begun_ns = now;
                (void)send(p->input, "go\n", 3, MSG_NOSIGNAL);
        }
}

/* Programs without a number of phases go on until the others have ended. */
static void end_the_endless(struct watch *w)
{
        for (unsigned k = 0; k < w->run->n; k++)
                if (w->run->jobs[k].phases && running(&w->programs[k]))
                        return;
        for (unsigned k = 0; k < w->run->n; k++)
                if (!w->run->jobs[k].phases)
                        close_input(&w->programs[k]);
}

static void kill_rest(struct watch *w, enum bench_outcome outcome)
{
        for (unsigned k = 0; k < w->run->n; k++) {
                if (!running(&w->programs[k]))
                        continue;
                (void)kill(w->programs[k].pid, SIGKILL);
                w->run->jobs[k].outcome = outcome;
                hear_end(w, k);
        }
}

static int follow(struct watch *w)
{
        const uint64_t begun = clock_now_ns();

        for (;;) {
                struct pollfd fds[BENCH_JOBS_MAX];
                bool any = false;

                for (unsigned k = 0; k < w->run->n; k++) {
                        fds[k] = (struct pollfd){
                                .fd = running(&w->programs[k]) ? w->programs[k].output : -1,
                                .events = POLLIN};
                        any |= fds[k].fd >= 0;
                }
                if (!any)
                        return CLI_OK;
                (void)poll(fds, w->run->n, PERIOD_MS);
                if (demo_interrupted())
                        return CLI_FAILED;
                for (unsigned k = 0; k < w->run->n; k++)
                        if (fds[k].fd >= 0 && fds[k].revents)
                                hear(w, k);
                let_begin(w);
                end_the_endless(w);
                if (since(begun) > w->run->limit)
                        kill_rest(w, BENCH_TOO_LONG);
        }
}

static int run_programs(struct watch *w)
{
        struct bench_run *run = w->run;
        int r = CLI_OK;

        w->begun_ns = clock_now_ns();
        for (unsigned k = 0; r == CLI_OK && k < run->n; k++) {
                r = start(w, k);
                if (r == CLI_OK && run->serial)
                        r = follow(w);
                /* Equal programs do equal work: the first has measured how much fits the time. */
                if (run->serial && k + 1 < run->n)
                        run->jobs[k + 1].rounds = run->jobs[k].rounds;
        }
        if (r == CLI_OK)
                r = follow(w);
        kill_rest(w, BENCH_BROKEN);
        run->took = since(w->begun_ns);
        return r;
}

static int prepare(struct watch *w)
{
        /* Each daemon has a directory of its own, because the last one may still be ending. */
        static unsigned number;
        int r;

        (void)snprintf(w->dir, sizeof(w->dir), "%.80s/%u", w->run->stage->folder, ++number);
        if (paths_make_private(w->dir, getuid()) < 0)
                return cli_fail(CLI_FAILED, "cannot use %s", w->dir);
        w->launch.daemon = w->dir;
        w->launch.simulated = w->run->stage->simulated;
        r = launch_complete(&w->launch);
        return r == CLI_OK && w->run->shared ? start_daemon(w) : r;
}

/* The simulated driver counts all bytes that cross the bus; a GPU's driver does not tell. */
static int driver_count(const struct bench_run *run, uint64_t *ret_in, uint64_t *ret_out)
{
        struct demo_stage card = {.simulated = run->stage->simulated};

        (void)snprintf(card.session, sizeof(card.session), "%.31s", run->stage->session);
        return demo_moved(&card, ret_in, ret_out);
}

int bench_run(struct bench_run *run)
{
        struct watch w = {.run = run};
        uint64_t in = 0, out = 0, in_after, out_after;
        int r;

        for (unsigned k = 0; k < BENCH_JOBS_MAX; k++)
                w.programs[k] = (struct program){.input = -EBADF, .output = -EBADF};
        run->moved_in = run->moved_out = run->handoffs = run->shared ? 0 : BENCH_UNKNOWN;
        r = prepare(&w);
        if (r == CLI_OK) {
                (void)driver_count(run, &in, &out); /* fails before the first run: nothing moved */
                r = run_programs(&w);
                if (driver_count(run, &in_after, &out_after) == 0) {
                        run->moved_in = in_after - in;
                        run->moved_out = out_after - out;
                }
        }
        if (run->shared)
                stop_daemon(&w);
        launch_clear(&w.launch);
        return r;
}

void bench_run_clear(struct bench_run *run)
{
        for (unsigned k = 0; k < BENCH_JOBS_MAX; k++) {
                free(run->jobs[k].delays);
                run->jobs[k].delays = NULL;
                run->jobs[k].n_delays = 0;
        }
}
