/* demo_run.c: owns one row of the demo: its two programs, its daemon, and the watch over both. Must
 * leave no process behind, however the row ends. */
#include "lab/demo/demo.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "client/common/cli.h"
#include "client/common/part_paths.h"

#define PERIOD_MS  100
#define COUNT_MS   500 /* time between looks at the simulated card: each look starts a process */
#define PATIENCE_S 180 /* time after which a row has failed */
#define FIRST_KEY  0x5eedu

struct watch {
        const struct demo_stage *stage;
        const struct demo_row *row;
        struct demo_result *result;
        struct demo_screen screen;
        struct lab_daemon daemon;
        uint64_t begun_ns, asked_ns, counted_ns;
        uint64_t in_before, out_before; /* the driver's counters when the row began */
        pid_t killed_worker;
        uint64_t handoffs_before,
                handoffs_seen; /* hand-offs counted by earlier workers, and by the present one */
};

/* ---- the daemon ---- */

/* Returns the pid of the daemon's worker, the only child of the supervisor, whose pid is in the
 * lock file. 0: not found. */
static pid_t find_worker(const struct watch *w)
{
        _cleanup_fclose_ FILE *lock = NULL, *children = NULL;
        char path[PATH_MAX];
        int supervisor, worker;

        (void)snprintf(path, sizeof(path), "%s/lock", w->daemon.dir);
        lock = fopen(path, "re");
        if (!lock || fscanf(lock, "%d", &supervisor) != 1)
                return 0;
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", supervisor, supervisor);
        children = fopen(path, "re");
        return children && fscanf(children, "%d", &worker) == 1 ? worker : 0;
}

/* ---- the programs ---- */

static int start_job(struct watch *w, unsigned k)
{
        struct demo_job *job = &w->result->jobs[k];
        char path[PATH_MAX], bytes[24], key[24], phases[24], seconds[24], rounds[24],
                name[2] = {(char)('A' + k)};
        char *argv[] = {(char *)"sublet-demo-job", bytes, key, phases, seconds, rounds, NULL};
        pid_t pid;

        if (parts_find(PART_DEMO_JOB, path) < 0)
                return cli_fail(CLI_FAILED, "the demo's program is missing: no %s", path);
        (void)snprintf(bytes, sizeof(bytes), "%lluB", (unsigned long long)w->stage->job_bytes);
        (void)snprintf(key, sizeof(key), "%u", FIRST_KEY + k);
        (void)snprintf(phases, sizeof(phases), "%u", w->stage->phases);
        (void)snprintf(seconds, sizeof(seconds), "%.1f", w->stage->seconds);
        (void)snprintf(rounds, sizeof(rounds), "%llu",
                       (unsigned long long)(job->rounds / w->stage->phases));
        pid = lab_program_fork(&job->program, &w->daemon, w->row->shared, false);
        if (pid == 0) {
                (void)setenv("SUBLET_NAME", name, 1);
                (void)execv(path, argv);
                _exit(CLI_NO_EXECUTE);
        }
        return pid < 0 ? CLI_FAILED : CLI_OK;
}

static void hear_line(void *userdata)
{
        struct demo_job *job = userdata;
        const char *line = job->program.line;
        unsigned long long a, b;
        char word[24];
        int result;

        if (sscanf(line, "allocated %llu", &a) == 1) {
                job->allocated = a;
        } else if (strcmp(line, "pause") == 0 || strcmp(line, "compute") == 0) {
                job->pauses = line[0] == 'p';
        } else if (sscanf(line, "round %llu", &a) == 1) {
                job->round = a;
        } else if (sscanf(line, "memory %llu", &a) == 1) {
                job->outcome = DEMO_NO_MEMORY;
                job->allocated = a;
        } else if (sscanf(line, "done %llu %llu %23s", &a, &b, word) == 3) {
                job->outcome = DEMO_COMPLETED;
                job->rounds = job->round = a;
                job->mismatches = b;
                (void)strcpy(job->digest, word);
        } else if (sscanf(line, "failed %23s %d", word, &result) == 2) {
                job->outcome = DEMO_FAILED;
                (void)snprintf(job->trouble, sizeof(job->trouble), "%s answered %d", word, result);
        }
}

static void hear_end(struct demo_job *job)
{
        const int status = lab_program_end(&job->program);

        if (job->outcome != DEMO_RUNNING && status == 0)
                return;
        job->outcome = DEMO_FAILED;
        lab_program_trouble(status, job->trouble, sizeof(job->trouble));
}

/* ---- the watch ---- */

static uint64_t figure(const json_t *client, const char *field)
{
        const json_t *value = json_object_get(client, field);

        return json_is_integer(value) ? (uint64_t)json_integer_value(value) : DEMO_UNKNOWN;
}

static void hear_status(struct watch *w, const json_t *status)
{
        const json_t *gpu = json_array_get(json_object_get(status, "gpus"), 0), *client;
        uint64_t handoffs = figure(gpu, "handoffs");
        size_t i;

        /* The count of a restarted daemon begins at zero. */
        if (handoffs != DEMO_UNKNOWN) {
                if (handoffs < w->handoffs_seen)
                        w->handoffs_before += w->handoffs_seen;
                w->handoffs_seen = handoffs;
                w->result->handoffs = w->handoffs_before + handoffs;
        }
        json_array_foreach (json_object_get(gpu, "clients"), i, client) {
                for (unsigned k = 0; k < DEMO_JOBS; k++) {
                        struct demo_job *job = &w->result->jobs[k];
                        const char *state = json_string_value(json_object_get(client, "state"));

                        if (figure(client, "pid") != (uint64_t)job->program.pid)
                                continue;
                        (void)snprintf(job->state, sizeof(job->state), "%s", state ? state : "");
                        job->backed = figure(client, "backed");
                        job->evicted = figure(client, "evicted");
                        job->moved_out = figure(client, "moved_out");
                        job->moved_in = figure(client, "moved_in");
                }
        }
}

/* Kills the daemon's worker once, when half of all rounds are done. */
static void kill_daemon_halfway(struct watch *w)
{
        const struct demo_job *jobs = w->result->jobs;

        if (!w->row->kill_daemon || w->killed_worker ||
            jobs[0].round + jobs[1].round < jobs[0].rounds)
                return;
        w->killed_worker = find_worker(w);
        if (w->killed_worker)
                (void)kill(w->killed_worker, SIGKILL);
}

/* Reads how much the driver has copied for this row so far. */
static void count_moved(struct watch *w)
{
        uint64_t in, out;

        w->counted_ns = clock_now_ns();
        if (demo_moved(w->stage->session, &in, &out) < 0)
                return;
        w->result->to_card = in - w->in_before;
        w->result->to_host = out - w->out_before;
}

static void look(struct watch *w)
{
        json_t *status = NULL;

        if (w->row->shared && lab_daemon_ask(&w->daemon, "status", &status) == 0) {
                hear_status(w, status);
                if (w->killed_worker && find_worker(w) != w->killed_worker)
                        w->result->daemon_killed = 1;
                json_decref(status);
        }
        kill_daemon_halfway(w);
        if (clock_now_ns() - w->counted_ns > COUNT_MS * NSEC_PER_MSEC)
                count_moved(w);
        demo_screen_draw(&w->screen, w->stage, w->row, w->result, demo_nvml_used(w->stage->nvml),
                         clock_since_s(w->begun_ns));
}

static int all_ended(const struct demo_job *jobs)
{
        return !lab_program_runs(&jobs[0].program) && !lab_program_runs(&jobs[1].program);
}

static int first_has_memory(const struct demo_job *jobs)
{
        return !lab_program_runs(&jobs[0].program) || jobs[0].allocated;
}

static int follow(struct watch *w, int (*until)(const struct demo_job *jobs))
{
        struct demo_job *jobs = w->result->jobs;

        while (!until(jobs)) {
                struct pollfd fds[DEMO_JOBS] = {{.fd = jobs[0].program.output, .events = POLLIN},
                                                {.fd = jobs[1].program.output, .events = POLLIN}};
                uint64_t now;

                (void)poll(fds, DEMO_JOBS, PERIOD_MS);
                if (lab_interrupted())
                        return CLI_FAILED;
                for (unsigned k = 0; k < DEMO_JOBS; k++)
                        if (fds[k].fd >= 0 && fds[k].revents &&
                            !lab_program_read(&jobs[k].program, hear_line, &jobs[k]))
                                hear_end(&jobs[k]);
                now = clock_now_ns();
                if (now - w->asked_ns < PERIOD_MS * NSEC_PER_MSEC)
                        continue;
                w->asked_ns = now;
                look(w);
                if (clock_since_s(w->begun_ns) > PATIENCE_S)
                        return cli_fail(CLI_FAILED, "the programs did not end within %d s",
                                        PATIENCE_S);
        }
        return CLI_OK;
}

static int run_jobs(struct watch *w)
{
        struct demo_job *jobs = w->result->jobs;
        int r;

        w->begun_ns = clock_now_ns();
        r = start_job(w, 0);
        /* Start the second program when the first has its memory: otherwise chance decides which
         * one runs out of memory. */
        if (r == CLI_OK)
                r = follow(w, w->row->one_after_the_other ? all_ended : first_has_memory);
        /* The first program has measured how many rounds fit the time. */
        if (w->row->one_after_the_other)
                jobs[1].rounds = jobs[0].rounds;
        if (r == CLI_OK)
                r = start_job(w, 1);
        if (r == CLI_OK)
                r = follow(w, all_ended);
        w->result->seconds = clock_since_s(w->begun_ns);
        if (r == CLI_OK) {
                w->counted_ns = 0;
                look(w); /* the last picture shows how the programs ended */
        }
        return r;
}

static void end_jobs(struct demo_result *result)
{
        for (unsigned k = 0; k < DEMO_JOBS; k++) {
                if (!lab_program_runs(&result->jobs[k].program))
                        continue;
                (void)kill(result->jobs[k].program.pid, SIGKILL);
                hear_end(&result->jobs[k]);
        }
}

static void count_by_clients(struct demo_result *result)
{
        uint64_t in = 0, out = 0;

        for (unsigned k = 0; k < DEMO_JOBS; k++) {
                if (result->jobs[k].moved_in == DEMO_UNKNOWN)
                        return;
                in += result->jobs[k].moved_in;
                out += result->jobs[k].moved_out;
        }
        result->to_card = in;
        result->to_host = out;
        result->counted_by_clients = 1;
}

int demo_run(const struct demo_stage *stage, const struct demo_row *row, struct demo_result *ret)
{
        struct watch w = {.stage = stage, .row = row, .result = ret};
        int r;

        *ret = (struct demo_result){.to_card = DEMO_UNKNOWN, .to_host = DEMO_UNKNOWN};
        for (unsigned k = 0; k < DEMO_JOBS; k++)
                ret->jobs[k] = (struct demo_job){.program = LAB_PROGRAM_NONE,
                                                 .rounds = row->rounds * stage->phases,
                                                 .backed = DEMO_UNKNOWN,
                                                 .evicted = DEMO_UNKNOWN,
                                                 .moved_in = DEMO_UNKNOWN,
                                                 .moved_out = DEMO_UNKNOWN};
        r = lab_daemon_prepare(&w.daemon, stage->folder, stage->simulated);
        if (r == CLI_OK && row->shared)
                r = lab_daemon_start(&w.daemon, (const char *const[]){NULL});
        if (r == CLI_OK) {
                /* If no program has used the card yet, there are no counters, and nothing was
                 * copied. */
                if (demo_moved(stage->session, &w.in_before, &w.out_before) < 0)
                        w.in_before = w.out_before = 0;
                demo_screen_begin(&w.screen, row);
                r = run_jobs(&w);
                demo_screen_end(&w.screen, ret);
                if (ret->to_card == DEMO_UNKNOWN && row->shared)
                        count_by_clients(ret);
        }
        end_jobs(ret);
        lab_daemon_end(&w.daemon);
        return r;
}
