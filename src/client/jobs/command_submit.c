/* command_submit.c: sublet submit. Owns the job from its place in the queue to its end. Must start
 * the program once at most, pass signals on to it, and end as it does. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/program_name.h"
#include "base/settings.h"
#include "base/text.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/launch/launch_gpu.h"
#include "client/launch/launch.h"
#include "job/pages.h"
#include "client/jobs/submit_place.h"
#include "client/launch/unshared.h"
#include "mps/mps.h"
#include "job/job.h"
#include "job/ways.h"

#define FILE_MAX_BYTES (256u << 10) /* the most that the daemon takes */
#define NAME_MAX_BYTES 63u
#define TICK_MS        1000
#define RETRY_NS       (NSEC_PER_SEC / 2)
#define NO_GPU_NS      (5 * NSEC_PER_SEC) /* a daemon that has just started finds its GPUs by then */
#define WARM_NS        (3 * NSEC_PER_SEC) /* from the first launch to the first progress told */
#define BY_SIGNAL      128                /* plus the signal's number, as in shells */

struct submitting {
        /* The command line. */
        const char *job_path;
        double bound;
        bool ways[WAYS];
        uint64_t wait_ns; /* 0: for ever */
        struct launch launch;
        char **command;

        struct job job;
        bool has_job;
        struct place place;
        int signals;        /* descriptor of signalfd() */
        char folder[40];    /* folder of the library's counts; "": none */
        double alone;       /* launches a second alone; 0: not known */
        bool told;          /* people were told why it waits */
        uint64_t no_gpu_ns; /* since when the daemon has known no GPU; 0: it knows one */
        uint64_t retry_ns;
        bool left_out; /* the daemon does not take it back: it goes on outside of the queue */

        pid_t pid; /* 0: it waits */
        int status;
        bool ended;
        uint64_t launches, counted_ns, first_ns;
};

/* ---- options ---- */

#define AT(field) offsetof(struct submitting, field)

const struct option_row submit_options[] = {
        {"job", "FILE", "what sublet measure wrote about it; without it, the job runs alone",
         options_set_text, AT(job_path)},
        {"qos", "PART",
         "the bound: the least progress that it keeps beside another job, of its own alone (0.7)",
         options_set_part, AT(bound), .form = "a part from 0.01 to 0.99"},
        {"way", "WAYS",
         "ways that are allowed beside another job: sliced, turns, shared (MPS, if the owner "
         "allows it), several with commas, or auto (all, the default)",
         ways_set, AT(ways), "auto", WAYS_FORM},
        {"wait-at-most", "TIME",
         "give up if it has not started after so long, such as 30min; until then also wait for a "
         "GPU where none is known",
         options_set_duration, AT(wait_ns), .form = "a time such as 30min"},
        {.more = launch_options, .at = AT(launch)},
};

/* ---- before the queue ---- */

static int read_job(struct submitting *s)
{
        char error[JOB_ERROR_MAX];
        json_t *json;

        if (!s->job_path)
                return CLI_OK;
        if (job_read(s->job_path, &s->job, error) < 0)
                return cli_fail(CLI_FAILED, "%s", error);
        s->has_job = true;
        json = job_to_json(&s->job);
        s->place.file = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
        json_decref(json);
        s->place.file_size = s->place.file ? strlen(s->place.file) : 0;
        if (s->place.file_size == 0 || s->place.file_size > FILE_MAX_BYTES)
                return cli_fail(CLI_FAILED, "%s: a job file has at most %u KiB", s->job_path,
                                FILE_MAX_BYTES >> 10);
        if (s->job.launch.per_second > 0)
                s->alone = s->job.launch.per_second;
        if (s->job.launch.graphs_per_second > 0)
                s->alone += s->job.launch.graphs_per_second;
        return CLI_OK;
}

/* Makes the folder in shared memory, because the library writes there all the time. Without the
 * folder the job runs, but its progress is not known. */
static void make_folder(struct submitting *s)
{
        if (!(s->alone > 0))
                return;
        (void)strcpy(s->folder, "/dev/shm/sublet-submit-XXXXXX");
        if (mkdtemp(s->folder))
                return;
        (void)strcpy(s->folder, "/tmp/sublet-submit-XXXXXX");
        if (!mkdtemp(s->folder))
                s->folder[0] = '\0';
}

/* Returns the job's name: the one that --name or the job file gives. Without one, it is the name
 * that status would show. */
static const char *name_of(const struct submitting *s, char ret[static NAME_MAX_BYTES + 1])
{
        const char *said = s->launch.name ? s->launch.name : s->has_job ? s->job.name : "";

        if (*said)
                return text_copy(ret, NAME_MAX_BYTES + 1, said);
        name_of_words(s->command, ret, NAME_MAX_BYTES + 1);
        return ret;
}

static json_t *order_of(const struct submitting *s)
{
        char name[NAME_MAX_BYTES + 1];
        json_t *ways = json_array();

        for (unsigned w = 0; w < WAYS; w++)
                if (s->ways[w])
                        (void)json_array_append_new(ways, json_string(way_names[w]));
        return json_pack("{ss ss sf so sI}", "order", "submit", "name", name_of(s, name), "bound",
                         s->bound, "ways", ways, "bytes", (json_int_t)s->place.file_size);
}

static int open_signals(struct submitting *s)
{
        static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
        sigset_t mask;

        (void)sigemptyset(&mask);
        for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
                (void)sigaddset(&mask, caught[i]);
        (void)sigprocmask(SIG_BLOCK, &mask, NULL);
        (void)signal(SIGCHLD, SIG_DFL);
        s->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        return s->signals < 0 ? cli_fail(CLI_FAILED, "cannot watch signals: %m") : CLI_OK;
}

/* ---- the program ---- */

static bool is_shared(const struct submitting *s)
{
        return strcmp(s->place.way, way_names[WAY_SHARED]) == 0;
}

/* Sets the job's share of the SMs under MPS, unless its user has set a smaller one. */
static int set_share(void)
{
        static const char variable[] = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
        const char *own = getenv(variable);
        char *end = NULL;
        const double percent = own ? strtod(own, &end) : 0;

        if (percent > 0 && percent < strtod(MPS_SHARE_PERCENT, NULL) && !*end)
                return 0;
        return setenv(variable, MPS_SHARE_PERCENT, 1);
}

/* Shows the program the GPU that the daemon has chosen. Ranks need no more than its UUID, because
 * they number their devices themselves. */
static void show_gpu(struct submitting *s)
{
        struct launch *l = &s->launch;
        const bool ranks = launch_value(l, settings[SETTING_RANKS].name);
        int r = ranks ? launch_set(l, launch_gpus_variable(l), strdup(s->place.gpu))
                      : gpu_show(l, s->place.dir, s->place.kind, s->place.gpu);

        if (r == CLI_OK)
                r = launch_apply(l);
        if (r != CLI_OK)
                _exit(r);
}

static _Noreturn void become_program(struct submitting *s)
{
        sigset_t none;

        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        show_gpu(s);
        if (setenv("SUBLET_WAY", is_shared(s) ? "shared" : "auto", 1) < 0 ||
            (is_shared(s) && set_share() < 0) ||
            (*s->folder && (setenv("SUBLET_MEASURE", s->folder, 1) < 0 ||
                            setenv("SUBLET_MEASURE_COUNTS", "1", 1) < 0)))
                _exit(cli_fail(CLI_FAILED, "cannot set the environment: %m"));
        unshared_tell(s->command[0]);
        (void)execvp(s->command[0], s->command);
        if (errno == ENOENT && !strchr(s->command[0], '/'))
                _exit(cli_fail(CLI_NO_COMMAND, "there is no command '%s' in PATH", s->command[0]));
        _exit(cli_fail(errno == ENOENT ? CLI_NO_COMMAND : CLI_NO_EXECUTE, "cannot run '%s': %s",
                       s->command[0], strerror(errno)));
}

static void tell_start(const struct submitting *s, const json_t *start)
{
        const char *beside = json_string_value(json_object_get(start, "beside"));

        if (!s->told && !s->launch.verbose)
                return;
        if (beside)
                (void)fprintf(stderr,
                              "sublet: the job starts on %s beside %s (%s), with a predicted "
                              "progress of %.2f\n",
                              s->place.gpu, beside, s->place.way,
                              json_number_value(json_object_get(start, "progress")));
        else
                (void)fprintf(stderr, "sublet: the job starts on %s, alone%s\n", s->place.gpu,
                              is_shared(s) ? " in half of the SMs" : "");
}

static int start_program(struct submitting *s, const json_t *start)
{
        const char *gpu = json_string_value(json_object_get(start, "gpu"));
        const char *way = json_string_value(json_object_get(start, "way"));

        if (!gpu || !way || s->pid || strlen(gpu) >= sizeof(s->place.gpu) ||
            strlen(way) >= sizeof(s->place.way))
                return cli_fail(CLI_FAILED,
                                "the daemon does not speak the language of this release "
                                "(%s)",
                                SUBLET_VERSION);
        (void)strcpy(s->place.gpu, gpu);
        (void)strcpy(s->place.way, way);
        tell_start(s, start);
        /* Orphans of the job become this process's children, by which the daemon knows them. */
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        s->pid = fork();
        if (s->pid == 0)
                become_program(s);
        s->place.pid = s->pid;
        return s->pid < 0 ? cli_fail(CLI_FAILED, "cannot start a process: %m") : CLI_OK;
}

static void reap(struct submitting *s)
{
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                if (pid == s->pid) {
                        s->ended = true;
                        s->status = WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status)
                                                        : WEXITSTATUS(status);
                }
}

/* While the job waits, a signal ends the waiting. A terminal's Ctrl-C reaches the program without
 * us. Returns 0, or the status to end with. */
static int on_signals(struct submitting *s)
{
        struct signalfd_siginfo si;

        while (read(s->signals, &si, sizeof(si)) == sizeof(si)) {
                if (si.ssi_signo == SIGCHLD)
                        reap(s);
                else if (!s->pid)
                        return BY_SIGNAL + (int)si.ssi_signo;
                else if (!s->ended && si.ssi_code != SI_KERNEL)
                        (void)kill(s->pid, (int)si.ssi_signo);
        }
        return 0;
}

/* ---- progress ---- */

static uint64_t count_launches(const struct submitting *s)
{
        struct pages p = {0};
        uint64_t n = 0;

        pages_read(&p, s->folder, true);
        for (unsigned i = 0; i < p.n; i++) {
                const struct measure_page *page = p.page[i];

                n += pages_get(&page->unlisted);
                for (uint32_t k = 0; k < atomic_load(&page->kernel_count); k++)
                        n += pages_get(&page->kernels[k].time.launches);
                for (uint32_t k = 0; k < atomic_load(&page->graph_count); k++)
                        n += pages_get(&page->graphs[k].time.launches);
        }
        pages_free(&p);
        return n;
}

/* Tells the daemon the progress: the rate of launches since the last time, divided by the rate of
 * the job alone. */
static void tell_progress(struct submitting *s)
{
        const uint64_t now = clock_now_ns();
        uint64_t launches;

        if (!*s->folder || s->place.fd < 0 || now - s->counted_ns < TICK_MS * NSEC_PER_MSEC)
                return;
        launches = count_launches(s);
        if (launches && !s->first_ns)
                s->first_ns = now;
        if (s->first_ns && now - s->first_ns >= WARM_NS)
                place_tell_progress(&s->place, (double)sub_sat(launches, s->launches) * 1e9 /
                                                       (double)(now - s->counted_ns) / s->alone);
        s->launches = launches;
        s->counted_ns = now;
}

/* ---- the queue ---- */

static int on_message(struct submitting *s, const json_t *message)
{
        const char *waits = json_string_value(json_object_get(message, "waits"));
        const char *warning = json_string_value(json_object_get(message, "warning"));
        const char *error = json_string_value(json_object_get(message, "error"));
        const json_t *start = json_object_get(message, "start");

        if (start)
                return start_program(s, start);
        if (error && !s->pid)
                return cli_fail(CLI_FAILED, "%s", error);
        if (warning)
                (void)fprintf(stderr,
                              "sublet: the job file is not used, so the job runs alone: %s\n",
                              warning);
        if (waits && !s->pid) {
                if (!json_is_true(json_object_get(message, "no_gpu")))
                        s->no_gpu_ns = 0;
                else if (!s->no_gpu_ns)
                        s->no_gpu_ns = clock_now_ns();
                (void)fprintf(stderr, "sublet: the job waits, %s\n", waits);
                s->told = true;
        }
        return CLI_OK;
}

/* Asks for a place again, because the daemon has ended; a new daemon may have come. */
static int come_back(struct submitting *s)
{
        const uint64_t now = clock_now_ns();
        int r;

        if (s->left_out || now < s->retry_ns)
                return CLI_OK;
        if (!s->pid && !s->place.waits_for_daemon)
                (void)fprintf(stderr, "sublet: the daemon has ended; the job waits for the next\n");
        s->place.waits_for_daemon = true;
        s->retry_ns = now + RETRY_NS;
        r = place_take(&s->place, false);
        if (r == -EACCES && !s->pid)
                return CLI_FAILED;
        s->left_out = r == -EACCES;
        s->place.waits_for_daemon = r < 0;
        return CLI_OK;
}

static int read_messages(struct submitting *s)
{
        json_t *message;
        int r = CLI_OK;

        while (r == CLI_OK && s->place.fd >= 0 && place_read(&s->place, &message) > 0) {
                r = on_message(s, message);
                json_decref(message);
        }
        return r;
}

/* True if the daemon knows no GPU, and no --wait-at-most lets the job wait for one. */
static bool has_no_gpu(const struct submitting *s)
{
        return !s->wait_ns && s->no_gpu_ns && clock_now_ns() - s->no_gpu_ns >= NO_GPU_NS;
}

/* Follows the job until it has ended. Returns the status to end with. */
static int attend(struct submitting *s)
{
        const uint64_t began = clock_now_ns();
        int r = CLI_OK;

        while (r == CLI_OK && !s->ended) {
                struct pollfd fds[] = {{s->signals, POLLIN, 0}, {s->place.fd, POLLIN, 0}};

                if (s->place.fd < 0)
                        r = come_back(s);
                if (r != CLI_OK)
                        break;
                fds[1].fd = s->place.fd;
                (void)poll(fds, ARRAY_SIZE(fds), s->place.fd < 0 ? TICK_MS / 4 : TICK_MS);
                r = on_signals(s);
                if (r == CLI_OK && !s->ended)
                        r = read_messages(s);
                if (s->pid)
                        tell_progress(s);
                else if (r == CLI_OK && has_no_gpu(s))
                        r = cli_fail(CLI_FAILED,
                                     "the job cannot start, because no GPU is known here: is "
                                     "NVIDIA's driver loaded? sublet doctor looks; --wait-at-most "
                                     "waits for one");
                else if (r == CLI_OK && s->wait_ns && clock_now_ns() - began >= s->wait_ns)
                        r = cli_fail(CLI_FAILED, "the job has not started within the time of "
                                                 "--wait-at-most");
        }
        return s->ended ? s->status : r;
}

static int submit(struct submitting *s)
{
        const struct target target = {.daemon = launch_value(&s->launch, "SUBLET_DIR")};
        int r = target_dir(&target, s->place.dir, &s->place.kind);

        s->place.launch = &s->launch;
        s->place.order = r == CLI_OK ? order_of(s) : NULL;
        if (r == CLI_OK && !s->place.order)
                r = cli_fail(CLI_FAILED, "out of memory");
        if (r == CLI_OK)
                r = open_signals(s);
        if (r == CLI_OK && place_take(&s->place, true) < 0)
                r = CLI_FAILED;
        if (r == CLI_OK)
                r = launch_apply(&s->launch);
        if (r != CLI_OK)
                return r;
        make_folder(s);
        r = attend(s);
        if (*s->folder)
                pages_remove(s->folder);
        return r;
}

int submit_main(const struct cli_command *self, int argc, char **argv)
{
        struct submitting s = {.bound = 0.7, .place = {.fd = -EBADF}, .signals = -EBADF};
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_COMMAND, &s, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        s.command = argv;
        if (words == 0)
                r = cli_fail(CLI_USAGE, "submit needs a command to run");
        else if (s.launch.gpu)
                r = cli_fail(CLI_USAGE, "the daemon chooses the GPU of a submitted job: leave out "
                                        "--gpu, or use sublet run");
        if (r == CLI_OK)
                r = read_job(&s);
        if (r == CLI_OK)
                r = launch_complete(&s.launch);
        if (r == CLI_OK)
                r = submit(&s);
        place_leave(&s.place);
        cleanup_close(&s.signals);
        json_decref(s.place.order);
        free(s.place.file);
        job_free(&s.job);
        launch_clear(&s.launch);
        return r;
}
