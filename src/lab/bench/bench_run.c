/* bench_run.c: owns one run: its daemon, its programs, and the clock. Must leave no process behind,
 * however the run ends. */
#include "lab/bench/bench_run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/common/cli.h"
#include "lab/demo/demo.h"
#include "client/common/part_paths.h"

#define PERIOD_MS 100

struct program {
        struct lab_program run;
        struct watch *watch;
        struct bench_job *job;
        bool filled;
        uint64_t started_ns, begun_ns;
};

struct watch {
        struct bench_run *run;
        struct lab_daemon daemon;
        struct program programs[BENCH_JOBS_MAX];
        uint64_t begun_ns;
};

/* ---- the daemon ---- */

/* Starts a daemon whose settings are those of an installation that nobody has configured. */
static int start_daemon(struct watch *w)
{
        const struct bench_run *run = w->run;
        char capacity[24], settings[PATH_MAX];
        FILE *file;

        (void)snprintf(settings, sizeof(settings), "%s.conf", w->daemon.dir);
        file = fopen(settings, "we");
        if (!file)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", settings);
        (void)fprintf(file, "[daemon]\nquantum = %s\n", run->quantum ? run->quantum : "auto");
        (void)fclose(file);
        (void)snprintf(capacity, sizeof(capacity), "%lluB",
                       (unsigned long long)run->stage->capacity);
        return lab_daemon_start(&w->daemon, (const char *const[]){"--config", settings,
                                                                  "--capacity", capacity, NULL});
}

static uint64_t figure(const json_t *object, const char *field)
{
        return (uint64_t)json_integer_value(json_object_get(object, field));
}

/* Adds what was moved for a program that is about to end, and how long it waited. */
static void count(struct watch *w, const struct program *p)
{
        json_t *status = NULL, *gpu, *client;
        uint64_t handoffs = 0;
        size_t i, k;

        if (!w->run->shared || lab_daemon_ask(&w->daemon, "status", &status) < 0)
                return;
        json_array_foreach (json_object_get(status, "gpus"), i, gpu) {
                handoffs += figure(gpu, "handoffs");
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        if (figure(client, "pid") != (uint64_t)p->run.pid)
                                continue;
                        w->run->moved_out += figure(client, "moved_out");
                        w->run->moved_in += figure(client, "moved_in");
                        p->job->waiting = json_number_value(json_object_get(client, "waited_s")) /
                                          clock_since_s(p->started_ns);
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
        (void)snprintf(name, sizeof(name), "bench-%u", k + 1);
        (void)setenv("SUBLET_NAME", name, 1);
        (void)setenv("SUBLET_REQUIRE", "1", 1);
        (void)snprintf(priority, sizeof(priority), "%d", job->role->priority);
        (void)setenv("SUBLET_PRIORITY", priority, 1);
        (void)execvp(argv[0], (char *const *)argv);
        _exit(CLI_NO_EXECUTE);
}

static int start(struct watch *w, unsigned k)
{
        const bool torch = w->run->stage->python != NULL;
        struct program *p = &w->programs[k];
        char path[PATH_MAX];
        pid_t pid;

        if (parts_find(torch ? PART_BENCH_TORCH : PART_BENCH_JOB, path) < 0)
                return cli_fail(CLI_FAILED, "the program to measure is missing: no %s", path);
        p->started_ns = p->begun_ns = clock_now_ns();
        w->run->jobs[k].waiting = -1;
        pid = lab_program_fork(&p->run, &w->daemon, w->run->shared, true);
        if (pid == 0)
                become(w, k, path);
        return pid < 0 ? CLI_FAILED : CLI_OK;
}

static void add_delay(struct bench_job *job, double seconds)
{
        double *more = reallocarray(job->delays, job->n_delays + 1, sizeof(*more));

        if (!more)
                return;
        job->delays = more;
        job->delays[job->n_delays++] = seconds;
}

static void hear_line(void *userdata)
{
        struct program *p = userdata;
        struct bench_job *job = p->job;
        const char *line = p->run.line;
        unsigned long long rounds, mismatches;
        double seconds;
        char text[48];
        int result;

        if (strcmp(line, "filled") == 0) {
                p->filled = true;
        } else if (sscanf(line, "phase %lf", &seconds) == 1) {
                add_delay(job, seconds);
        } else if (strncmp(line, "memory", 6) == 0) {
                job->outcome = BENCH_NO_MEMORY;
        } else if (sscanf(line, "done %llu %llu %23s", &rounds, &mismatches, text) == 3) {
                job->outcome = BENCH_COMPLETED;
                job->rounds = rounds;
                job->mismatches = mismatches;
                (void)snprintf(job->digest, sizeof(job->digest), "%.23s", text);
                count(p->watch, p);
                lab_program_close_input(&p->run);
        } else if (sscanf(line, "failed %47s %d", text, &result) == 2) {
                job->outcome = BENCH_BROKEN;
                (void)snprintf(job->trouble, sizeof(job->trouble), "%.40s answered %d", text,
                               result);
        }
}

static void hear_end(struct program *p)
{
        struct bench_job *job = p->job;
        const int status = lab_program_end(&p->run);

        job->took = clock_since_s(p->begun_ns);
        if (status == 0 && job->outcome != BENCH_NOT_RUN)
                return;
        if (job->outcome == BENCH_NOT_RUN || job->outcome == BENCH_COMPLETED)
                job->outcome = BENCH_BROKEN;
        lab_program_trouble(status, job->trouble, sizeof(job->trouble));
}

/* ---- the course of a run ---- */

/* Lets each program begin when it has filled its memory, or all when the last one has. */
static void let_begin(struct watch *w)
{
        const uint64_t now = clock_now_ns();

        for (unsigned k = 0; w->run->meet && k < w->run->n; k++)
                if (lab_program_runs(&w->programs[k].run) && !w->programs[k].filled)
                        return;
        for (unsigned k = 0; k < w->run->n; k++) {
                struct program *p = &w->programs[k];

                if (!lab_program_runs(&p->run) || !p->filled)
                        continue;
                p->filled = false; /* told only once */
                if (w->run->meet)
                        p->begun_ns = w->begun_ns = now;
                (void)send(p->run.input, "go\n", 3, MSG_NOSIGNAL);
        }
}

/* Programs without a number of phases go on until the others have ended. */
static void end_the_endless(struct watch *w)
{
        for (unsigned k = 0; k < w->run->n; k++)
                if (w->run->jobs[k].phases && lab_program_runs(&w->programs[k].run))
                        return;
        for (unsigned k = 0; k < w->run->n; k++)
                if (!w->run->jobs[k].phases)
                        lab_program_close_input(&w->programs[k].run);
}

static void kill_rest(struct watch *w, enum bench_outcome outcome)
{
        for (unsigned k = 0; k < w->run->n; k++) {
                if (!lab_program_runs(&w->programs[k].run))
                        continue;
                (void)kill(w->programs[k].run.pid, SIGKILL);
                w->run->jobs[k].outcome = outcome;
                hear_end(&w->programs[k]);
        }
}

static int follow(struct watch *w)
{
        const uint64_t begun = clock_now_ns();

        for (;;) {
                struct pollfd fds[BENCH_JOBS_MAX];
                bool any = false;

                for (unsigned k = 0; k < w->run->n; k++) {
                        fds[k] = (struct pollfd){.fd = w->programs[k].run.output, .events = POLLIN};
                        any |= fds[k].fd >= 0;
                }
                if (!any)
                        return CLI_OK;
                (void)poll(fds, w->run->n, PERIOD_MS);
                if (lab_interrupted())
                        return CLI_FAILED;
                for (unsigned k = 0; k < w->run->n; k++)
                        if (fds[k].fd >= 0 && fds[k].revents &&
                            !lab_program_read(&w->programs[k].run, hear_line, &w->programs[k]))
                                hear_end(&w->programs[k]);
                let_begin(w);
                end_the_endless(w);
                if (clock_since_s(begun) > w->run->limit)
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
        run->took = clock_since_s(w->begun_ns);
        return r;
}

int bench_run(struct bench_run *run)
{
        struct watch w = {.run = run};
        const char *session = run->stage->session;
        uint64_t in = 0, out = 0, in_after, out_after;
        int r;

        for (unsigned k = 0; k < BENCH_JOBS_MAX; k++)
                w.programs[k] = (struct program){
                        .run = LAB_PROGRAM_NONE, .watch = &w, .job = &run->jobs[k]};
        run->moved_in = run->moved_out = run->handoffs = run->shared ? 0 : BENCH_UNKNOWN;
        r = lab_daemon_prepare(&w.daemon, run->stage->folder, run->stage->simulated);
        if (r == CLI_OK && run->shared)
                r = start_daemon(&w);
        if (r == CLI_OK) {
                /* Fails before the first run: nothing moved. */
                (void)demo_moved(session, &in, &out);
                r = run_programs(&w);
                if (demo_moved(session, &in_after, &out_after) == 0) {
                        run->moved_in = in_after - in;
                        run->moved_out = out_after - out;
                }
        }
        lab_daemon_end(&w.daemon);
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
