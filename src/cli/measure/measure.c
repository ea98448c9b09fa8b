/* measure.c: sublet measure. Owns the program's process and the measured time. Must write a job
 * file of what was seen, or say why there is none; must leave no file of its own behind. */

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/measure/card.h"
#include "cli/measure/pages.h"
#include "cli/measure/report.h"
#include "cli/parts.h"
#include "cli/unshared.h"

#define TICK_NS         (100 * NSEC_PER_MSEC)
#define SECONDS_DEFAULT 10
#define WARM_UP_DEFAULT (2 * NSEC_PER_SEC)
#define NO_STEPS_NS     (60 * NSEC_PER_SEC) /* --steps: how long to wait for the first step */
#define LEAST_NS        NSEC_PER_SEC        /* a shorter window is given up for all that was seen */
#define MERCY_NS        (10 * NSEC_PER_SEC) /* from SIGTERM to SIGKILL */
#define RESTARTS_MOST   4u                  /* of the window, when a longer step is found */
#define OTHERS_EVERY    10u
#define DEPTH_MOST      64u

enum {
        OPTION_OUTPUT,
        OPTION_STEPS,
        OPTION_SECONDS,
        OPTION_WARM_UP,
        OPTION_KEEP_RUNNING,
        OWN_OPTIONS
};

const struct cli_option measure_options[] = {
        [OPTION_OUTPUT] = {"output", CLI_REQUIRED, "FILE",
                           "write the job to FILE (NAME.job.json in this folder)", 'o'},
        [OPTION_STEPS] =
                {"steps", CLI_REQUIRED, "N",
                 "measure N steps of the program's work; sublet finds what repeats itself"},
        [OPTION_SECONDS] = {"seconds", CLI_REQUIRED, "S",
                            "measure for S seconds (10); then the program is ended"},
        [OPTION_WARM_UP] = {"warm-up", CLI_REQUIRED, "S",
                            "begin S seconds after the first kernel (2)"},
        [OPTION_KEEP_RUNNING] = {"keep-running", CLI_NONE, NULL,
                                 "let the program go on when the measured time is over"},
        [OWN_OPTIONS] = {.more = launch_options},
};

enum stage {
        STAGE_WAITS,  /* the program has launched nothing */
        STAGE_WARMS,  /* the warm-up is not over */
        STAGE_WINDOW, /* the measured time */
        STAGE_OVER,   /* all was seen */
};

struct measuring {
        /* As asked for. */
        const char *output;
        uint64_t steps;      /* 0: only the time counts */
        uint64_t seconds_ns; /* 0: only the steps count */
        uint64_t warm_up_ns;
        bool keep_running;
        struct launch launch;
        char **command;
        char name[JOB_NAME_MAX];

        char folder[64]; /* of the library's files */
        pid_t pid;
        int status;
        bool ended; /* the program, as waitpid() says */
        struct card *card;
        bool card_chosen, crowd_said;
        enum stage stage;
        struct pages first, begin, end; /* first: nothing was seen */
        uint64_t begin_ns, end_ns;
        double cpu_begin, cpu_now; /* of the process that submits most, in seconds */
        unsigned restarts, ticks;
};

static volatile sig_atomic_t signalled;

static void on_signal(int signal)
{
        signalled = signal;
}

/* ---- options ---- */

static int take_seconds(const char *option, const char *text, bool zero, uint64_t *ret_ns)
{
        char *end;
        const double s = strtod(text, &end);

        if (!*text || *end || !(s >= 0) || s > 86400 || (s == 0 && !zero))
                return cli_fail(CLI_USAGE, "--%s is a number of seconds such as 10, not '%s'",
                                option, text);
        *ret_ns = (uint64_t)(s * (double)NSEC_PER_SEC);
        return CLI_OK;
}

static int take(int option, const char *argument, void *measuring)
{
        struct measuring *m = measuring;

        switch (option) {
        case OPTION_OUTPUT:
                m->output = argument;
                return *argument ? CLI_OK : cli_fail(CLI_USAGE, "--output takes a file, not ''");
        case OPTION_STEPS:
                if (units_parse_count(argument, &m->steps) < 0 || m->steps == 0)
                        return cli_fail(CLI_USAGE, "--steps is a number from 1, not '%s'",
                                        argument);
                return CLI_OK;
        case OPTION_SECONDS:
                return take_seconds("seconds", argument, false, &m->seconds_ns);
        case OPTION_WARM_UP:
                return take_seconds("warm-up", argument, true, &m->warm_up_ns);
        case OPTION_KEEP_RUNNING:
                m->keep_running = true;
                return CLI_OK;
        default:
                return launch_take(option - OWN_OPTIONS, argument, &m->launch);
        }
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash && slash[1] ? slash + 1 : path;
}

/* A script says more than its interpreter. */
static const char *job_name(const struct measuring *m)
{
        const char *program = base_name(m->command[0]);

        if (m->launch.name)
                return m->launch.name;
        if (strncmp(program, "python", 6) == 0)
                for (char **word = m->command + 1; *word && strcmp(*word, "-c") != 0; word++)
                        if (**word != '-')
                                return base_name(*word);
        return program;
}

static int name_output(struct measuring *m, char **ret_path)
{
        (void)text_copy(m->name, sizeof(m->name), job_name(m));
        if (m->output)
                *ret_path = strdup(m->output);
        else if (asprintf(ret_path, "%s.job.json", m->name) < 0)
                *ret_path = NULL;
        if (!*ret_path)
                return cli_fail(CLI_FAILED, "out of memory");
        if (!m->output && strchr(m->name, '/'))
                return cli_fail(CLI_USAGE, "the name '%s' makes no file name: give -o FILE",
                                m->name);
        return CLI_OK;
}

/* Found out before the program runs. */
static int check_output(const char *path)
{
        struct stat st;
        const bool existed = stat(path, &st) == 0;
        _cleanup_fclose_ FILE *out = fopen(path, "ae");

        if (!out)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", path);
        if (!existed)
                (void)unlink(path);
        return CLI_OK;
}

/* ---- the program ---- */

/* In shared memory, because the library writes there all the time. */
static int make_folder(struct measuring *m)
{
        const char *temporary = getenv("TMPDIR");

        (void)strcpy(m->folder, "/dev/shm/sublet-measure-XXXXXX");
        if (mkdtemp(m->folder))
                return CLI_OK;
        if (snprintf(m->folder, sizeof(m->folder), "%s/sublet-measure-XXXXXX",
                     temporary && *temporary ? temporary : "/tmp") >= (int)sizeof(m->folder) ||
            !mkdtemp(m->folder)) {
                m->folder[0] = 0;
                return cli_fail(CLI_FAILED, "cannot make a folder for the figures: %m");
        }
        return CLI_OK;
}

static _Noreturn void become_program(char **command)
{
        unshared_tell(command[0]);
        (void)execvp(command[0], command);
        if (errno == ENOENT && !strchr(command[0], '/'))
                _exit(cli_fail(CLI_NO_COMMAND, "there is no command '%s' in PATH", command[0]));
        _exit(cli_fail(errno == ENOENT ? CLI_NO_COMMAND : CLI_NO_EXECUTE, "cannot run '%s': %s",
                       command[0], strerror(errno)));
}

static int start(struct measuring *m)
{
        const struct sigaction action = {.sa_handler = on_signal};
        int r = CLI_OK;

        for (unsigned i = 0; r == CLI_OK && i < m->launch.n_variables; i++)
                if (strcmp(m->launch.variables[i].name, "LD_PRELOAD") != 0 &&
                    setenv(m->launch.variables[i].name, m->launch.variables[i].value, 1) < 0)
                        r = cli_fail(CLI_FAILED, "%s: %m", m->launch.variables[i].name);
        if (r != CLI_OK)
                return r;
        m->pid = fork();
        if (m->pid < 0)
                return cli_fail(CLI_FAILED, "cannot start a process: %m");
        if (m->pid == 0) {
                if (setenv("LD_PRELOAD", launch_value(&m->launch, "LD_PRELOAD"), 1) < 0 ||
                    setenv("SUBLET_MEASURE", m->folder, 1) < 0)
                        _exit(cli_fail(CLI_FAILED, "cannot set the environment: %m"));
                become_program(m->command);
        }
        /* Ctrl-C reaches the program, too, which decides what follows. */
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGHUP, &action, NULL);
        return CLI_OK;
}

static void look_after_program(struct measuring *m)
{
        if (!m->ended && waitpid(m->pid, &m->status, WNOHANG) == m->pid)
                m->ended = true;
        if (signalled && !m->ended && signalled != SIGINT)
                (void)kill(m->pid, signalled);
        signalled = 0;
}

/* Reads a few fields of /proc/PID/stat: the parent, and the processor time in seconds. */
static bool read_stat(pid_t pid, pid_t *ret_parent, double *ret_cpu_s)
{
        char path[32], text[1024];
        unsigned long user, system;
        const char *behind;
        FILE *f;
        size_t n;
        int parent;

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        f = fopen(path, "re");
        if (!f)
                return false;
        n = fread(text, 1, sizeof(text) - 1, f);
        (void)fclose(f);
        text[n] = 0;
        behind = strrchr(text, ')'); /* of the name, which may have spaces */
        if (!behind || sscanf(behind + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                              &parent, &user, &system) != 3)
                return false;
        *ret_parent = parent;
        *ret_cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
        return true;
}

static bool descends(pid_t pid, pid_t from)
{
        double cpu_s;

        for (unsigned i = 0; i < DEPTH_MOST && pid > 1; i++) {
                if (pid == from)
                        return true;
                if (!read_stat(pid, &pid, &cpu_s))
                        return false;
        }
        return false;
}

/* Sends a signal to the program, and to those processes below it that use the GPU: a shell or a
 * launcher does not always pass signals on. */
static void signal_all(const struct measuring *m, int signal)
{
        for (unsigned i = 0; i < m->end.n; i++) {
                const pid_t pid = (pid_t)m->end.page[i]->pid;

                if (pid != m->pid && descends(pid, m->pid))
                        (void)kill(pid, signal);
        }
        (void)kill(m->pid, signal);
}

static void nap(void)
{
        const struct timespec tick = {.tv_nsec = TICK_NS};

        (void)nanosleep(&tick, NULL);
}

static void end_program(struct measuring *m)
{
        const uint64_t until = clock_now_ns() + MERCY_NS;

        look_after_program(m);
        if (!m->ended)
                signal_all(m, SIGTERM);
        while (!m->ended && clock_now_ns() < until) {
                nap();
                look_after_program(m);
        }
        if (!m->ended) {
                signal_all(m, SIGKILL);
                (void)waitpid(m->pid, &m->status, 0);
                m->ended = true;
        }
}

/* ---- the measured time ---- */

static void note_cpu(struct measuring *m)
{
        const struct measure_page *p = pages_leader(&m->end, &m->first);
        pid_t parent;
        double cpu_s;

        if (p && read_stat((pid_t)p->pid, &parent, &cpu_s))
                m->cpu_now = cpu_s;
}

/* What the card's other users do is in its figures, too. */
static void look_for_others(struct measuring *m)
{
        pid_t own[PAGES_MAX];

        if (m->crowd_said || m->ended || m->stage != STAGE_WINDOW || m->ticks++ % OTHERS_EVERY != 0)
                return;
        for (unsigned i = 0; i < m->end.n; i++)
                own[i] = (pid_t)m->end.page[i]->pid;
        if (card_others(m->card, own, m->end.n) <= 0)
                return;
        m->crowd_said = true;
        (void)fprintf(stderr, "sublet: warning: other programs use this GPU: the figures are of "
                              "them, too; measure again when the GPU is free\n");
}

static void look_at_card(struct measuring *m)
{
        const struct measure_page *p = pages_leader(&m->end, &m->first);

        if (!m->card)
                return;
        if (!m->card_chosen && p) {
                m->card_chosen = true;
                if (!card_choose(m->card, p->uuid)) {
                        card_close(m->card);
                        m->card = NULL;
                        return;
                }
        }
        card_look(m->card);
        look_for_others(m);
}

static void begin_window(struct measuring *m)
{
        pages_free(&m->begin);
        pages_read(&m->begin, m->folder, true);
        m->begin_ns = clock_now_ns();
        m->cpu_begin = m->cpu_now;
        if (m->card)
                card_reset(m->card);
        m->stage = STAGE_WINDOW;
}

/* True if the steps that are counted now are others than when the window began. */
static bool steps_changed(const struct measuring *m)
{
        const struct measure_page *now = pages_leader(&m->end, &m->begin), *before;

        before = now ? pages_find(&m->begin, now->pid) : NULL;
        return before && pages_get(&before->era) != pages_get(&now->era);
}

static bool window_is_over(const struct measuring *m, uint64_t now)
{
        const unsigned long long steps = report_steps(&m->begin, &m->end);

        if (m->seconds_ns && now - m->begin_ns >= m->seconds_ns)
                return true;
        return m->steps && (steps >= m->steps || (steps == 0 && now - m->begin_ns >= NO_STEPS_NS));
}

static uint64_t first_launch_ns(const struct measuring *m)
{
        uint64_t first = UINT64_MAX;

        for (unsigned i = 0; i < m->end.n; i++)
                first = MIN(first, pages_get(&m->end.page[i]->first_ns));
        return first;
}

static void tick(struct measuring *m)
{
        const uint64_t now = clock_now_ns();

        pages_read(&m->end, m->folder, false);
        if (m->end.n > 0) {
                look_at_card(m);
                note_cpu(m);
        }
        switch (m->stage) {
        case STAGE_WAITS:
                if (m->end.n > 0)
                        m->stage = STAGE_WARMS;
                break;
        case STAGE_WARMS:
                if (now >= first_launch_ns(m) + m->warm_up_ns)
                        begin_window(m);
                break;
        case STAGE_WINDOW:
                if (steps_changed(m) && m->restarts < RESTARTS_MOST) {
                        m->restarts++;
                        begin_window(m);
                } else if (window_is_over(m, now)) {
                        m->stage = STAGE_OVER;
                }
                break;
        case STAGE_OVER:
                break;
        }
}

/* A program that ends early: all that was seen counts, if the window was too short. */
static void widen(struct measuring *m)
{
        const uint64_t seen_ns = sub_sat(m->end_ns, m->begin_ns);

        if (m->stage == STAGE_OVER)
                return;
        if (m->stage == STAGE_WINDOW && seen_ns >= LEAST_NS) {
                (void)fprintf(stderr,
                              "sublet: the program has ended after %.1f s of the measured time: "
                              "the figures are of these\n",
                              (double)seen_ns / 1e9);
                return;
        }
        pages_free(&m->begin);
        m->begin_ns = first_launch_ns(m);
        m->cpu_begin = NAN;
        (void)fprintf(stderr, "sublet: the program has ended before it was warm: the figures are "
                              "of all it did, its beginning as well\n");
}

static uint64_t last_launch_ns(const struct measuring *m)
{
        uint64_t last = 0;

        for (unsigned i = 0; i < m->end.n; i++)
                last = MAX(last, pages_get(&m->end.page[i]->last_ns));
        return last;
}

static void watch(struct measuring *m)
{
        while (!m->ended && m->stage != STAGE_OVER) {
                nap();
                look_after_program(m);
                tick(m);
        }
        pages_read(&m->end, m->folder, true);
        m->end_ns =
                m->stage == STAGE_OVER ? clock_now_ns() : MIN(clock_now_ns(), last_launch_ns(m));
}

/* ---- the file ---- */

static int write_job(const struct measuring *m, const struct job *job, const char *path)
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
                        return copy; /* a shorter command */
        }
        return copy;
}

static int report(struct measuring *m, const char *path)
{
        struct report_seen seen = {.begin = &m->begin,
                                   .end = &m->end,
                                   .seconds = (double)sub_sat(m->end_ns, m->begin_ns) / 1e9,
                                   .cpu_s = m->cpu_now - m->cpu_begin,
                                   .card = CARD_FIGURES_NONE};
        _cleanup_job_ struct job job;
        const time_t now = time(NULL);
        struct tm utc;
        int r;

        job_init(&job);
        if (m->card)
                card_figures(m->card, &seen.card);
        if (seen.seconds <= 0)
                return cli_fail(CLI_FAILED, "no job file: the program launched one kernel only");
        if (!report_fill(&seen, &job))
                return cli_fail(CLI_FAILED, "out of memory");
        (void)strcpy(job.name, m->name);
        job.command = copy_words(m->command);
        if (gmtime_r(&now, &utc))
                (void)strftime(job.measured.time, sizeof(job.measured.time), "%Y-%m-%dT%H:%M:%SZ",
                               &utc);
        r = write_job(m, &job, path);
        if (r == CLI_OK)
                (void)fprintf(stderr, "sublet: measured %.1f s, %.0f %s%s: %s\n",
                              job.measured.seconds, job.steps.count,
                              strcmp(job.steps.unit, "step") == 0 ? "step" : "launch",
                              job.steps.count == 1                  ? ""
                              : strcmp(job.steps.unit, "step") == 0 ? "s"
                                                                    : "es",
                              path);
        return r;
}

static int status_of(int status)
{
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int finish(struct measuring *m, const char *path)
{
        const bool on_its_own = m->ended;
        int r;

        if (m->end.n == 0) {
                if (m->ended && status_of(m->status) != 0)
                        return status_of(m->status);
                return cli_fail(CLI_FAILED,
                                "no job file: the program has not launched a kernel on a GPU");
        }
        widen(m);
        r = report(m, path);
        if (!m->ended && m->keep_running)
                while (!m->ended) {
                        nap();
                        look_after_program(m);
                }
        else if (!m->ended)
                end_program(m);
        return r == CLI_OK && (on_its_own || m->keep_running) ? status_of(m->status) : r;
}

static int measure(struct measuring *m, const char *path)
{
        char simulator[PATH_MAX];
        int r = check_output(path);

        if (r == CLI_OK)
                r = launch_complete(&m->launch);
        if (r == CLI_OK)
                r = make_folder(m);
        if (r == CLI_OK)
                r = start(m);
        if (r != CLI_OK)
                return r;
        m->card = card_open(m->launch.simulated && parts_find(PART_SIMULATOR, simulator) == 0
                                    ? simulator
                                    : NULL);
        watch(m);
        return finish(m, path);
}

int measure_main(const struct cli_command *self, int argc, char **argv)
{
        struct measuring m = {.warm_up_ns = WARM_UP_DEFAULT, .cpu_begin = NAN, .cpu_now = NAN};
        _cleanup_free_ char *path = NULL;
        int words, r;

        r = cli_parse(self, argc, argv, 1, take, &m, &words);
        if (r == CLI_OK && words == 0)
                r = cli_fail(CLI_USAGE, "measure needs a command to run");
        if (r == CLI_OK) {
                m.command = argv;
                if (!m.steps && !m.seconds_ns)
                        m.seconds_ns = SECONDS_DEFAULT * NSEC_PER_SEC;
                r = name_output(&m, &path);
        }
        if (r == CLI_OK)
                r = measure(&m, path);
        if (m.folder[0])
                pages_remove(m.folder);
        pages_free(&m.begin);
        pages_free(&m.end);
        card_close(m.card);
        launch_clear(&m.launch);
        return cli_parsed(r);
}
