/* measure_run.c: owns the program's process and the measured time. Must never leave the program
 * running when it is to end, nor a file of its own behind. */
#include "lab/measure/measure_run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/launch/unshared.h"
#include "mps/mps.h"

#define TICK_NS       (100 * NSEC_PER_MSEC)
#define NO_STEPS_NS   (60 * NSEC_PER_SEC) /* --steps: how long to wait for the first step */
#define LEAST_NS      NSEC_PER_SEC        /* if the window is shorter, all that was seen counts */
#define MERCY_NS      (10 * NSEC_PER_SEC) /* time from SIGTERM to SIGKILL */
#define RESTARTS_MOST 4u                  /* restarts of the window, when a longer step is found */
#define OTHERS_EVERY  10u
#define DEPTH_MOST    64u

static volatile sig_atomic_t signalled;

static void on_signal(int signal)
{
        signalled = signal;
}

int measure_run_signalled(void)
{
        return signalled;
}

/* ---- the program ---- */

/* Makes the folder in shared memory if possible, because the library writes there all the time. */
static int make_folder(struct measure_run *r)
{
        const char *temporary = getenv("TMPDIR");

        (void)strcpy(r->folder, "/dev/shm/sublet-measure-XXXXXX");
        if (mkdtemp(r->folder))
                return CLI_OK;
        if (snprintf(r->folder, sizeof(r->folder), "%s/sublet-measure-XXXXXX",
                     temporary && *temporary ? temporary : "/tmp") >= (int)sizeof(r->folder) ||
            !mkdtemp(r->folder)) {
                r->folder[0] = 0;
                return cli_fail(CLI_FAILED, "cannot make a folder for the figures: %m");
        }
        return CLI_OK;
}

static int set(const char *name, const char *value)
{
        return (value ? setenv(name, value, 1) : unsetenv(name)) < 0
                       ? cli_fail(CLI_FAILED, "cannot set %s: %m", name)
                       : CLI_OK;
}

/* Sets the variables of the program. Call it in the child. */
static int set_variables(const struct measure_run *r)
{
        int result = set("LD_PRELOAD", launch_value(r->launch, "LD_PRELOAD"));

        for (unsigned i = 0; result == CLI_OK && i < r->launch->n_variables; i++)
                if (strcmp(r->launch->variables[i].name, "LD_PRELOAD") != 0)
                        result = set(r->launch->variables[i].name, r->launch->variables[i].value);
        if (result == CLI_OK)
                result = set("SUBLET_MEASURE", r->folder);
        if (result != CLI_OK || !r->mps)
                return result;
        result = set("CUDA_MPS_PIPE_DIRECTORY", r->mps);
        if (result == CLI_OK)
                result = set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", MPS_SHARE_PERCENT);
        if (result == CLI_OK)
                result = set(launch_gpus_variable(r->launch), r->gpu);
        /* Otherwise the library would ask the daemon for another server. */
        return result == CLI_OK ? set("SUBLET_WAY", "auto") : result;
}

static _Noreturn void become_program(const struct measure_run *r)
{
        const char *program = r->command[0];
        const int result = set_variables(r);

        if (result != CLI_OK)
                _exit(result);
        unshared_tell(program);
        (void)execvp(program, r->command);
        if (errno == ENOENT && !strchr(program, '/'))
                _exit(cli_fail(CLI_NO_COMMAND, "there is no command '%s' in PATH", program));
        _exit(cli_fail(errno == ENOENT ? CLI_NO_COMMAND : CLI_NO_EXECUTE, "cannot run '%s': %s",
                       program, strerror(errno)));
}

int measure_run_start(struct measure_run *r)
{
        const struct sigaction action = {.sa_handler = on_signal};
        const int result = make_folder(r);

        if (result != CLI_OK)
                return result;
        r->cpu_begin = r->cpu_now = NAN;
        r->started_ns = clock_now_ns();
        r->pid = fork();
        if (r->pid < 0)
                return cli_fail(CLI_FAILED, "cannot start a process: %m");
        if (r->pid == 0)
                become_program(r);
        /* Ctrl-C reaches the program, too, and the program decides what follows. */
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGHUP, &action, NULL);
        return CLI_OK;
}

static void look_after_program(struct measure_run *r)
{
        const int signal = signalled;

        if (!r->ended && waitpid(r->pid, &r->status, WNOHANG) == r->pid)
                r->ended = true;
        if (!signal)
                return;
        signalled = 0;
        r->signal = signal;
        if (!r->ended && signal != SIGINT)
                (void)kill(r->pid, signal);
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
        behind = strrchr(text, ')'); /* the end of the name, which may have spaces */
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
static void signal_all(const struct measure_run *r, int signal)
{
        for (unsigned i = 0; i < r->end.n; i++) {
                const pid_t pid = (pid_t)r->end.page[i]->pid;

                if (pid != r->pid && descends(pid, r->pid))
                        (void)kill(pid, signal);
        }
        (void)kill(r->pid, signal);
}

static void nap(void)
{
        const struct timespec tick = {.tv_nsec = TICK_NS};

        (void)nanosleep(&tick, NULL);
}

void measure_run_end(struct measure_run *r)
{
        const uint64_t until = clock_now_ns() + MERCY_NS;

        look_after_program(r);
        if (!r->ended)
                signal_all(r, SIGTERM);
        while (!r->ended && clock_now_ns() < until) {
                nap();
                look_after_program(r);
        }
        if (!r->ended) {
                signal_all(r, SIGKILL);
                (void)waitpid(r->pid, &r->status, 0);
                r->ended = true;
        }
}

/* ---- the measured time ---- */

static void note_cpu(struct measure_run *r)
{
        const struct measure_page *p = pages_leader(&r->end, &r->first);
        pid_t parent;
        double cpu_s;

        if (p && read_stat((pid_t)p->pid, &parent, &cpu_s))
                r->cpu_now = cpu_s;
}

/* Warns of other programs on the card, because the card's figures include them. */
static void look_for_others(struct measure_run *r)
{
        pid_t own[PAGES_MAX];

        if (r->crowd_said || r->ended || r->stage != MEASURE_WINDOW ||
            r->ticks++ % OTHERS_EVERY != 0)
                return;
        for (unsigned i = 0; i < r->end.n; i++)
                own[i] = (pid_t)r->end.page[i]->pid;
        if (card_others(r->card, own, r->end.n) <= 0)
                return;
        r->crowd_said = true;
        (void)fprintf(stderr, "sublet: warning: other programs use this GPU: the figures include "
                              "theirs; measure again when the GPU is free\n");
}

static void look_at_card(struct measure_run *r)
{
        const struct measure_page *p = pages_leader(&r->end, &r->first);

        if (!r->card)
                return;
        if (!r->card_chosen && p) {
                r->card_chosen = true;
                if (!card_choose(r->card, p->uuid)) {
                        card_close(r->card);
                        r->card = NULL;
                        return;
                }
        }
        card_look(r->card);
        look_for_others(r);
}

static void begin_window(struct measure_run *r)
{
        pages_free(&r->begin);
        pages_read(&r->begin, r->folder, true);
        r->begin_ns = clock_now_ns();
        r->cpu_begin = r->cpu_now;
        if (r->card)
                card_reset(r->card);
        r->stage = MEASURE_WINDOW;
}

/* True if the steps that are counted now are others than when the window began. */
static bool steps_changed(const struct measure_run *r)
{
        const struct measure_page *now = pages_leader(&r->end, &r->begin), *before;

        before = now ? pages_find(&r->begin, now->pid) : NULL;
        return before && pages_get(&before->era) != pages_get(&now->era);
}

static bool window_is_over(const struct measure_run *r, uint64_t now)
{
        const unsigned long long steps = report_steps(&r->begin, &r->end);

        if (r->seconds_ns && now - r->begin_ns >= r->seconds_ns)
                return true;
        return r->steps && (steps >= r->steps || (steps == 0 && now - r->begin_ns >= NO_STEPS_NS));
}

uint64_t measure_run_first_ns(const struct measure_run *r)
{
        uint64_t first = UINT64_MAX;

        for (unsigned i = 0; i < r->end.n; i++)
                first = MIN(first, pages_get(&r->end.page[i]->first_ns));
        return first;
}

static void tick(struct measure_run *r)
{
        const uint64_t now = clock_now_ns();

        pages_read(&r->end, r->folder, false);
        if (r->end.n > 0) {
                look_at_card(r);
                note_cpu(r);
        }
        switch (r->stage) {
        case MEASURE_WAITS:
                if (r->end.n > 0)
                        r->stage = MEASURE_WARMS;
                break;
        case MEASURE_WARMS:
                if (now >= measure_run_first_ns(r) + r->warm_up_ns)
                        begin_window(r);
                break;
        case MEASURE_WINDOW:
                if (!r->mps && steps_changed(r) && r->restarts < RESTARTS_MOST) {
                        r->restarts++;
                        begin_window(r);
                } else if (window_is_over(r, now)) {
                        r->stage = MEASURE_OVER;
                }
                break;
        case MEASURE_OVER:
                break;
        }
}

/* If a program ended early and the window is too short, all that was seen counts. */
void measure_run_widen(struct measure_run *r)
{
        const uint64_t seen_ns = sub_sat(r->end_ns, r->begin_ns);

        if (r->stage == MEASURE_OVER)
                return;
        if (r->stage == MEASURE_WINDOW && seen_ns >= LEAST_NS) {
                (void)fprintf(stderr,
                              "sublet: the program has ended after %.1f s of the measured time: "
                              "the figures are of this time\n",
                              (double)seen_ns / 1e9);
                return;
        }
        r->lasted = true;
        pages_free(&r->begin);
        r->begin_ns = measure_run_first_ns(r);
        r->cpu_begin = NAN;
        (void)fprintf(stderr, "sublet: the program has ended before it was warm: the figures "
                              "cover all that it did, its beginning as well\n");
}

static uint64_t last_launch_ns(const struct measure_run *r)
{
        uint64_t last = 0;

        for (unsigned i = 0; i < r->end.n; i++)
                last = MAX(last, pages_get(&r->end.page[i]->last_ns));
        return last;
}

/* True if a run under MPS got a signal, or if the first kernel has not come in time. The
 * program's first run is never given up. */
static bool is_given_up(const struct measure_run *r)
{
        return (r->mps && r->signal) || (r->patience_ns && r->stage == MEASURE_WAITS &&
                                         clock_now_ns() >= r->started_ns + r->patience_ns);
}

void measure_run_watch(struct measure_run *r)
{
        while (!r->ended && r->stage != MEASURE_OVER && !is_given_up(r)) {
                nap();
                look_after_program(r);
                tick(r);
        }
        pages_read(&r->end, r->folder, true);
        r->end_ns =
                r->stage == MEASURE_OVER ? clock_now_ns() : MIN(clock_now_ns(), last_launch_ns(r));
}

void measure_run_again(struct measure_run *r)
{
        begin_window(r);
        measure_run_watch(r);
}

struct report_seen measure_run_seen(const struct measure_run *r)
{
        struct report_seen seen = {.begin = &r->begin,
                                   .end = &r->end,
                                   .seconds = (double)sub_sat(r->end_ns, r->begin_ns) / 1e9,
                                   .cpu_s = r->cpu_now - r->cpu_begin,
                                   .card = CARD_FIGURES_NONE};

        if (r->card)
                card_figures(r->card, &seen.card);
        return seen;
}

void measure_run_wait(struct measure_run *r)
{
        while (!r->ended) {
                nap();
                look_after_program(r);
        }
}

int measure_run_status(const struct measure_run *r)
{
        return WIFSIGNALED(r->status) ? 128 + WTERMSIG(r->status) : WEXITSTATUS(r->status);
}

void measure_run_clear(struct measure_run *r)
{
        if (r->folder[0])
                pages_remove(r->folder);
        pages_free(&r->begin);
        pages_free(&r->end);
        card_close(r->card);
}
