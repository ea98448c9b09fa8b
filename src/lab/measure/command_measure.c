/* command_measure.c: sublet measure. Owns the job file. Must write what was seen, or say why there
 * is no file. */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/program_name.h"
#include "base/text.h"
#include "base/units.h"
#include "client/common/cli.h"
#include "client/driver/driver_ask.h"
#include "client/launch/launch.h"
#include "lab/measure/half.h"
#include "lab/measure/measure_run.h"
#include "lab/measure/report.h"
#include "client/common/part_paths.h"

#define SECONDS_DEFAULT 10
#define WARM_UP_DEFAULT (2 * NSEC_PER_SEC)

#define SECONDS_MAX UINT64_C(86400) /* the most for --seconds and --warm-up */
#define NUMBER_MOST 999u            /* most files of one name */

struct measuring {
        const char *output;
        bool force, keep_running, mps;
        bool claimed;          /* the file is new, and empty until the job is written */
        const char *simulator; /* its folder; NULL for the machine's driver */
        struct launch launch;
        char name[JOB_NAME_MAX];
        struct measure_run run;
};

/* ---- options ---- */

static int set_steps(const struct option_row *row, void *field, const char *value)
{
        uint64_t n;

        if (units_parse_count(value, &n) < 0 || n == 0)
                return -EINVAL;
        *(uint64_t *)field = n;
        return 0;
}

static int set_seconds(const struct option_row *row, void *field, const char *value)
{
        char *end;
        const double s = strtod(value, &end);

        if (!*value || *end || !(s > 0) || s > SECONDS_MAX)
                return -EINVAL;
        *(uint64_t *)field = (uint64_t)(s * (double)NSEC_PER_SEC);
        return 0;
}

static int set_warm_up(const struct option_row *row, void *field, const char *value)
{
        uint64_t *ns = field;

        return units_parse_duration(value, ns) < 0 || *ns > SECONDS_MAX * NSEC_PER_SEC ? -EINVAL
                                                                                       : 0;
}

#define AT(field) offsetof(struct measuring, field)

const struct option_row measure_options[] = {
        {"output", "FILE",
         "write the job to FILE (NAME.job.json in this folder; NAME-2.job.json beside an earlier "
         "one)",
         options_set_text, AT(output), .letter = 'o'},
        {"force", NULL, "replace the file of an earlier measurement", options_set_true, AT(force)},
        {"steps", "N", "measure N steps of the program's work; sublet finds what repeats itself",
         set_steps, AT(run.steps), .form = "a number from 1"},
        {"seconds", "S", "measure for S seconds (10); then the program is ended", set_seconds,
         AT(run.seconds_ns), .form = "a number of seconds such as 10"},
        {"warm-up", "TIME", "begin TIME after the first kernel (2s)", set_warm_up,
         AT(run.warm_up_ns), .form = "a time such as 10s"},
        {"keep-running", NULL, "let the program go on when the measured time is over",
         options_set_true, AT(keep_running)},
        {"mps", NULL, "then run it again, with half of the SMs, under MPS: for the way shared",
         options_set_true, AT(mps)},
        {.more = launch_options, .at = AT(launch)},
};

/* ---- the file's name ---- */

/* Makes an empty file, so that nobody else takes its name meanwhile. 0 or -errno. */
static int claim(struct measuring *m, const char *path)
{
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

        if (fd < 0)
                return -errno;
        (void)close(fd);
        m->claimed = true;
        return 0;
}

/* True if the file may hold a measurement: a device, a pipe and an empty file hold none. */
static bool holds_something(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* Takes the name of a file that exists. */
static int take_over(const struct measuring *m, const char *path)
{
        _cleanup_fclose_ FILE *out = NULL;

        if (!m->force && holds_something(path))
                return cli_fail(CLI_FAILED,
                                "%s is there already, and is kept: give -o another file, or let "
                                "--force replace this one",
                                path);
        out = fopen(path, "ae");
        return out ? CLI_OK : cli_fail(CLI_FAILED, "cannot write %s: %m", path);
}

/* Takes the first name that is free: NAME, NAME-2 and so on. The job has that name, too. */
static int take_free_name(struct measuring *m, char **ret_path)
{
        char name[JOB_NAME_MAX];
        int r = -EEXIST;

        (void)strcpy(name, m->name);
        for (unsigned i = 1; r == -EEXIST && i <= NUMBER_MOST; i++) {
                free(*ret_path);
                if (i > 1 && snprintf(m->name, sizeof(m->name), "%.*s-%u",
                                      (int)text_fit(name, JOB_NAME_MAX - 8), name, i) < 0)
                        break;
                if (asprintf(ret_path, "%s.job.json", m->name) < 0) {
                        *ret_path = NULL;
                        return cli_fail(CLI_FAILED, "out of memory");
                }
                r = claim(m, *ret_path);
                if (r == -EEXIST && m->force)
                        return take_over(m, *ret_path);
        }
        if (r < 0)
                return cli_fail(CLI_FAILED, "cannot write %s: %s", *ret_path, strerror(-r));
        if (strcmp(m->name, name) != 0)
                (void)fprintf(stderr,
                              "sublet: %s.job.json is there already, and is kept: this job is "
                              "called %s (--force replaces the old one)\n",
                              name, m->name);
        return CLI_OK;
}

/* Chooses and claims the file before the program runs. */
static int name_output(struct measuring *m, char **ret_path)
{
        int r;

        if (m->launch.name)
                (void)text_copy(m->name, sizeof(m->name), m->launch.name);
        else
                name_of_words(m->run.command, m->name, sizeof(m->name));
        if (!m->output)
                return strchr(m->name, '/')
                               ? cli_fail(CLI_USAGE,
                                          "the name '%s' makes no file name: give -o FILE", m->name)
                               : take_free_name(m, ret_path);
        *ret_path = strdup(m->output);
        if (!*ret_path)
                return cli_fail(CLI_FAILED, "out of memory");
        r = claim(m, *ret_path);
        if (r == -EEXIST)
                return take_over(m, *ret_path);
        return r < 0 ? cli_fail(CLI_FAILED, "cannot write %s: %s", *ret_path, strerror(-r))
                     : CLI_OK;
}

/* Leaves no empty file behind. */
static void leave_output(const struct measuring *m, const char *path)
{
        if (m->claimed && !holds_something(path))
                (void)unlink(path);
}

/* ---- the file ---- */

static int write_job(const struct job *job, const char *path)
{
        _cleanup_fclose_ FILE *out = fopen(path, "we");
        int r = out ? job_write(job, out) : -errno;

        if (r == 0 && fflush(out) != 0)
                r = -errno;
        if (r < 0)
                return cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(-r));
        return CLI_OK;
}

static char **copy_words(char **words)
{
        size_t n = 0;
        char **copy;

        while (n < JOB_WORDS_MAX && words[n])
                n++;
        copy = calloc(n + 1, sizeof(*copy));
        for (size_t i = 0; copy && i < n; i++) {
                copy[i] = strdup(words[i]);
                if (!copy[i])
                        return copy; /* out of memory: the command is cut here */
        }
        return copy;
}

static int report(const struct measuring *m, const char *path, struct job *ret)
{
        struct report_seen seen = measure_run_seen(&m->run);
        int r;

        if (seen.seconds <= 0)
                return cli_fail(CLI_FAILED, "no job file: the program launched one kernel only");
        if (!report_fill(&seen, ret))
                return cli_fail(CLI_FAILED, "out of memory");
        (void)strcpy(ret->name, m->name);
        ret->command = copy_words(m->run.command);
        (void)units_format_utc(time(NULL), ret->measured.time);
        r = write_job(ret, path);
        if (r == CLI_OK)
                (void)fprintf(stderr, "sublet: measured %.1f s, %.0f %s%s: %s\n",
                              ret->measured.seconds, ret->steps.count, ret->steps.unit,
                              ret->steps.count == 1                  ? ""
                              : strcmp(ret->steps.unit, "step") == 0 ? "s"
                                                                     : "es",
                              path);
        return r;
}

/* Runs the program again, with half of the SMs, and adds its rate there to the file. CLI_OK also
 * without that rate. */
static int add_half(const struct measuring *m, const char *path, struct job *job)
{
        int r;

        (void)fprintf(stderr, "sublet: measuring again, with half of the SMs, under MPS\n");
        r = half_measure(&m->run, path, job);
        if (r != CLI_OK || isnan(job->steps.half_per_second))
                return r;
        r = write_job(job, path);
        if (r == CLI_OK)
                (void)fprintf(stderr,
                              "sublet: with half of the SMs %.4g %s%s a second, %.2f of the rate "
                              "alone: %s\n",
                              job->steps.half_per_second, job->steps.unit,
                              strcmp(job->steps.unit, "step") == 0 ? "s" : "es",
                              job->steps.half_per_second / job->steps.per_second, path);
        return r;
}

/* Asks the driver only when nothing was measured: an error of the program's own says more. */
static int fail_without_kernels(const struct measuring *m)
{
        struct driver_report report;

        if (driver_ask(m->simulator, &report) < 0 || report.stage != DRIVER_ANSWERED ||
            report.n_gpus == 0)
                return cli_fail(CLI_FAILED, "no job file: no GPU answers here: see sublet doctor, "
                                            "or measure on a simulated one with --sim");
        return cli_fail(CLI_FAILED, "no job file: the program has not launched a kernel on a GPU");
}

static int finish(struct measuring *m, const char *path)
{
        struct measure_run *run = &m->run;
        const bool on_its_own = run->ended;
        _cleanup_job_ struct job job;
        int r, status;

        job_init(&job);
        if (run->end.n == 0) {
                if (run->ended && measure_run_status(run) != 0)
                        return measure_run_status(run);
                return fail_without_kernels(m);
        }
        measure_run_widen(run);
        r = report(m, path, &job);
        if (m->keep_running)
                measure_run_wait(run);
        else if (!run->ended)
                measure_run_end(run);
        status = on_its_own || m->keep_running ? measure_run_status(run) : CLI_OK;
        /* A program that has failed or been interrupted is not started again. */
        if (r == CLI_OK && m->mps && status == 0 && !run->signal)
                r = add_half(m, path, &job);
        return r == CLI_OK ? status : r;
}

static int measure(struct measuring *m, const char *path)
{
        char simulator[PATH_MAX];
        int r = launch_complete(&m->launch);

        if (r == CLI_OK)
                r = measure_run_start(&m->run);
        if (r != CLI_OK)
                return r;
        if (m->launch.simulated && parts_find(PART_SIMULATOR, simulator) == 0)
                m->simulator = simulator;
        m->run.card = card_open(m->simulator);
        measure_run_watch(&m->run);
        return finish(m, path);
}

int measure_main(const struct cli_command *self, int argc, char **argv)
{
        struct measuring m = {.run = {.warm_up_ns = WARM_UP_DEFAULT, .launch = &m.launch}};
        _cleanup_free_ char *path = NULL;
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_COMMAND, &m, &words);
        if (r == CLI_OK && words == 0)
                r = cli_fail(CLI_USAGE, "measure needs a command to run");
        if (r == CLI_OK && m.mps && m.keep_running)
                r = cli_fail(CLI_USAGE, "--mps and --keep-running exclude each other: --mps runs "
                                        "the program again, alone");
        if (r == CLI_OK) {
                m.run.command = argv;
                if (!m.run.steps && !m.run.seconds_ns)
                        m.run.seconds_ns = SECONDS_DEFAULT * NSEC_PER_SEC;
                r = name_output(&m, &path);
        }
        if (r == CLI_OK)
                r = measure(&m, path);
        if (path)
                leave_output(&m, path);
        measure_run_clear(&m.run);
        launch_clear(&m.launch);
        return cli_parsed(r);
}
