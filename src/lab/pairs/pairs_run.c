/* pairs_run.c: owns the course of a run: which jobs run when, and the clock. Must let no job that
 * fails stop the others. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/sort.h"
#include "base/units.h"
#include "lab/pairs/pairs_running.h"

#define LEAD_NS       (70 * NSEC_PER_MSEC)  /* the workers warm up for 50 ms of it … */
#define MODEL_LEAD_NS (270 * NSEC_PER_MSEC) /* … and models for 250 ms */
#define ALONE_WINDOWS 3                     /* windows at most for a rate alone */
#define ALONE_AGREE   0.02                  /* two windows are alike if they differ by no more */
#define ALONE_LEAST_S 0.05
#define ALONE_MOST_S  5   /* a window with nothing done is doubled until it is so long */
#define KERNEL_ALONE  0.5 /* length of a window of a kernel alone, as a multiple of --seconds … */
#define MODEL_ALONE   2   /* … of a model … */
#define MODEL_PAIR    4   /* … of a pair with a model … */
#define TURNS_PAIR    3.2 /* … and those of turns: there have to be several turns in them */
#define MODEL_OLD_NS  (60 * NSEC_PER_SEC) /* a rate alone is measured again if it is older … */
#define KERNEL_OLD_NS (300 * NSEC_PER_SEC)
#define AGAIN_PART    0.12 /* … as long as that takes at most this part of the pairs' time */
#define CARD_S        0.45 /* the least time for which NVML watches */
#define JOB_S         180  /* a worker may take so long to prepare a job */
#define FAILURES_MAX  4    /* failures of a job, after which it is left out */
#define REPORT_NS     (60 * NSEC_PER_SEC)
#define KERNELS_MAX   500 /* kernels of a measured worker; then another takes its place */

/* ---- time ---- */

static bool is_over(const struct pairs_running *r)
{
        return lab_interrupted() ||
               (r->setting->limit > 0 && clock_since_s(r->begun_ns) >= r->setting->limit);
}

static void sleep_until(uint64_t at_ns)
{
        const struct timespec t = {.tv_sec = (time_t)(at_ns / NSEC_PER_SEC),
                                   .tv_nsec = (long)(at_ns % NSEC_PER_SEC)};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR &&
               !lab_interrupted())
                ;
}

/* ---- the jobs ---- */

static void order_job(struct pairs_worker *w, const struct pairs_job *job)
{
        w->job = PAIRS_NO_JOB;
        pairs_worker_order(w, "job %s %s", job->name, job->loops[0] ? job->loops : "0");
}

/* Takes the worker's answer to an order to prepare. True: it is ready, and runs the job in the same
 * way as the other workers. */
static bool is_ready_for(struct pairs_running *r, struct pairs_worker *w, unsigned j)
{
        struct pairs_job *job = &r->jobs[j];
        char loops[PAIRS_LOOPS_MAX], way[8] = "";
        bool eager;

        if (sscanf(w->answer, "job %47s %*f %7s", loops, way) < 1)
                return false;
        eager = strcmp(way, "eager") == 0;
        if (!job->loops[0]) { /* the first worker has found out the loops */
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

static const char *said(const struct pairs_worker *w)
{
        return w->answer[0] ? w->answer : "the program has ended";
}

/* Tells each worker its job, unless it has that job already, and waits. False after a message. */
static bool prepare(struct pairs_running *r, struct pairs_worker *const *workers,
                    const unsigned *wanted, unsigned n)
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
                if (lab_interrupted())
                        continue;
                r->jobs[wanted[i]].failures++;
                (void)cli_fail(0, "%s: %s: %s", workers[i]->name, r->jobs[wanted[i]].name,
                               said(workers[i]));
        }
        return all;
}

/* Tells the workers to run at the same time. Returns when they begin to count. */
static uint64_t tell_to_run(const struct pairs_running *r, struct pairs_worker *const *workers,
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

        (void)pairs_workers_wait(workers, n, seconds + PAIRS_ANSWER_S);
        for (unsigned i = 0; i < n; i++)
                all &= sscanf(workers[i]->answer, "ran %lf", &ret_counts[i]) == 1;
        return all;
}

static bool run(const struct pairs_running *r, struct pairs_worker *const *workers, unsigned n,
                double seconds, double *ret_counts)
{
        (void)tell_to_run(r, workers, n, seconds);
        return hear_counts(workers, n, seconds, ret_counts);
}

/* Has the other workers prepare the job, all at once, so that no pair waits for that. A failure is
 * reported when a pair needs the job there. */
static void prepare_elsewhere(struct pairs_running *r, unsigned j)
{
        const struct pairs_job *job = &r->jobs[j];
        struct pairs_worker *others[PAIRS_PLACES * 2];
        unsigned n = 0;

        for (unsigned place = 0; place < PAIRS_PLACES; place++)
                for (unsigned which = 0;
                     pairs_has_place(r, place) && which < pairs_workers_at(place); which++) {
                        struct pairs_worker *w = pairs_worker_at(r, job, place, which);

                        if ((place == PAIRS_PLACE_SUBLET && which == 0) || !pairs_worker_runs(w) ||
                            !w->answered)
                                continue;
                        order_job(w, job);
                        others[n++] = w;
                }
        (void)pairs_workers_wait(others, n, JOB_S);
        for (unsigned i = 0; i < n; i++)
                (void)is_ready_for(r, others[i], j);
}

/* ---- what a job does ---- */

/* Lets one worker run, and looks at the card and at what the library counts meanwhile. The card's
 * first look ends a window that began before. */
static bool watch(struct pairs_running *r, struct pairs_worker *w, double seconds,
                  struct pages *begin, struct pages *end, struct report_seen *ret)
{
        const uint64_t at = tell_to_run(r, &w, 1, seconds),
                       until = at + (uint64_t)(seconds * (double)NSEC_PER_SEC);
        double cpu_s, count;

        *ret = (struct report_seen){.begin = begin, .end = end, .card = CARD_FIGURES_NONE};
        sleep_until(at);
        pages_read(begin, r->measure_dir, true);
        ret->seconds = -clock_since_s(r->begun_ns);
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
        ret->seconds += clock_since_s(r->begun_ns);
        ret->cpu_s = pairs_worker_cpu_s(w) - cpu_s;
        if (r->card)
                card_figures(r->card, &ret->card);
        return hear_counts(&w, 1, seconds, &count);
}

/* Describes the job as the library sees it in a worker of its own. A worker that has shown many
 * kernels is replaced, because the library's table is limited. False: the library does not tell. */
static bool observe(struct pairs_running *r, unsigned j, double seconds, struct job *ret)
{
        struct pairs_worker *w = pairs_worker_at(r, &r->jobs[j], PAIRS_PLACE_MEASURED, 0);
        struct pages begin = {0}, end = {0};
        const struct measure_page *page;
        struct report_seen seen;
        double bytes;
        bool known;

        if (!pairs_make_ready(&w, 1) || !prepare(r, &w, &j, 1))
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
                (void)pairs_workers_wait(&w, 1, PAIRS_ANSWER_S);
                if (sscanf(w->answer, "memory %lf", &bytes) == 1)
                        ret->memory.peak_bytes = bytes;
        }
        pages_free(&begin);
        pages_free(&end);
        return known;
}

/* Describes the job as its own worker does. */
static bool describe(struct pairs_running *r, unsigned j, double seconds, const double *rates,
                     unsigned n, double step, double window, struct job *ret)
{
        struct pairs_worker *w = pairs_worker_at(r, &r->jobs[j], PAIRS_PLACE_SUBLET, 0);
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

static int record(struct pairs_running *r, unsigned j, double rate, const double *rates, unsigned n,
                  double step, double window)
{
        const double seconds = MAX(window, CARD_S);
        struct pairs_job *job = &r->jobs[j];
        _cleanup_job_ struct job measured;
        int result;

        job_init(&measured);
        if (!observe(r, j, seconds, &measured)) {
                job_free(&measured);
                if (!describe(r, j, seconds, rates, n, step, window, &measured)) {
                        if (!lab_interrupted())
                                (void)cli_fail(0, "%s: what it does is not known", job->name);
                        return CLI_OK;
                }
                (void)cli_fail(0, "%s: the library has not measured it, so its own figures count",
                               job->name);
        }
        (void)snprintf(measured.name, sizeof(measured.name), "%s", job->name);
        (void)units_format_utc(time(NULL), measured.measured.time);
        job->alone[0].rate = rate;
        result = pairs_data_begin(&r->data, &r->card_job, r->idle_w);
        if (result == CLI_OK)
                result = pairs_data_job(&r->data, job, &measured);
        job->recorded = result == CLI_OK;
        return result == CLI_OK ? pairs_data_alone(&r->data, job, false, rate) : result;
}

static bool agree(double a, double b)
{
        return a > 0 && b > 0 && fabs(a - b) <= ALONE_AGREE * MAX(a, b);
}

/* Measures the rate of a worker that runs alone, until two windows agree: in one window the host
 * may have been busy. After a window in which nothing was done, because a step takes longer or the
 * host was busy, windows are longer. known: an earlier rate, which counts as a window; 0: none.
 * Returns the median of the windows, of which there are *ret_n; 0 after a message. */
static double rate_alone(struct pairs_running *r, struct pairs_worker *w, double window,
                         double known, double *ret_rates, unsigned *ret_n)
{
        const char *name = r->jobs[w->job].name;
        double sorted[ALONE_WINDOWS];
        unsigned n = 0;
        bool done = false;

        while (n < ALONE_WINDOWS && !done) {
                if (!run(r, &w, 1, window, &ret_rates[n])) {
                        if (!lab_interrupted())
                                (void)cli_fail(0, "%s alone: %s", name, said(w));
                        return 0;
                }
                if (ret_rates[n] <= 0 && window < ALONE_MOST_S) {
                        window *= 2;
                        continue;
                }
                ret_rates[n] /= window;
                done = agree(ret_rates[n], n > 0 ? ret_rates[n - 1] : known);
                n++;
        }
        memcpy(sorted, ret_rates, n * sizeof(*sorted));
        sort_doubles(sorted, n);
        if (sorted[n / 2] <= 0) {
                (void)cli_fail(0, "%s alone: it has done nothing", name);
                return 0;
        }
        (void)fprintf(stderr, "%s alone: %.6g a second, %u windows, +-%.1f %%\n", w->name,
                      sorted[n / 2], n, 50 * (sorted[n - 1] - sorted[0]) / sorted[n / 2]);
        *ret_n = n;
        return sorted[n / 2];
}

static double window_alone(const struct pairs_running *r, const struct pairs_job *job)
{
        return MAX(r->setting->seconds * (job->torch ? MODEL_ALONE : KERNEL_ALONE), ALONE_LEAST_S);
}

/* Measures a job alone, unless the data file has it. A job that fails has no rate. */
static int measure_alone(struct pairs_running *r, unsigned j)
{
        struct pairs_job *job = &r->jobs[j];
        struct pairs_worker *w = pairs_worker_at(r, job, PAIRS_PLACE_SUBLET, 0),
                            *observer = pairs_worker_at(r, job, PAIRS_PLACE_MEASURED, 0);
        const double window = window_alone(r, job);
        double rates[ALONE_WINDOWS] = {0}, step = 0, rate;
        unsigned n = 0;

        if (!pairs_set_mode(r, WAY_SLICED) || !pairs_make_ready(&w, 1) || !prepare(r, &w, &j, 1))
                return CLI_OK;
        (void)sscanf(w->answer, "job %*s %lf", &step);
        (void)pairs_make_ready(&observer, 1); /* it may have been started again */
        if (!job->torch)
                prepare_elsewhere(r, j); /* models would only push each other out */
        (void)fprintf(stderr, "%s\n", job->name);
        rate = rate_alone(r, w, window, 0, rates, &n);
        return rate > 0 ? record(r, j, rate, rates, n, step, window) : CLI_OK;
}

/* ---- the pairs ---- */

static double window_of(const struct pairs_running *r, const struct pairs_item *item)
{
        const bool models = r->jobs[item->a].torch || r->jobs[item->b].torch;
        const double times = models ? MODEL_PAIR : 1;

        return r->setting->seconds * (item->way == WAY_TURNS ? MAX(times, TURNS_PAIR) : times);
}

static bool is_missing(const struct pairs_running *r, const struct pairs_job *job)
{
        return !job->recorded || job->failures >= FAILURES_MAX ||
               !r->kinds[job->torch ? PAIRS_KIND_MODELS : PAIRS_KIND_KERNELS];
}

static bool is_left_out(const struct pairs_running *r, const struct pairs_item *item)
{
        return item->done || !r->ways[item->way] || is_missing(r, &r->jobs[item->a]) ||
               is_missing(r, &r->jobs[item->b]);
}

/* Measures the rate alone of a worker's job. False after a message: it has none. */
static bool measure_rate(struct pairs_running *r, struct pairs_worker *w, bool shared,
                         int *ret_result)
{
        struct pairs_job *job = &r->jobs[w->job];
        const uint64_t begun_ns = clock_now_ns();
        double rates[ALONE_WINDOWS], rate;
        unsigned n;

        rate = rate_alone(r, w, window_alone(r, job), job->alone[shared].rate, rates, &n);
        r->spent.again += clock_since_s(begun_ns);
        if (rate <= 0) {
                job->failures++;
                return false;
        }
        *ret_result = pairs_data_alone(&r->data, job, shared, rate);
        return *ret_result == CLI_OK;
}

static bool is_old(const struct pairs_running *r, const struct pairs_worker *w, bool shared)
{
        const struct pairs_job *job = &r->jobs[w->job];

        return clock_now_ns() - job->alone[shared].at_ns >
               (job->torch ? MODEL_OLD_NS : KERNEL_OLD_NS);
}

/* Measures the rates alone that a pair needs before it runs, unless this run has measured them. The
 * older rate, if it is too old, is measured again if there is time: the host and the card may have
 * changed. */
static bool know_rates(struct pairs_running *r, struct pairs_worker *const *workers, bool shared,
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

/* Returns the rate alone on half of the SMs, divided by that on all SMs. */
static double half_rate(const struct pairs_job *job)
{
        const struct pairs_alone *all = &job->alone[0], *half = &job->alone[1];

        return half->sum / half->n / (all->sum / all->n);
}

static int measure_pair(struct pairs_running *r, const struct pairs_item *item)
{
        const struct pairs_job *a = &r->jobs[item->a], *b = &r->jobs[item->b];
        const enum pairs_place place =
                item->way == WAY_SHARED ? PAIRS_PLACE_MPS : PAIRS_PLACE_SUBLET;
        struct pairs_worker *workers[2] = {pairs_worker_at(r, a, place, 0),
                                           pairs_worker_at(r, b, place, 1)};
        const unsigned wanted[2] = {item->a, item->b};
        const double window = window_of(r, item);
        struct pairs_result result = {.a = item->a, .b = item->b, .way = item->way};
        const bool shared = item->way == WAY_SHARED;
        uint64_t begun_ns = clock_now_ns();
        json_int_t handoffs;
        double counts[2];
        int known = CLI_OK;

        if (!pairs_set_mode(r, item->way) || !pairs_make_ready(workers, 2)) {
                r->failed++;
                if (!lab_interrupted() && (workers[0]->starts >= PAIRS_STARTS_MAX ||
                                           workers[1]->starts >= PAIRS_STARTS_MAX)) {
                        r->ways[item->way] = false;
                        (void)cli_fail(0, "the programs end too often: no more pairs under %s",
                                       way_names[item->way]);
                }
                return CLI_OK;
        }
        if (!prepare(r, workers, wanted, 2)) {
                r->failed++;
                return CLI_OK;
        }
        r->spent.preparing += clock_since_s(begun_ns);
        if (!know_rates(r, workers, shared, &known)) {
                r->failed++;
                return known;
        }
        begun_ns = clock_now_ns();
        handoffs = item->way == WAY_SLICED ? pairs_count_handoffs(r) : 0;
        if (!run(r, workers, 2, window, counts)) {
                r->failed++;
                for (unsigned i = 0; i < 2 && !lab_interrupted(); i++)
                        if (strncmp(workers[i]->answer, "ran ", 4) != 0) {
                                r->jobs[wanted[i]].failures++;
                                (void)cli_fail(0, "%s beside %s, %s: %s", r->jobs[wanted[i]].name,
                                               r->jobs[wanted[!i]].name, way_names[item->way],
                                               said(workers[i]));
                        }
                return CLI_OK;
        }
        if (item->way == WAY_SLICED)
                handoffs = pairs_count_handoffs(r) - handoffs;
        if (handoffs > 0)
                (void)cli_fail(0,
                               "%s beside %s, sliced: sublet gave turns, so not all programs fit "
                               "the GPU; the line says so",
                               a->name, b->name);
        for (unsigned i = 0; i < 2; i++) {
                result.rates[i] = counts[i] / window;
                result.alone[i] = r->jobs[wanted[i]].alone[shared].rate;
                result.progress[i] = result.rates[i] / result.alone[i];
                if (shared)
                        result.progress[i] *= half_rate(&r->jobs[wanted[i]]);
        }
        r->spent.windows += window;
        r->spent.warming += clock_since_s(begun_ns) - window;
        r->measured++;
        if (pairs_results_add(r->results, &result) < 0)
                return cli_fail(CLI_FAILED, "out of memory");
        return pairs_data_pair(&r->data, r->jobs, &result, window, handoffs);
}

static void report(struct pairs_running *r, size_t done, size_t n)
{
        if (clock_now_ns() - r->told_ns < REPORT_NS)
                return;
        r->told_ns = clock_now_ns();
        (void)fprintf(stderr, "%.0f min: %zu of %zu pairs, %zu failed\n",
                      clock_since_s(r->begun_ns) / 60, done, n, r->failed);
}

static void mark_done(const struct pairs_running *r, struct pairs_item *items, size_t n)
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
static void tell_times(const struct pairs_running *r)
{
        const double n = (double)r->measured;

        if (r->measured == 0) {
                (void)fprintf(stderr, "no pair measured, %zu failed\n", r->failed);
                return;
        }
        (void)fprintf(stderr,
                      "%zu pairs measured in %.1f min, %zu failed; a pair took %.2f s: %.2f to "
                      "prepare, %.2f for rates alone, %.2f to warm up, %.2f in its window\n",
                      r->measured, clock_since_s(r->begun_ns) / 60, r->failed,
                      (r->spent.preparing + r->spent.again + r->spent.warming + r->spent.windows) /
                              n,
                      r->spent.preparing / n, r->spent.again / n, r->spent.warming / n,
                      r->spent.windows / n);
}

static int measure(struct pairs_running *r, struct pairs_item *items, size_t n)
{
        int result = CLI_OK;

        r->told_ns = clock_now_ns();
        for (unsigned j = 0; result == CLI_OK && j < r->n_jobs && !is_over(r); j++)
                if (!r->jobs[j].recorded &&
                    r->kinds[r->jobs[j].torch ? PAIRS_KIND_MODELS : PAIRS_KIND_KERNELS])
                        result = measure_alone(r, j);
        for (unsigned kind = 0; kind < PAIRS_KINDS; kind++)
                pairs_worker_end(&r->workers[kind][PAIRS_PLACE_MEASURED][0]);
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
        struct pairs_running r = {.setting = setting,
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
                r.kinds[jobs[j].torch ? PAIRS_KIND_MODELS : PAIRS_KIND_KERNELS] = true;
        for (unsigned i = 0; i < PAIRS_KINDS * PAIRS_PLACES * 2; i++)
                (&r.workers[0][0][0])[i] = PAIRS_WORKER_NONE;
        (void)snprintf(r.log, sizeof(r.log), "%s/log", setting->folder);
        (void)snprintf(r.measure_dir, sizeof(r.measure_dir), "%s/measure", setting->folder);
        (void)mkdir(r.measure_dir, 0700);
        (void)snprintf(r.file, sizeof(r.file), "%s/told.json", setting->folder);
        result = pairs_start(&r);
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
        pairs_end(&r);
        free(items);
        if (result == CLI_OK && !lab_interrupted())
                tell_times(&r);
        return result;
}
