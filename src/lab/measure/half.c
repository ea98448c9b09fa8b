/* half.c: owns the second run of a measured program, with half of the SMs, and its MPS. Must leave
 * no process and no directory behind, and never write a rate that was not seen under MPS. */
#include "lab/measure/half.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "client/common/cli.h"
#include "mps/mps.h"

#define PATIENCE_NS    (60 * NSEC_PER_SEC) /* how long to wait for the first kernel, … */
#define PATIENCE_TIMES 4u /* … and so many times as long as the first run needed for it */
#define NEVER_NS       (UINT64_MAX / 2)
#define WINDOWS_MOST   5u /* the program may warm up for longer than in the first run */

struct half {
        struct mps_options mps;
        pid_t mps_pid;
        char dir[MPS_DIR_MAX], gpu[UUID_TEXT_MAX];
        struct measure_run run;
        const char *path; /* path of the job file */
};

/* ---- why there is no rate ---- */

static void __attribute__((format(printf, 2, 3)))
go_without(const struct half *h, const char *format, ...)
{
        va_list arguments;

        (void)fprintf(stderr, "sublet: %s has no rate on half of the SMs: ", h->path);
        va_start(arguments, format);
        (void)vfprintf(stderr, format, arguments);
        va_end(arguments);
        (void)fputc('\n', stderr);
}

/* ---- MPS ---- */

static bool make_dir(struct half *h)
{
        const char *temporary = getenv("TMPDIR");

        if (!temporary || temporary[0] != '/' ||
            snprintf(h->dir, sizeof(h->dir), "%s/sublet-mps-XXXXXX", temporary) >=
                    (int)sizeof(h->dir))
                (void)strcpy(h->dir, "/tmp/sublet-mps-XXXXXX");
        if (mkdtemp(h->dir))
                return true;
        go_without(h, "cannot make a directory for MPS: %s", strerror(errno));
        return false;
}

static bool start_mps(struct half *h)
{
        int r;

        if (!mps_program()) {
                go_without(h, "there is no " MPS_CONTROL ", which comes with NVIDIA's driver; "
                              "install it, and measure again");
                return false;
        }
        if (!make_dir(h))
                return false;
        h->mps = (struct mps_options){
                .dir = h->dir, .gpu = h->gpu, .uid = getuid(), .gid = getgid()};
        r = mps_start(&h->mps, &h->mps_pid);
        if (r == 0)
                return true;
        mps_remove_dir(h->dir);
        if (!measure_run_signalled())
                go_without(h,
                           "MPS does not start (%s); see what " MPS_CONTROL
                           " -f says, and measure again",
                           strerror(-r));
        return false;
}

/* ---- the run ---- */

static void prepare(struct half *h, const struct measure_run *first)
{
        const struct measure_page *p = pages_leader(&first->end, &first->first);
        const uint64_t took_ns = sub_sat(measure_run_first_ns(first), first->started_ns);

        if (p)
                (void)uuid_format(p->uuid, h->gpu);
        h->run = (struct measure_run){
                .launch = first->launch,
                .command = first->command,
                .seconds_ns = MAX(sub_sat(first->end_ns, first->begin_ns) / 2, (uint64_t)1),
                .warm_up_ns = first->warm_up_ns,
                .patience_ns = PATIENCE_NS + PATIENCE_TIMES * took_ns,
                .mps = h->dir,
                .gpu = h->gpu,
        };
        /* Compare like with like: the beginning counts in both runs, or in neither. */
        if (first->lasted)
                h->run.warm_up_ns = NEVER_NS;
}

/* True if the program has half of the SMs: under MPS the driver tells a program how many it has (66
 * of 132 on an H100). */
static bool has_half(const struct half *h, const struct measure_run *first)
{
        const struct measure_page *p = pages_leader(&first->end, &first->first);
        const struct measure_page *now = pages_leader(&h->run.end, &h->run.first);

        return !p || !now || now->sms <= p->sms / 4 * 3;
}

/* Says why this run gives no rate. Returns false if it gives one. */
static bool has_failed(const struct half *h, const struct measure_run *first)
{
        if (h->run.ended && measure_run_status(&h->run) != 0)
                go_without(h,
                           "the program has ended with status %d under MPS; see what it says, and "
                           "measure again",
                           measure_run_status(&h->run));
        else if (h->run.end.n == 0)
                go_without(h, "the program launches no kernel under MPS; measure without --mps");
        else if (has_half(h, first))
                return false;
        else if (mps_count_servers(h->dir, getuid()) == 0)
                go_without(h, "the program does not take part in MPS; run it without a wrapper "
                              "that clears its environment");
        else
                go_without(h, "the program has all of the SMs under MPS; do not set "
                              "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE in it");
        return true;
}

static int compare(const struct half *h, struct job *job)
{
        _cleanup_job_ struct job half;
        const struct report_seen seen = measure_run_seen(&h->run);

        job_init(&half);
        if (seen.seconds <= 0 || !report_fill(&seen, &half))
                return -ENODATA;
        return report_half(&half, job);
}

/* Adds the rate, or says why there is none. True: there is no rate yet, but the next window may
 * give one. */
static bool take_rate(struct half *h, const struct measure_run *first, bool last, struct job *job)
{
        int r;

        if (h->run.signal || has_failed(h, first))
                return false;
        if (h->run.ended)
                measure_run_widen(&h->run);
        if (h->run.lasted != first->lasted) {
                go_without(h, "the program has ended too early under MPS; give it more to do");
                return false;
        }
        r = compare(h, job);
        if (r == 0)
                return false;
        if (!last && !h->run.ended)
                return true;
        if (r == -EAGAIN)
                go_without(h, "the program did something else in the second run than in the first; "
                              "give a longer --warm-up, and measure again");
        else
                go_without(h, "the program launched too little under MPS; measure for longer");
        return false;
}

int half_measure(const struct measure_run *first, const char *path, struct job *job)
{
        struct half h = {.path = path};
        int r;

        prepare(&h, first);
        if (!start_mps(&h))
                return measure_run_signalled() ? 128 + measure_run_signalled() : CLI_OK;
        r = measure_run_start(&h.run);
        if (r == CLI_OK) {
                measure_run_watch(&h.run);
                for (unsigned n = 1; take_rate(&h, first, n == WINDOWS_MOST, job); n++)
                        measure_run_again(&h.run);
                if (!h.run.ended)
                        measure_run_end(&h.run);
        }
        mps_stop(&h.mps, h.mps_pid);
        measure_run_clear(&h.run);
        return h.run.signal ? 128 + h.run.signal : r;
}
