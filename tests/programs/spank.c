/* spank.c: loads Slurm's plugin as slurmstepd does, without Slurm, for one step:
 *
 *      spank PLUGIN [KEY=VALUE]... with arg (of plugstack.conf), job, step, uid, account, option,
 *      env (of the job)
 *
 * Prints what the plugin's functions return and what it sets, and its
 * words for slurmd's log; then waits for a line, or the end, of stdin before it ends the step. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#define ARGUMENTS_MAX 8

extern char **environ;

static struct {
        uint32_t job, step;
        uid_t uid;
        const char *account, *option;
        char *arguments[ARGUMENTS_MAX];
        int n_arguments;
        struct spank_option *registered;
} step = {.job = 1, .uid = 1000, .account = "physics"};

/* ---- what slurmstepd offers ---- */

int spank_remote(spank_t spank)
{
        return 1;
}

spank_context_t spank_context(void)
{
        return S_CTX_REMOTE;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
        step.registered = option;
        return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
        va_list args;

        va_start(args, item);
        if (item == S_JOB_ID)
                *va_arg(args, uint32_t *) = step.job;
        else if (item == S_JOB_STEPID)
                *va_arg(args, uint32_t *) = step.step;
        else if (item == S_JOB_UID)
                *va_arg(args, uid_t *) = step.uid;
        else if (item == S_JOB_ENV)
                *va_arg(args, char ***) = environ;
        else if (item == S_TASK_ID)
                *va_arg(args, int *) = 0;
        va_end(args);
        return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
        return setenv(name, value, overwrite) < 0 ? ESPANK_ERROR : ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
        return unsetenv(name) < 0 ? ESPANK_ERROR : ESPANK_SUCCESS;
}

static void into_log(const char *format, va_list args)
{
        (void)fputs("log ", stdout);
        (void)vprintf(format, args);
        (void)putchar('\n');
}

void slurm_error(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        into_log(format, args);
        va_end(args);
}

void slurm_verbose(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        into_log(format, args);
        va_end(args);
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t **ret, slurm_step_id_t asked, uint16_t flags)
{
        const uint32_t id = asked.job_id;
#else
int slurm_load_job(job_info_msg_t **ret, uint32_t id, uint16_t flags)
{
#endif
        job_info_msg_t *found = calloc(1, sizeof(*found));

        if (!found || !(found->job_array = calloc(1, sizeof(*found->job_array))))
                abort();
        found->record_count = 1;
        found->job_array[0].job_id = id;
        found->job_array[0].account = strdup(step.account);
        *ret = found;
        return SLURM_SUCCESS;
}

void slurm_free_job_info_msg(job_info_msg_t *found)
{
        free(found->job_array[0].account);
        free(found->job_array);
        free(found);
}

/* ---- a step ---- */

static bool take(char *word)
{
        char *value = strchr(word, '=');

        if (!value)
                return false;
        *value++ = '\0';
        if (strcmp(word, "arg") == 0 && step.n_arguments < ARGUMENTS_MAX)
                step.arguments[step.n_arguments++] = value;
        else if (strcmp(word, "job") == 0)
                step.job = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(word, "step") == 0)
                step.step = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(word, "uid") == 0)
                step.uid = (uid_t)strtoul(value, NULL, 10);
        else if (strcmp(word, "account") == 0)
                step.account = value;
        else if (strcmp(word, "option") == 0)
                step.option = value;
        else if (strcmp(word, "env") == 0)
                return putenv(value) == 0;
        else
                return false;
        return true;
}

static int call(void *plugin, const char *name)
{
        spank_f *function = (spank_f *)dlsym(plugin, name);
        const int r = function ? function(NULL, step.n_arguments, step.arguments) : -1;

        (void)printf("%s %d\n", name, r);
        (void)fflush(stdout);
        return r;
}

/* A task: slurm_spank_task_init() may end it. */
static void run_task(void *plugin)
{
        const pid_t pid = fork();
        int status;

        if (pid == 0) {
                static const char *const shown[] = {"LD_PRELOAD", "SUBLET_DIR"};

                (void)call(plugin, "slurm_spank_task_init");
                for (int i = 0; i < 2; i++)
                        (void)printf("%s %.200s\n", shown[i],
                                     getenv(shown[i]) ? getenv(shown[i]) : "");
                (void)fflush(stdout);
                _exit(0);
        }
        if (pid > 0 && waitpid(pid, &status, 0) == pid)
                (void)printf("task %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        (void)fflush(stdout);
}

int main(int argc, char **argv)
{
        void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;

        for (int i = 2; i < argc; i++)
                if (!take(argv[i]))
                        return 2;
        if (!plugin) {
                (void)fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "no plugin");
                return 2;
        }
        if (call(plugin, "slurm_spank_init") < 0)
                return 1;
        if (step.option && step.registered)
                (void)printf("option %d\n", step.registered->cb(0, step.option, 1));
        (void)call(plugin, "slurm_spank_init_post_opt");
        run_task(plugin);
        (void)getchar();
        (void)call(plugin, "slurm_spank_exit");
        (void)call(plugin, "slurm_spank_job_epilog");
        return 0;
}
