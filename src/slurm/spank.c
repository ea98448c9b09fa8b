/* spank.c: owns what Slurm calls, in srun and its like, and on a node in slurmstepd. Must never end
 * or hang Slurm's own processes: a fault ends in a sentence, and the administrator's file says
 * whether the job then runs without sublet.
 *
 * All state is of one process, which Slurm starts for one step. */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Slurm 26.05 asks for a job by a slurm_step_id_t, and with this macro also by its number, as
 * before. */
#define SLURM_BACKWARD_COMPAT
#include <slurm/slurm.h>
/* Slurm finds these by name. */
#pragma GCC visibility push(default)
#include <slurm/spank.h>
SPANK_PLUGIN(sublet, 1)
#pragma GCC visibility pop

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/daemon_paths.h"
#include "base/preload_list.h"
#include "slurm/job_bounds.h"
#include "slurm/slurm_jobs.h"
#include "slurm/wishes.h"

#define SYSTEM_DIR     "/run/sublet"
#define STATUS_REFUSED 125 /* also the status of sublet run if parts of sublet are missing */

static struct {
        /* from plugstack.conf */
        char dir[PATHS_DIR_MAX];
        char library[PATH_MAX];
        char config[PATH_MAX];
        /* from the command line */
        bool asked;
        struct wishes wishes;
        /* of the step */
        uint32_t job;
        int lock; /* lock of jobs_enter(); -EBADF: there is none */
        bool refused;
        char sentences[4][JOBS_SENTENCE_MAX];
        unsigned n_sentences;
} plugin = {.dir = SYSTEM_DIR, .config = BOUNDS_FILE, .lock = -EBADF};

/* ---- words for the user ---- */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Keeps a sentence until the step has a stderr, and also writes it to slurmd's log. */
static void say(const char *format, ...)
{
        /* There is room for all faults; if not, a new one replaces the last. */
        char *sentence =
                plugin.sentences[MIN(plugin.n_sentences, ARRAY_SIZE(plugin.sentences) - 1)];
        va_list args;

        plugin.n_sentences = (unsigned)MIN(plugin.n_sentences + 1, ARRAY_SIZE(plugin.sentences));
        va_start(args, format);
        (void)vsnprintf(sentence, JOBS_SENTENCE_MAX, format, args);
        va_end(args);
        slurm_verbose("sublet: %s", sentence);
}

/* ---- the option ---- */

static int take_option(int value, const char *text, int remote)
{
        char error[WISHES_ERROR_MAX];

        const int r = wishes_parse(text, &plugin.wishes, error);

        if (r < 0)
                slurm_error("%s", error);
        plugin.asked = true;
        /* On a node an error would count as a fault of the node. A wrong text gets there only if
         * the user's srun did not check it, and then asks for nothing. */
        return r < 0 && !remote ? -1 : 0;
}

static char option_name[] = "sublet";
static char option_form[] = "share=MIN[:MAX],weight=N,cap=SIZE,priority=N";
static char option_usage[] = "run under sublet, on a GPU shared with other jobs; --sublet=off: do "
                             "not";
static struct spank_option option = {option_name, option_form, option_usage, 2, 0, take_option};

/* ---- set-up ---- */

/* Finds the library beside this plugin. */
static void find_library(void)
{
        Dl_info self;
        const char *slash;

        if (dladdr(&plugin, &self) == 0 || !self.dli_fname)
                return;
        slash = strrchr(self.dli_fname, '/');
        if (slash)
                (void)snprintf(plugin.library, sizeof(plugin.library), "%.*s/libsublet.so",
                               (int)(slash - self.dli_fname), self.dli_fname);
}

static bool take_argument(const char *argument)
{
        const struct {
                const char *key;
                char *field;
                size_t size;
        } keys[] = {
                {"dir=", plugin.dir, sizeof(plugin.dir)},
                {"library=", plugin.library, sizeof(plugin.library)},
                {"config=", plugin.config, sizeof(plugin.config)},
        };

        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                const char *value = argument + strlen(keys[i].key);

                if (strncmp(argument, keys[i].key, strlen(keys[i].key)) == 0)
                        return value[0] == '/' && snprintf(keys[i].field, keys[i].size, "%s",
                                                           value) < (int)keys[i].size;
        }
        return false;
}

static int take_arguments(int argc, char *argv[])
{
        find_library();
        for (int i = 0; i < argc; i++)
                if (!take_argument(argv[i])) {
                        slurm_error("sublet: plugstack.conf takes dir=, library= and config= with "
                                    "an absolute path, not '%s'",
                                    argv[i]);
                        return -1;
                }
        return 0;
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
        if (take_arguments(argc, argv) < 0)
                return -1;
        return spank_context() == S_CTX_SLURMD ? 0 : spank_option_register(spank, &option);
}

/* ---- the environment of the step's programs ---- */

/* Returns the value in the job's environment, of any length; NULL: it is unset. */
static const char *value_of(spank_t spank, const char *variable)
{
        const size_t n = strlen(variable);
        char **environment = NULL;

        if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS || !environment)
                return NULL;
        for (; *environment; environment++)
                if (strncmp(*environment, variable, n) == 0 && (*environment)[n] == '=')
                        return *environment + n + 1;
        return NULL;
}

/* library NULL: takes sublet out of the environment, which a batch script hands on to its steps. */
static int set_preload(spank_t spank, const char *library)
{
        _cleanup_free_ char *value = preload_list(value_of(spank, "LD_PRELOAD"), library);
        spank_err_t r;

        if (!value)
                return -ENOMEM;
        if (!value[0])
                r = value_of(spank, "LD_PRELOAD") ? spank_unsetenv(spank, "LD_PRELOAD")
                                                  : ESPANK_SUCCESS;
        else
                r = spank_setenv(spank, "LD_PRELOAD", value, 1);
        return r == ESPANK_SUCCESS ? 0 : -EINVAL;
}

static int set_environment(spank_t spank)
{
        _cleanup_free_ char *asan = preload_asan_options(value_of(spank, "ASAN_OPTIONS"));
        int r = set_preload(spank, plugin.library);

        if (r < 0)
                return r;
        if (asan)
                (void)spank_setenv(spank, "ASAN_OPTIONS", asan, 1);
        /* SUBLET_DIR of the shell in which the job was submitted may name a private daemon.
         * Programs find the machine's daemon without the variable, and wait while it restarts. They
         * wait for another daemon only with SUBLET_REQUIRE. */
        if (strcmp(plugin.dir, SYSTEM_DIR) == 0) {
                if (value_of(spank, "SUBLET_DIR"))
                        (void)spank_unsetenv(spank, "SUBLET_DIR");
        } else {
                (void)spank_setenv(spank, "SUBLET_DIR", plugin.dir, 1);
                (void)spank_setenv(spank, "SUBLET_REQUIRE", "1", 0);
        }
#define FRAMEWORK(variable, value) (void)spank_setenv(spank, #variable, value, 0);
#include "base/frameworks.def"
        return 0;
}

/* ---- the account ---- */

/* Asks slurmctld, because the user could have changed SLURM_JOB_ACCOUNT. The caller frees it. */
static char *account_of(uint32_t job)
{
        job_info_msg_t *found = NULL;
        char *account = NULL;

        if (slurm_load_job(&found, job, 0) != SLURM_SUCCESS || !found)
                return NULL;
        for (uint32_t i = 0; i < found->record_count; i++)
                if (found->job_array[i].job_id == job) {
                        const char *name = found->job_array[i].account;

                        account = strdup(name ? name : "");
                }
        slurm_free_job_info_msg(found);
        return account;
}

/* ---- the cgroup ---- */

static bool sluid_of_self(char ret[static TENANT_ID_MAX + 1])
{
        _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
        char text[4 * PATH_MAX];
        const size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

        text[n] = '\0';
        return jobs_sluid(text, ret);
}

/* ---- a step begins ---- */

static int enter(spank_t spank, uint32_t uid, const struct bounds *bounds, const char *account)
{
        char less[BOUNDS_ERROR_MAX], sentence[JOBS_SENTENCE_MAX], sluid[TENANT_ID_MAX + 1];
        struct job job = {.id = plugin.job, .uid = uid, .account = account};
        int r;

        if (sluid_of_self(sluid))
                job.sluid = sluid;
        job.granted = bounds_grant(bounds, &plugin.wishes, less);
        if (access(plugin.library, R_OK) < 0) {
                say("the preload library is missing: no %s", plugin.library);
                return -errno;
        }
        /* ld.so(8): spaces or colons separate the items of LD_PRELOAD. */
        if (strpbrk(plugin.library, " :")) {
                say("'%s' cannot be preloaded: its path has a space or a colon", plugin.library);
                return -EINVAL;
        }
        r = jobs_enter(plugin.dir, &job, jobs_reload_daemon, &plugin.lock, sentence);
        if (sentence[0])
                say("%s", sentence);
        if (r == 0) {
                r = set_environment(spank);
                if (r < 0)
                        say("LD_PRELOAD cannot be set: %s", strerror(-r));
        }
        if (r == 0 && less[0])
                say("job %u gets %s: its account may have no more", job.id, less);
        return r;
}

static int begin_step(spank_t spank, const struct bounds_file *file)
{
        struct bounds bounds = bounds_of(file, NULL);
        _cleanup_free_ char *account = NULL;
        uid_t uid = 0;

        if (file->n_accounts > 0) {
                account = account_of(plugin.job);
                if (!account) {
                        say("slurmctld does not tell the account of job %u", plugin.job);
                        return plugin.asked ? -EAGAIN : 0;
                }
                bounds = bounds_of(file, account);
        }
        if (plugin.asked && plugin.wishes.off && bounds.always) {
                say("--sublet=off: the administrator has all jobs of this account run under "
                    "sublet");
                plugin.wishes = (struct wishes){0};
        }
        if (plugin.asked && plugin.wishes.off) {
                (void)set_preload(spank, NULL);
                return 0;
        }
        if (!plugin.asked && !bounds.always)
                return 0;
        (void)spank_get_item(spank, S_JOB_UID, &uid);
        return enter(spank, uid, &bounds, account);
}

/* Adds to the sentence about the fault what follows from it. */
static void give_up(bool refuse)
{
        char *sentence = plugin.sentences[plugin.n_sentences - 1];
        const size_t used = strlen(sentence);

        plugin.refused = refuse;
        (void)snprintf(sentence + used, JOBS_SENTENCE_MAX - used, "; the job %s",
                       refuse ? "ends, because it cannot run under sublet here"
                              : "runs without sublet");
        slurm_error("sublet: job %u: %s", plugin.job, sentence);
}

/* Called as root before the first task. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
        char error[BOUNDS_ERROR_MAX];
        struct bounds_file file;
        uint32_t step = 0;
        int r;

        if (!spank_remote(spank) || spank_get_item(spank, S_JOB_ID, &plugin.job) != 0 ||
            spank_get_item(spank, S_JOB_STEPID, &step) != 0 || step == SLURM_EXTERN_CONT)
                return 0;
        if (bounds_read(plugin.config, &file, error) < 0) {
                slurm_error("sublet: %s; no job gets more than the defaults", error);
                if (plugin.asked)
                        say("the administrator's file cannot be read (slurmd's log says why), so "
                            "this job gets no more than the defaults");
        }
        if (plugin.asked || bounds_any_always(&file)) {
                r = begin_step(spank, &file);
                if (r < 0)
                        give_up(file.refuse);
        }
        bounds_free(&file);
        return 0;
}

/* Called in the process of each task, as the user, with the task's stderr. */
int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
        int task = 0;

        (void)spank_get_item(spank, S_TASK_ID, &task);
        for (unsigned i = 0; task == 0 && i < plugin.n_sentences; i++)
                (void)dprintf(STDERR_FILENO, "sublet: %s\n", plugin.sentences[i]);
        if (plugin.refused)
                _exit(STATUS_REFUSED); /* an error here would count as a fault of the node */
        return 0;
}

/* ---- a step or a job ends ---- */

int slurm_spank_exit(spank_t spank, int argc, char *argv[])
{
        if (plugin.lock >= 0)
                jobs_leave(plugin.dir, plugin.job, jobs_reload_daemon, plugin.lock);
        plugin.lock = -EBADF;
        return 0;
}

/* Removes what a killed slurmstepd has left. Slurm calls no slurm_spank_init() before this. */
int slurm_spank_job_epilog(spank_t spank, int argc, char *argv[])
{
        if (take_arguments(argc, argv) == 0)
                jobs_sweep(plugin.dir, jobs_reload_daemon);
        return 0;
}
