/* pairs_run.c: owns the course of a run: its daemon, its MPS, its workers and the clock. Must leave
 * no process behind, and let no job that fails stop the others. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "cli/measure/report.h"
#include "cli/pairs/pairs.h"
#include "cli/pairs/pairs_worker.h"
#include "mps/mps.h"

#define QUANTUM         "50ms"
#define LEAD_NS         (70 * NSEC_PER_MSEC)  /* the workers warm up for 50 ms of it … */
#define MODEL_LEAD_NS   (270 * NSEC_PER_MSEC) /* … and models for 250 ms */
#define ALONE_WINDOWS   3 /* of a model; a kernel's rates repeat, and one window does */
#define MODEL_ALONE     2 /* windows of models are so many times as long … */
#define MODEL_PAIR      4
#define MODEL_OLD_NS    (60 * NSEC_PER_SEC) /* a rate alone is measured again if it is older … */
#define KERNEL_OLD_NS   (300 * NSEC_PER_SEC)
#define AGAIN_PART      0.12 /* … as long as that takes at most this part of the pairs' time */
#define TURNS_PAIR      3.2  /* … and those of turns: there have to be several turns in them */
#define CARD_S          0.45 /* the least time for which NVML watches */
#define READY_S         120  /* a worker may take so long to start … */
#define JOB_S           180  /* … to prepare a job … */
#define ANSWER_S        30   /* … and beyond the time that it was asked to run */
#define STARTS_MAX      20
#define FAILURES_MAX    4 /* of a job; then it is left out */
#define REPORT_NS       (60 * NSEC_PER_SEC)
#define BUDGET_PART     0.14 /* of the GPU's memory for the models of a worker … */
#define BUDGET_MEASURED 0.08 /* … and of one that is measured */
#define KERNELS_MAX     500 /* that a measured worker has shown; then another one takes its place */

enum kind { KIND_KERNELS, KIND_MODELS, KINDS };
/* PLACE_MEASURED has one worker of a kind, in which the library measures; it costs a little. */
enum place { PLACE_SUBLET, PLACE_MPS, PLACE_MEASURED, PLACES };

struct running {
        const struct pairs_setting *setting;
        struct pairs_job *jobs;
        size_t n_jobs;
        struct pairs_results *results;
        struct job_daemon daemon;
        struct mps_options mps;
        pid_t mps_pid;
        char mps_dir[MPS_DIR_MAX], measure_dir[PATHS_DIR_MAX + 16], gpu[48],
                log[PATHS_DIR_MAX + 16], file[PATHS_DIR_MAX + 16];
        struct pairs_worker workers[KINDS][PLACES][2];
        bool ways[PAIRS_WAYS_COUNT], kinds[KINDS];
        struct pairs_data data;
        struct job card_job; /* what is true of all jobs: the card */
        struct card *card;
        const char *mode; /* of the daemon */
        uint64_t begun_ns, told_ns;
        /* How the time of the pairs was spent. */
        struct {
                double preparing, again, warming, windows;
        } spent;
        size_t measured, failed;
};

/* ---- time ---- */

static double since(uint64_t begun_ns)
{
        return (double)(clock_now_ns() - begun_ns) / (double)NSEC_PER_SEC;
}

static bool is_over(const struct running *r)
{
        return job_interrupted() ||
               (r->setting->limit > 0 && since(r->begun_ns) >= r->setting->limit);
}

static void sleep_until(uint64_t at_ns)
{
        const struct timespec t = {.tv_sec = (time_t)(at_ns / NSEC_PER_SEC),
                                   .tv_nsec = (long)(at_ns % NSEC_PER_SEC)};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR &&
               !job_interrupted())
                ;
}

/* ---- the daemon, and MPS ---- */

static int start_daemon(struct running *r)
{
        char settings[PATHS_DIR_MAX + 16];
        FILE *file;
        int result;

        result = job_daemon_prepare(&r->daemon, r->setting->folder, r->setting->simulator != NULL);
        if (result != CLI_OK)
                return result;
        (void)snprintf(settings, sizeof(settings), "%s.conf", r->daemon.dir);
        file = fopen(settings, "we");
        if (!file)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", settings);
        (void)fprintf(file, "[daemon]\nquantum = " QUANTUM "\n");
        (void)fclose(file);
        r->mode = "auto";
        return job_daemon_start(&r->daemon, (const char *const[]){"--config", settings, NULL});
}

/* True: the daemon is in the mode that this way needs. */
static bool set_mode(struct running *r, enum pairs_way way)
{
        const char *mode = way == PAIRS_TURNS ? "exclusive" : "auto";
        json_t *answer = NULL;
        int result;

        if (strcmp(mode, r->mode) == 0)
                return true;
        result = job_daemon_set(&r->daemon, "mode", mode, &answer);
        if (result == 0)
                r->mode = mode;
        json_decref(answer);
        return result == 0;
}

/* How often the GPU went from one program to another, by turns. */
static json_int_t count_handoffs(const struct running *r)
{
        json_t *status = NULL, *gpu;
        json_int_t handoffs = 0;
        size_t i;

        if (job_daemon_ask(&r->daemon, "status", &status) < 0)
                return 0;
        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                handoffs += json_integer_value(json_object_get(gpu, "handoffs"));
        json_decref(status);
        return handoffs;
}

static void start_mps(struct running *r)
{
        int result;

        if (!r->ways[PAIRS_SHARED])
                return;
        (void)snprintf(r->mps_dir, sizeof(r->mps_dir), "%.70s/mps", r->setting->folder);
        r->mps = (struct mps_options){
                .dir = r->mps_dir, .gpu = r->gpu, .uid = getuid(), .gid = getgid()};
        result = mps_start(&r->mps, &r->mps_pid);
        if (result == 0)
                return;
        r->ways[PAIRS_SHARED] = false;
        (void)cli_fail(0, "MPS does not start (%s): no pairs are measured under shared",
                       result == -ENOENT ? "there is no " MPS_CONTROL : strerror(-result));
}

/* ---- the workers ---- */

static struct pairs_worker *worker(struct running *r, const struct pairs_job *job, enum place place,
                                   unsigned which)
{
        return &r->workers[job->torch ? KIND_MODELS : KIND_KERNELS][place][which];
}

static unsigned workers_at(enum place place)
{
        return place == PLACE_MEASURED ? 1 : 2;
}

static bool has_place(const struct running *r, enum place place)
{
        return place == PLACE_MPS ? r->ways[PAIRS_SHARED] : true;
}

/* Starts those that do not run, and waits until all are ready, those that were started before,
 * too. */
static bool make_ready(struct pairs_worker *const *workers, unsigned n)
{
        struct pairs_worker *fresh[KINDS * PLACES * 2] = {0};
        unsigned n_fresh = 0;
        bool all = true;

        for (unsigned i = 0; i < n; i++) {
                struct pairs_worker *w = workers[i];

                if (pairs_worker_runs(w) && w->answered)
                        continue;
                if (pairs_worker_runs(w))
                        fresh[n_fresh++] = w;
                else if (w->starts >= STARTS_MAX || pairs_worker_start(w) < 0)
                        all = false;
                else
                        fresh[n_fresh++] = w;
        }
        (void)pairs_workers_wait(fresh, n_fresh, READY_S);
        for (unsigned i = 0; i < n_fresh; i++)
                if (strcmp(fresh[i]->answer, "ready") != 0) {
                        pairs_worker_end(fresh[i]);
                        all = false;
                }
        return all;
}

static void set_up_worker(struct running *r, enum kind kind, enum place place, unsigned which)
{
        static const char *const kinds[] = {"kernels", "models"};
        static const char *const places[] = {"sublet", "mps", "measured"};
        struct pairs_worker *w = &r->workers[kind][place][which];

        *w = PAIRS_WORKER_NONE;
        w->daemon = &r->daemon;
        w->preload = place != PLACE_MPS;
        w->mps_dir = place == PLACE_MPS ? r->mps_dir : NULL;
        w->gpu = place == PLACE_MPS ? r->gpu : NULL;
        w->python = kind == KIND_MODELS ? r->setting->python : NULL;
        w->log = r->log;
        w->measure_dir = place == PLACE_MEASURED ? r->measure_dir : NULL;
        w->budget = (uint64_t)(r->card_job.measured.memory_bytes *
                               (place == PLACE_MEASURED ? BUDGET_MEASURED : BUDGET_PART));
        (void)snprintf(w->name, sizeof(w->name), "pairs-%s-%s-%u", kinds[kind], places[place],
                       which + 1);
}

/* Lists all workers of a place. */
static unsigned workers_of(struct running *r, enum place place, struct pairs_worker **ret)
{
        unsigned n = 0;

        for (unsigned kind = 0; kind < KINDS; kind++)
                for (unsigned which = 0; r->kinds[kind] && which < workers_at(place); which++)
                        ret[n++] = &r->workers[kind][place][which];
        return n;
}

/* Says what the worker last wrote to stderr. */
static void show_log(const struct running *r)
{
        FILE *file = fopen(r->log, "re");
        char line[256];
        unsigned n = 0;

        while (file && n++ < 20 && fgets(line, sizeof(line), file))
                (void)fputs(line, stderr);
        if (file)
                (void)fclose(file);
}

/* Asks the first worker which card this is. It also tells whether anything runs here at all. */
static int ask_card(struct running *r)
{
        struct pairs_worker *w = &r->workers[KIND_KERNELS][PLACE_SUBLET][0];
        struct card_figures figures = {0};
        uint8_t uuid[16];
        size_t n;

        if (!make_ready(&w, 1)) {
                if (job_interrupted())
                        return CLI_FAILED;
                show_log(r);
                return cli_fail(CLI_FAILED, "a program alone does not run here: %s", w->answer);
        }
        pairs_worker_order(w, "card %s", r->file);
        if (!pairs_workers_wait(&w, 1, ANSWER_S) ||
            pairs_card_read(r->file, &r->card_job, uuid) < 0)
                return cli_fail(CLI_FAILED, "the card is not known: %s", w->answer);
        n = (size_t)snprintf(r->gpu, sizeof(r->gpu), "GPU-");
        for (unsigned i = 0; i < 16; i++)
                n += (size_t)snprintf(r->gpu + n, sizeof(r->gpu) - n, "%s%02x",
                                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
        r->card = card_open(r->setting->simulator);
        if (!r->card || !card_choose(r->card, uuid))
                (void)cli_fail(0, "NVML does not know this GPU: the jobs go without its figures");
        if (r->card)
                card_figures(r->card, &figures);
        (void)snprintf(r->card_job.measured.driver, sizeof(r->card_job.measured.driver), "%s",
                       figures.driver);
        r->card_job.measured.bus_gb_s = r->card ? figures.bus_gb_s : NAN;
        return CLI_OK;
}

static bool all_run(struct pairs_worker *const *workers, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                if (!pairs_worker_runs(workers[i]))
                        return false;
        return true;
}

/* Starts all workers. A place or kind whose workers do not start is left out. */
static int start(struct running *r)
{
        struct pairs_worker *workers[KINDS * PLACES * 2];
        unsigned n, n_mps;
        int result = start_daemon(r);

        if (result != CLI_OK)
                return result;
        set_up_worker(r, KIND_KERNELS, PLACE_SUBLET, 0);
        result = ask_card(r);
        if (result != CLI_OK)
                return result;
        start_mps(r);
        for (unsigned kind = 0; kind < KINDS; kind++)
                for (unsigned place = 0; place < PLACES; place++)
                        for (unsigned which = 0; which < 2; which++)
                                if (kind || place || which)
                                        set_up_worker(r, kind, place, which);
        n_mps = r->ways[PAIRS_SHARED] ? workers_of(r, PLACE_MPS, workers) : 0;
        n = n_mps + workers_of(r, PLACE_SUBLET, workers + n_mps);
        n += workers_of(r, PLACE_MEASURED, workers + n);
        /* The first program under MPS starts the server, for which others could come too early. */
        if (n_mps > 0)
                (void)make_ready(workers, 1);
        (void)make_ready(workers, n);
        if (r->kinds[KIND_MODELS] && !job_interrupted() &&
            !pairs_worker_runs(&r->workers[KIND_MODELS][PLACE_SUBLET][0])) {
                (void)cli_fail(0, "models are left out: %s",
                               r->workers[KIND_MODELS][PLACE_SUBLET][0].answer);
                show_log(r);
                r->kinds[KIND_MODELS] = false;
        } else if (n_mps > 0 && !job_interrupted() && !all_run(workers, n_mps)) {
                (void)cli_fail(0,
                               "programs do not start under MPS (%s): no pairs are measured "
                               "under shared",
                               workers[0]->answer);
                show_log(r);
                for (unsigned i = 0; i < n_mps; i++)
                        pairs_worker_end(workers[i]);
                r->ways[PAIRS_SHARED] = false;
        }
        return job_interrupted() ? CLI_FAILED : CLI_OK;
}

static void end_all(struct running *r)
{
        for (unsigned kind = 0; kind < KINDS; kind++)
                for (unsigned place = 0; place < PLACES; place++)
                        for (unsigned which = 0; which < 2; which++)
                                pairs_worker_end(&r->workers[kind][place][which]);
        if (r->mps_pid > 0)
                mps_stop(&r->mps, r->mps_pid);
        job_daemon_end(&r->daemon);
        card_close(r->card);
        pages_remove(r->measure_dir);
        pairs_data_close(&r->data);
}

/* ---- the jobs ---- */

static void order_job(struct pairs_worker *w, const struct pairs_job *job)
{
        w->job = PAIRS_NO_JOB;
        pairs_worker_order(w, "job %s %s", job->name, job->loops[0] ? job->loops : "0");
}

/* True: the worker has answered that it is as ready for the job as all others. */
static bool is_ready_for(struct running *r, struct pairs_worker *w, unsigned j)
{
        struct pairs_job *job = &r->jobs[j];
        char loops[PAIRS_LOOPS_MAX], way[8] = "";
        bool eager;

        if (sscanf(w->answer, "job %47s %*f %7s", loops, way) < 1)
                return false;
        eager = strcmp(way, "eager") == 0;
        if (!job->loops[0]) { /* the first worker has found out */
                (void)snprintf(job->loops, sizeof(job->loops), "%s", loops);
                job->eager = eager;
                if (eager && !strstr(job->name, "eager"))
                        (void)cli_fail(0,
                                       "%s: no CUDA graph holds its steps, so it runs eagerly; its "
                                       "line in the data says so",
                                       job->name);
        } else if (eager != job->eager) {
                (void)snprintf(w->answer, sizeof(w->answer), "it runs %s here, unlike before",
                               eager ? "eagerly" : "as a graph");
                return false;
        }
        w->job = j;
        return true;
}

/* Tells these workers their jobs, those that have not been told yet, and waits. False after a
 * message. */
static bool prepare(struct running *r, struct pairs_worker *const *workers, const unsigned *wanted,
                    unsigned n)
{
        bool all = true;

        for (unsigned i = 0; i < n; i++) {
                if (workers[i]->job == wanted[i])
                        continue;
                order_job(workers[i], &r->jobs[wanted[i]]);
        }
        (void)pairs_workers_wait(workers, n, JOB_S);
        for (unsigned i = 0; i < n; i++) {
                if (workers[i]->job == wanted[i] || is_ready_for(r, workers[i], wanted[i]))
                        continue;
                all = false;
                if (job_interrupted())
                        continue;
                r->jobs[wanted[i]].failures++;
                (void)cli_fail(0, "%s: %s: %s", workers[i]->name, r->jobs[wanted[i]].name,
                               workers[i]->answer[0] ? workers[i]->answer
                                                     : "the program has ended");
        }
        return all;
}

/* Tells the workers to run at the same time. Returns when they begin to count. */
static uint64_t tell_to_run(const struct running *r, struct pairs_worker *const *workers,
                            unsigned n, double seconds)
{
        uint64_t at = clock_now_ns() + LEAD_NS;

        for (unsigned i = 0; i < n; i++)
                if (r->jobs[workers[i]->job].torch)
                        at = clock_now_ns() + MODEL_LEAD_NS;
        for (unsigned i = 0; i < n; i++)
                pairs_worker_order(workers[i], "run %.6f %llu", seconds, (unsigned long long)at);
        return at;
}

/* Waits until they have run. False: at least one has not. */
static bool hear_counts(struct pairs_worker *const *workers, unsigned n, double seconds,
                        double *ret_counts)
{
        bool all = true;

        (void)pairs_workers_wait(workers, n, seconds + ANSWER_S);
        for (unsigned i = 0; i < n; i++)
                all &= sscanf(workers[i]->answer, "ran %lf", &ret_counts[i]) == 1;
        return all;
}

static bool run(const struct running *r, struct pairs_worker *const *workers, unsigned n,
                double seconds, double *ret_counts)
{
        (void)tell_to_run(r, workers, n, seconds);
        return hear_counts(workers, n, seconds, ret_counts);
}

/* The other workers prepare the job too, all at once, so that no pair waits for that. What fails
 * there is told when a pair needs it. */
static void prepare_elsewhere(struct running *r, unsigned j)
{
        const struct pairs_job *job = &r->jobs[j];
        struct pairs_worker *others[PLACES * 2];
        unsigned n = 0;

        for (unsigned place = 0; place < PLACES; place++)
                for (unsigned which = 0; has_place(r, place) && which < workers_at(place);
                     which++) {
                        struct pairs_worker *w = worker(r, job, place, which);

                        if ((place == PLACE_SUBLET && which == 0) || !pairs_worker_runs(w) ||
                            !w->answered)
                                continue;
                        order_job(w, job);
                        others[n++] = w;
                }
        (void)pairs_workers_wait(others, n, JOB_S);
        for (unsigned i = 0; i < n; i++)
                (void)is_ready_for(r, others[i], j);
}

static int compare(const void *one, const void *other)
{
        const double a = *(const double *)one, b = *(const double *)other;

        return a < b ? -1 : a > b;
}

/* ---- what a job does ---- */

/* Lets one worker run, and looks at the card and at what the library counts meanwhile. The card's
 * first look ends a window that began before. */
static bool watch(struct running *r, struct pairs_worker *w, double seconds, struct pages *begin,
                  struct pages *end, struct report_seen *ret)
{
        const uint64_t at = tell_to_run(r, &w, 1, seconds),
                       until = at + (uint64_t)(seconds * (double)NSEC_PER_SEC);
        double cpu_s, count;

        *ret = (struct report_seen){.begin = begin, .end = end, .card = CARD_FIGURES_NONE};
        sleep_until(at);
        pages_read(begin, r->measure_dir, true);
        ret->seconds = -since(r->begun_ns);
        cpu_s = pairs_worker_cpu_s(w);
        if (r->card) {
                card_look(r->card);
                card_reset(r->card);
        }
        for (uint64_t next = at + CARD_WINDOW_NS; next <= until; next += CARD_WINDOW_NS) {
                sleep_until(next);
                if (r->card)
                        card_look(r->card);
        }
        pages_read(end, r->measure_dir, true);
        ret->seconds += since(r->begun_ns);
        ret->cpu_s = pairs_worker_cpu_s(w) - cpu_s;
        if (r->card)
                card_figures(r->card, &ret->card);
        return hear_counts(&w, 1, seconds, &count);
}

/* As the library sees the job in a worker of its own. A worker that has shown many kernels is
 * replaced: the library's table has room for so many. False: it does not tell. */
static bool observe(struct running *r, unsigned j, double seconds, struct job *ret)
{
        struct pairs_worker *w = worker(r, &r->jobs[j], PLACE_MEASURED, 0);
        struct pages begin = {0}, end = {0};
        const struct measure_page *page;
        struct report_seen seen;
        double bytes;
        bool known;

        if (!make_ready(&w, 1) || !prepare(r, &w, &j, 1))
                return false;
        known = watch(r, w, seconds, &begin, &end, &seen);
        page = pages_find(&end, (uint32_t)w->run.pid);
        known = known && page && pages_leader(&end, &begin) == page && report_fill(&seen, ret) &&
                ret->n_kernels > 0 && ret->kernels[0].seconds > 0;
        if (page && page->kernel_count > KERNELS_MAX) {
                pairs_worker_end(w);
                (void)pairs_worker_start(w);
        } else {
                pairs_worker_order(w, "memory");
                (void)pairs_workers_wait(&w, 1, ANSWER_S);
                if (sscanf(w->answer, "memory %lf", &bytes) == 1)
                        ret->memory.peak_bytes = bytes;
        }
        pages_free(&begin);
        pages_free(&end);
        return known;
}

/* As the job's own worker describes it. */
static bool describe(struct running *r, unsigned j, double seconds, const double *rates, unsigned n,
                     double step, double window, struct job *ret)
{
        struct pairs_worker *w = worker(r, &r->jobs[j], PLACE_SUBLET, 0);
        struct pages begin = {0}, end = {0};
        struct report_seen seen;
        bool known = watch(r, w, seconds, &begin, &end, &seen);

        pages_free(&begin);
        pages_free(&end);
        pairs_worker_order(w, "describe %s", r->file);
        (void)pairs_workers_wait(&w, 1, JOB_S);
        ret->measured = r->card_job.measured;
        return known && strcmp(w->answer, "described") == 0 &&
               pairs_describe(ret, r->file, &seen.card, rates, n, step, window) == 0;
}

static int record(struct running *r, unsigned j, double rate, const double *rates, unsigned n,
                  double step, double window)
{
        const double seconds = MAX(window, CARD_S);
        struct pairs_job *job = &r->jobs[j];
        const time_t now = time(NULL);
        _cleanup_job_ struct job measured;
        struct tm utc;
        int result;

        job_init(&measured);
        if (!observe(r, j, seconds, &measured)) {
                job_free(&measured);
                if (!describe(r, j, seconds, rates, n, step, window, &measured)) {
                        if (!job_interrupted())
                                (void)cli_fail(0, "%s: what it does is not known", job->name);
                        return CLI_OK;
                }
                (void)cli_fail(0, "%s: the library has not measured it, so its own figures count",
                               job->name);
        }
        (void)snprintf(measured.name, sizeof(measured.name), "%s", job->name);
        (void)strftime(measured.measured.time, sizeof(measured.measured.time), "%Y-%m-%dT%H:%M:%SZ",
                       gmtime_r(&now, &utc));
        job->alone[0].rate = rate;
        result = pairs_data_begin(&r->data, &r->card_job);
        if (result == CLI_OK)
                result = pairs_data_job(&r->data, job, &measured);
        job->recorded = result == CLI_OK;
        return result == CLI_OK ? pairs_data_alone(&r->data, job, false, rate) : result;
}

/* Measures the rates of n windows in which one worker runs alone. Returns their median; 0 after a
 * message. */
static double rate_alone(struct running *r, struct pairs_worker *w, double window, unsigned n,
                         double *ret_rates)
{
        const char *name = r->jobs[w->job].name;
        double sorted[ALONE_WINDOWS];

        for (unsigned i = 0; i < n; i++) {
                if (!run(r, &w, 1, window, &ret_rates[i])) {
                        if (!job_interrupted())
                                (void)cli_fail(0, "%s alone: %s", name,
                                               w->answer[0] ? w->answer : "the program has ended");
                        return 0;
                }
                ret_rates[i] /= window;
        }
        memcpy(sorted, ret_rates, n * sizeof(*sorted));
        qsort(sorted, n, sizeof(*sorted), compare);
        if (sorted[n / 2] <= 0) {
                (void)cli_fail(0, "%s alone: it has done nothing", name);
                return 0;
        }
        (void)fprintf(stderr, "%s alone: %.6g a second, +-%.1f %%\n", w->name, sorted[n / 2],
                      50 * (sorted[n - 1] - sorted[0]) / sorted[n / 2]);
        return sorted[n / 2];
}

static double window_alone(const struct running *r, const struct pairs_job *job)
{
        return r->setting->seconds * (job->torch ? MODEL_ALONE : 1);
}

/* Measures what a job is, alone, unless the data file has it. A job that fails is left out: it has
 * no rate. */
static int measure_alone(struct running *r, unsigned j)
{
        struct pairs_job *job = &r->jobs[j];
        struct pairs_worker *w = worker(r, job, PLACE_SUBLET, 0),
                            *observer = worker(r, job, PLACE_MEASURED, 0);
        const double window = window_alone(r, job);
        const unsigned n = job->torch ? ALONE_WINDOWS : 1;
        double rates[ALONE_WINDOWS] = {0}, step = 0, rate;

        if (!set_mode(r, PAIRS_SLICED) || !make_ready(&w, 1) || !prepare(r, &w, &j, 1))
                return CLI_OK;
        (void)sscanf(w->answer, "job %*s %lf", &step);
        (void)make_ready(&observer, 1); /* it may have been started again */
        if (!job->torch)
                prepare_elsewhere(r, j); /* models would only take each other's place */
        (void)fprintf(stderr, "%s\n", job->name);
        rate = rate_alone(r, w, window, n, rates);
        return rate > 0 ? record(r, j, rate, rates, n, step, window) : CLI_OK;
}

/* ---- the pairs ---- */

static double window_of(const struct running *r, const struct pairs_item *item)
{
        const bool models = r->jobs[item->a].torch || r->jobs[item->b].torch;
        const double times = models ? MODEL_PAIR : 1;

        return r->setting->seconds * (item->way == PAIRS_TURNS ? MAX(times, TURNS_PAIR) : times);
}

static bool is_left_out(const struct running *r, const struct pairs_item *item)
{
        return item->done || !r->ways[item->way] || !r->jobs[item->a].recorded ||
               !r->jobs[item->b].recorded || r->jobs[item->a].failures >= FAILURES_MAX ||
               r->jobs[item->b].failures >= FAILURES_MAX;
}

/* Measures the rate alone of a worker's job. False after a message: it has none. */
static bool measure_rate(struct running *r, struct pairs_worker *w, bool shared, int *ret_result)
{
        struct pairs_job *job = &r->jobs[w->job];
        const uint64_t begun_ns = clock_now_ns();
        double rates[ALONE_WINDOWS], rate;

        rate = rate_alone(r, w, window_alone(r, job) / (job->torch ? 1 : 2), 1, rates);
        r->spent.again += since(begun_ns);
        if (rate <= 0) {
                job->failures++;
                return false;
        }
        *ret_result = pairs_data_alone(&r->data, job, shared, rate);
        return *ret_result == CLI_OK;
}

static bool is_old(const struct running *r, const struct pairs_worker *w, bool shared)
{
        const struct pairs_job *job = &r->jobs[w->job];

        return clock_now_ns() - job->alone[shared].at_ns >
               (job->torch ? MODEL_OLD_NS : KERNEL_OLD_NS);
}

/* Before a pair runs, both jobs need a rate alone of this run. Rates that are old are measured
 * again, the older one of the two, if the time is there: the host and the card may have changed. */
static bool know_rates(struct running *r, struct pairs_worker *const *workers, bool shared,
                       int *ret_result)
{
        const struct pairs_alone *alone[2] = {&r->jobs[workers[0]->job].alone[shared],
                                              &r->jobs[workers[1]->job].alone[shared]};
        const unsigned older = alone[1]->at_ns < alone[0]->at_ns;
        bool measured = false;

        for (unsigned i = 0; i < 2; i++)
                if (alone[i]->rate <= 0) {
                        measured = true;
                        if (!measure_rate(r, workers[i], shared, ret_result))
                                return false;
                }
        if (!measured && is_old(r, workers[older], shared) &&
            r->spent.again < AGAIN_PART * (r->spent.windows + r->spent.warming))
                return measure_rate(r, workers[older], shared, ret_result);
        return true;
}

static int measure_pair(struct running *r, const struct pairs_item *item)
{
        const struct pairs_job *a = &r->jobs[item->a], *b = &r->jobs[item->b];
        const enum place place = item->way == PAIRS_SHARED ? PLACE_MPS : PLACE_SUBLET;
        struct pairs_worker *workers[2] = {worker(r, a, place, 0), worker(r, b, place, 1)};
        const unsigned wanted[2] = {item->a, item->b};
        const double window = window_of(r, item);
        struct pairs_result result = {.a = item->a, .b = item->b, .way = item->way};
        const bool shared = item->way == PAIRS_SHARED;
        uint64_t begun_ns = clock_now_ns();
        json_int_t handoffs;
        double counts[2];
        int known = CLI_OK;

        if (!set_mode(r, item->way) || !make_ready(workers, 2)) {
                r->failed++;
                if (!job_interrupted() &&
                    (workers[0]->starts >= STARTS_MAX || workers[1]->starts >= STARTS_MAX)) {
                        r->ways[item->way] = false;
                        (void)cli_fail(0, "the programs end too often: no more pairs under %s",
                                       pairs_way_name(item->way));
                }
                return CLI_OK;
        }
        if (!prepare(r, workers, wanted, 2)) {
                r->failed++;
                return CLI_OK;
        }
        r->spent.preparing += since(begun_ns);
        if (!know_rates(r, workers, shared, &known)) {
                r->failed++;
                return known;
        }
        begun_ns = clock_now_ns();
        handoffs = item->way == PAIRS_SLICED ? count_handoffs(r) : 0;
        if (!run(r, workers, 2, window, counts)) {
                r->failed++;
                for (unsigned i = 0; i < 2 && !job_interrupted(); i++)
                        if (strncmp(workers[i]->answer, "ran ", 4) != 0) {
                                r->jobs[wanted[i]].failures++;
                                (void)cli_fail(0, "%s beside %s, %s: %s", r->jobs[wanted[i]].name,
                                               r->jobs[wanted[!i]].name, pairs_way_name(item->way),
                                               workers[i]->answer[0] ? workers[i]->answer
                                                                     : "the program has ended");
                        }
                return CLI_OK;
        }
        if (item->way == PAIRS_SLICED)
                handoffs = count_handoffs(r) - handoffs;
        if (handoffs > 0)
                (void)cli_fail(0,
                               "%s beside %s, sliced: sublet gave turns, so not all programs fit "
                               "the GPU; the line says so",
                               a->name, b->name);
        for (unsigned i = 0; i < 2; i++) {
                result.rates[i] = counts[i] / window;
                result.alone[i] = r->jobs[wanted[i]].alone[shared].rate;
                result.progress[i] = result.rates[i] / result.alone[i];
        }
        r->spent.windows += window;
        r->spent.warming += since(begun_ns) - window;
        r->measured++;
        if (pairs_results_add(r->results, &result) < 0)
                return cli_fail(CLI_FAILED, "out of memory");
        return pairs_data_pair(&r->data, r->jobs, &result, window, handoffs);
}

static void report(struct running *r, size_t done, size_t n)
{
        if (clock_now_ns() - r->told_ns < REPORT_NS)
                return;
        r->told_ns = clock_now_ns();
        (void)fprintf(stderr, "%.0f min: %zu of %zu pairs, %zu failed\n", since(r->begun_ns) / 60,
                      done, n, r->failed);
}

static void mark_done(const struct running *r, struct pairs_item *items, size_t n)
{
        for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < r->results->n && !items[i].done; k++) {
                        const struct pairs_result *known = &r->results->items[k];

                        items[i].done = known->way == items[i].way &&
                                        ((known->a == items[i].a && known->b == items[i].b) ||
                                         (known->a == items[i].b && known->b == items[i].a));
                }
}

/* Says what a pair takes besides its window. */
static void tell_times(const struct running *r)
{
        const double n = (double)MAX(r->measured, (size_t)1);

        (void)fprintf(stderr,
                      "%zu pairs measured in %.1f min, %zu failed; a pair took %.2f s: %.2f to "
                      "prepare, %.2f for rates alone, %.2f to warm up, %.2f in its window\n",
                      r->measured, since(r->begun_ns) / 60, r->failed,
                      (r->spent.preparing + r->spent.again + r->spent.warming + r->spent.windows) /
                              n,
                      r->spent.preparing / n, r->spent.again / n, r->spent.warming / n,
                      r->spent.windows / n);
}

static int measure(struct running *r, struct pairs_item *items, size_t n)
{
        int result = CLI_OK;

        r->told_ns = clock_now_ns();
        for (unsigned j = 0; result == CLI_OK && j < r->n_jobs && !is_over(r); j++)
                if (!r->jobs[j].recorded && r->kinds[r->jobs[j].torch ? KIND_MODELS : KIND_KERNELS])
                        result = measure_alone(r, j);
        for (unsigned kind = 0; kind < KINDS; kind++)
                pairs_worker_end(&r->workers[kind][PLACE_MEASURED][0]);
        for (size_t i = 0; result == CLI_OK && i < n && !is_over(r); i++) {
                if (!is_left_out(r, &items[i]))
                        result = measure_pair(r, &items[i]);
                report(r, i + 1, n);
        }
        return result;
}

int pairs_run(const struct pairs_setting *setting, struct pairs_job *jobs, size_t n_jobs,
              struct pairs_results *results)
{
        struct running r = {.setting = setting,
                            .jobs = jobs,
                            .n_jobs = n_jobs,
                            .results = results,
                            .begun_ns = clock_now_ns()};
        struct pairs_choice choice = setting->choice;
        struct pairs_item *items = NULL;
        size_t n = 0;
        int result;

        memcpy(r.ways, setting->choice.ways, sizeof(r.ways));
        for (size_t j = 0; j < n_jobs; j++)
                r.kinds[jobs[j].torch ? KIND_MODELS : KIND_KERNELS] = true;
        for (unsigned i = 0; i < KINDS * PLACES * 2; i++)
                (&r.workers[0][0][0])[i] = PAIRS_WORKER_NONE;
        (void)snprintf(r.log, sizeof(r.log), "%s/log", setting->folder);
        (void)snprintf(r.measure_dir, sizeof(r.measure_dir), "%s/measure", setting->folder);
        (void)mkdir(r.measure_dir, 0700);
        (void)snprintf(r.file, sizeof(r.file), "%s/told.json", setting->folder);
        result = start(&r);
        if (result == CLI_OK)
                result = pairs_data_open(&r.data, setting->output, &r.card_job, jobs, n_jobs,
                                         results);
        memcpy(choice.ways, r.ways, sizeof(choice.ways)); /* MPS may be missing */
        if (result == CLI_OK && pairs_plan(jobs, n_jobs, &choice, &items, &n) < 0)
                result = cli_fail(CLI_FAILED, "out of memory");
        if (result == CLI_OK) {
                mark_done(&r, items, n);
                result = measure(&r, items, n);
        }
        end_all(&r);
        free(items);
        if (result == CLI_OK && !job_interrupted())
                tell_times(&r);
        return result;
}
