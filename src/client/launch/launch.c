/* launch.c: owns the environment that a program needs in order to share the GPU. Must never change
 * its own environment, because `env` only prints the variables. */
#include "client/launch/launch.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/preload_list.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/units.h"
#include "client/common/cli.h"
#include "client/launch/launch_gpu.h"
#include "client/common/part_paths.h"
#include "client/talk/simulator_dir.h"
#include "client/common/value.h"

#define NAME_MAX_LENGTH 63 /* longest name of a client, without its NUL */

/* This check and the next two are for the simulated driver's variables (sim/README.md). */
static int check_card(const char *text)
{
        uint64_t bytes;

        return units_parse_size(text, &bytes) == 0 && bytes >= UINT64_C(16) << 20;
}

static int check_rate(const char *text)
{
        uint64_t rate;

        return units_parse_rate(text, &rate) == 0 && rate > 0;
}

static int check_gpus(const char *text)
{
        return strlen(text) == 1 && text[0] >= '1' && text[0] <= '8';
}

/* The keys that --sim=KEY=VALUE,... takes. */
static const struct {
        const char *key, *variable;
        int (*check)(const char *text);
        const char *wanted;
} sim_settings[] = {
        {"memory", "SIMCUDA_MEMORY", check_card, "a size from 16MiB, such as 1GiB"},
        {"bus", "SIMCUDA_BUS", check_rate, "a rate such as 12GB/s"},
        {"gpus", "SIMCUDA_GPUS", check_gpus, "a number from 1 to 8"},
        {"session", "SIMCUDA_SESSION", simulator_session_is_good, SIMULATOR_SESSION_FORM},
};

static int set(struct launch *l, const char *name, const char *value)
{
        return launch_set(l, name, strdup(value));
}

static int take_sim_setting(struct launch *l, const char *setting)
{
        const char *value = strchr(setting, '=');
        size_t length = value ? (size_t)(value - setting) : strlen(setting);

        for (size_t i = 0; i < ARRAY_SIZE(sim_settings); i++) {
                if (strlen(sim_settings[i].key) != length ||
                    strncmp(sim_settings[i].key, setting, length) != 0)
                        continue;
                if (!value || !sim_settings[i].check(value + 1))
                        return cli_fail(CLI_USAGE, "--sim: %s is %s, not '%s'", sim_settings[i].key,
                                        sim_settings[i].wanted, value ? value + 1 : "");
                return set(l, sim_settings[i].variable, value + 1);
        }
        return cli_fail(CLI_USAGE, "--sim does not know '%s'; it takes memory, bus, gpus, session",
                        setting);
}

int launch_set_sim(const struct option_row *row, void *launch, const char *value)
{
        struct launch *l = launch;
        _cleanup_free_ char *copy = NULL;
        char *rest, *setting;
        int r = CLI_OK;

        l->simulated = true;
        if (!value)
                return CLI_OK;
        rest = copy = strdup(value);
        while (r == CLI_OK && (setting = strsep(&rest, ",")))
                r = take_sim_setting(l, setting);
        return r;
}

static int set_name(const struct option_row *row, void *name, const char *value)
{
        char shown[NAME_MAX_LENGTH + 1];

        if (!value[0] || strlen(value) > NAME_MAX_LENGTH)
                return cli_fail(CLI_USAGE,
                                "--name takes 1 to %d bytes of text, not the %zu of '%s'",
                                NAME_MAX_LENGTH, strlen(value), value);
        if (!text_is_clean(value))
                return cli_fail(CLI_USAGE,
                                "--name takes UTF-8 without control characters, not '%s'",
                                text_copy(shown, sizeof(shown), value));
        *(const char **)name = value;
        return CLI_OK;
}

/* The row's parameter is the setting. */
static int set_setting(const struct option_row *row, void *launch, const char *value)
{
        const enum setting s = (enum setting)row->parameter;
        char form[SETTING_FORM_MAX];

        if (!value_is_good(s, value))
                return cli_fail(CLI_USAGE, "--%s is %s, not '%s'", row->name, setting_form(s, form),
                                value);
        return set(launch, settings[s].name, value);
}

#define AT(field)        offsetof(struct launch, field)
#define SETTING(setting) set_setting, .parameter = SETTING_##setting

const struct option_row launch_options[] = {
        {"name", "NAME", "how status calls the program", set_name, AT(name)},
        {"group", "NAME",
         "run together with your other programs of this group, or not at all; none: in no group",
         SETTING(GROUP)},
        {"priority", "N", "from -20 to 20, higher goes first; above 0 only for the daemon's user",
         SETTING(PRIORITY)},
        {"share", "MIN:MAX",
         "its least and most of the GPU's time, such as 0.2:0.8; the owner limits the least, the "
         "most is never passed",
         SETTING(SHARE)},
        {"weight", "N", "from 0.01 to 100: its part of the time, relative to your other programs",
         SETTING(WEIGHT)},
        {"memory-cap", "SIZE",
         "the most memory to allocate on a GPU; the program sees a GPU of this size",
         SETTING(MEMORY_CAP)},
        {"memory", "swap|overflow|managed",
         "swap: moved as a whole; overflow: may be more than the card; managed: comes back by page "
         "faults",
         SETTING(MEMORY)},
        {"keep", "SIZE", "with --memory overflow: use at most SIZE of the card", SETTING(KEEP)},
        {"profile", "FILE",
         "with --memory overflow: find the buffers worth their place on the card by trying, and "
         "write them to FILE",
         options_set_text, AT(profile)},
        {"profile-file", "FILE",
         "with --memory overflow: keep the buffers on the card that --profile found",
         options_set_text, AT(profile_file)},
        {"pools", NULL, "PyTorch, JAX and TensorFlow allocate from pools", options_set_true,
         AT(pools)},
        {"freeze", "off|park|move",
         "whether it can be paused (park), and gives way by standing still at once (move)",
         SETTING(FREEZE)},
        {"way", "auto|shared",
         "shared: its kernels run beside those of your other shared programs, through MPS; only if "
         "the owner allows it",
         SETTING(WAY)},
        {"ranks", "N",
         "for jobs such as torchrun: the program sees N devices, so that up to N ranks share the "
         "GPU or GPUs",
         SETTING(RANKS)},
        {"gpu", "auto|N|UUID[,...]",
         "use the GPU that has most room, or these GPUs; N as in status and nvidia-smi",
         options_set_text, AT(gpu)},
        {"daemon", "DIR", "use the daemon whose sockets are in DIR", options_set_text, AT(daemon)},
        {"sim", "memory=1GiB,bus=12GB/s,gpus=1,session=NAME",
         "use the simulated driver instead of a GPU", launch_set_sim, .optional = true},
        {"verbose", NULL, "say which GPUs it may use, with how many others, and what is free",
         options_set_true, AT(verbose), .letter = 'v'},
        {0},
};

char *launch_absolute(const char *path)
{
        _cleanup_free_ char *here = NULL;
        char *whole;

        if (path[0] == '/')
                return strdup(path);
        here = get_current_dir_name();
        return here && asprintf(&whole, "%s/%s", here, path) >= 0 ? whole : NULL;
}

static int set_daemon_dir(struct launch *l, const char *dir)
{
        char *path, checked[PATHS_DIR_MAX];
        struct stat st;

        path = launch_absolute(dir);
        if (!path)
                return cli_fail(CLI_FAILED, "--daemon %s: %m", dir);
        if (path && paths_daemon_dir(path, checked, sizeof(checked), NULL) < 0) {
                free(path);
                return cli_fail(CLI_USAGE, "--daemon: '%s' is too long for a socket (at most %d)",
                                dir, PATHS_DIR_MAX - 1);
        }
        /* A program would start a daemon there, so a mistyped name would go unnoticed. */
        if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
                free(path);
                return cli_fail(CLI_USAGE, "--daemon: there is no directory '%s'", dir);
        }
        return launch_set(l, "SUBLET_DIR", path);
}

/* Puts the folder before the others of LD_LIBRARY_PATH, and names it once. ld.so(8): colons and
 * semicolons separate them. */
static int set_search_path(struct launch *l, const char *folder)
{
        const char *now = getenv("LD_LIBRARY_PATH");
        _cleanup_free_ char *old = strdup(now ? now : "");
        size_t n = strlen(folder) + strlen(now ? now : "") + 2;
        char *rest = old, *item, *value = malloc(n);

        if (!old || !value) {
                free(value);
                return cli_fail(CLI_FAILED, "out of memory");
        }
        (void)strcpy(value, folder);
        while ((item = strsep(&rest, ":;"))) {
                size_t used = strlen(value);

                if (item[0] && strcmp(item, folder) != 0)
                        (void)snprintf(value + used, n - used, ":%s", item);
        }
        return launch_set(l, "LD_LIBRARY_PATH", value);
}

/* The library that gives ranks their devices comes before libsublet.so, which asks it. */
static int preload_ranks(struct launch *l)
{
        char path[PATH_MAX], *list;

        if (parts_find(PART_RANKS, path) < 0)
                return cli_fail(CLI_NO_LAUNCH, "the library for ranks is missing: no %s", path);
        if (strpbrk(path, " :"))
                return cli_fail(CLI_NO_LAUNCH,
                                "'%s' cannot be preloaded: its path has a space or a colon", path);
        if (asprintf(&list, "%s:%s", path, launch_value(l, "LD_PRELOAD")) < 0)
                list = NULL;
        return launch_set(l, "LD_PRELOAD", list);
}

/* CUDA_VISIBLE_DEVICES belongs to the launcher of the ranks, whose numbers are not the driver's.
 * Within such a job the GPUs and the job's number are known already. */
static int set_ranks(struct launch *l)
{
        const char *chosen = launch_value(l, "CUDA_VISIBLE_DEVICES");
        char job[24];
        int r = CLI_OK;

        if (!launch_value(l, settings[SETTING_RANKS].name))
                return CLI_OK;
        if (!chosen && !setting_text(SETTING_RANKS))
                chosen = getenv("CUDA_VISIBLE_DEVICES");
        if (chosen)
                r = set(l, settings[SETTING_RANKS_GPUS].name, chosen);
        (void)snprintf(job, sizeof(job), "%d", (int)getpid()); /* the program will have this pid */
        if (r == CLI_OK && !setting_text(SETTING_RANKS_JOB))
                r = set(l, settings[SETTING_RANKS_JOB].name, job);
        launch_unset(l, "CUDA_VISIBLE_DEVICES");
        return r;
}

static int set_library(struct launch *l)
{
        char path[PATH_MAX];
        int r;

        if (parts_find(PART_LIBRARY, path) < 0)
                return cli_fail(CLI_NO_LAUNCH, "the preload library is missing: no %s", path);
        /* ld.so(8): spaces or colons separate the items of LD_PRELOAD, and there is no quoting. */
        if (strpbrk(path, " :"))
                return cli_fail(CLI_NO_LAUNCH,
                                "'%s' cannot be preloaded: its path has a space or a colon", path);
        r = launch_set(l, "LD_PRELOAD", preload_list(getenv("LD_PRELOAD"), path));
        if (r == CLI_OK)
                r = launch_set(l, "ASAN_OPTIONS", preload_asan_options(getenv("ASAN_OPTIONS")));
        return r == CLI_OK && launch_value(l, settings[SETTING_RANKS].name) ? preload_ranks(l) : r;
}

static int set_simulator(struct launch *l)
{
        const char *session = launch_value(l, "SIMCUDA_SESSION");
        char path[PATH_MAX], dir[PATHS_DIR_MAX];
        int r;

        if (parts_find(PART_SIMULATOR, path) < 0)
                return cli_fail(CLI_NO_LAUNCH, "the simulated driver is missing: no %s", path);
        /* ld.so(8): colons and semicolons separate the folders of LD_LIBRARY_PATH. */
        if (strpbrk(path, ":;"))
                return cli_fail(CLI_NO_LAUNCH,
                                "'%s' cannot be searched: its path has a colon or a semicolon",
                                path);
        r = set_search_path(l, path);
        if (r != CLI_OK || l->daemon)
                return r;
        r = simulator_dir(session ? session : getenv("SIMCUDA_SESSION"), dir);
        return r == CLI_OK ? set(l, "SUBLET_DIR", dir) : r;
}

/* True if the file could be written; does not create it. */
static bool may_write(const char *path)
{
        _cleanup_free_ char *dir = strdup(path);

        if (access(path, F_OK) == 0)
                return access(path, W_OK) == 0;
        if (!dir)
                return false;
        dir[strlen(path) - strlen(strrchr(path, '/'))] = 0;
        return access(dir[0] ? dir : "/", W_OK | X_OK) == 0;
}

/* Returns the mode that the program will run in; "" if neither an option nor a variable sets it. */
static const char *memory_mode(const struct launch *l)
{
        const char *mode = launch_value(l, "SUBLET_MEMORY");

        mode = mode ? mode : setting_text(SETTING_MEMORY);
        return mode ? mode : "";
}

/* A profile is only for mode "overflow", so a profile without a mode selects that mode. */
static int set_profile(struct launch *l)
{
        const char *name = l->profile ? "profile" : "profile-file";
        const char *file = l->profile ? l->profile : l->profile_file;
        const char *mode = memory_mode(l);
        char *path;
        int r;

        if (!file)
                return CLI_OK;
        if (l->profile && l->profile_file)
                return cli_fail(CLI_USAGE, "--profile and --profile-file exclude each other: one "
                                           "finds what the other uses");
        if (*mode && strcmp(mode, "overflow") != 0)
                return cli_fail(CLI_USAGE, "--%s goes with --memory overflow, not %s", name, mode);
        path = launch_absolute(file);
        if (!path || (l->profile && !may_write(path))) {
                free(path);
                return cli_fail(CLI_FAILED, "cannot write the profile %s: %m", file);
        }
        if (!l->profile && access(path, R_OK) < 0) {
                free(path);
                return cli_fail(CLI_FAILED, "cannot read the profile %s: %m", file);
        }
        r = launch_set(l, l->profile ? "SUBLET_PROFILE" : "SUBLET_PROFILE_FILE", path);
        return r == CLI_OK ? set(l, "SUBLET_MEMORY", "overflow") : r;
}

struct framework_setting {
        const char *variable, *value;
        const char *instead; /* the same setting under another name; NULL: there is no other name */
};

static const struct framework_setting framework_settings[] = {
#define FRAMEWORK(variable, value) {#variable, value, NULL},
#include "base/frameworks.def"
};

/* --pools sets these. PyTorch has renamed its variable; a release that knows both names prefers the
 * newer one.
 * https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
 */
static const struct framework_setting pool_settings[] = {
        {"PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF"},
        {"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", "PYTORCH_ALLOC_CONF"},
        {"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", NULL},
        {"TF_GPU_ALLOCATOR", "cuda_malloc_async", NULL},
};

/* Sets the variables that the user has not set. */
static int set_framework(struct launch *l, const struct framework_setting *s, size_t n)
{
        int r = CLI_OK;

        for (size_t i = 0; r == CLI_OK && i < n; i++)
                if (!getenv(s[i].variable) && !(s[i].instead && getenv(s[i].instead)))
                        r = set(l, s[i].variable, s[i].value);
        return r;
}

int launch_complete(struct launch *l)
{
        char path[PATH_MAX];
        int r = set_library(l);

        if (r == CLI_OK && l->daemon)
                r = set_daemon_dir(l, l->daemon);
        if (r == CLI_OK)
                r = set_profile(l);
        if (r == CLI_OK && launch_value(l, "SUBLET_KEEP") &&
            strcmp(memory_mode(l), "overflow") != 0)
                r = cli_fail(CLI_USAGE, "--keep goes with --memory overflow");
        if (r == CLI_OK && l->simulated)
                r = set_simulator(l);
        if (r == CLI_OK && l->name)
                r = set(l, "SUBLET_NAME", l->name);
        if (r == CLI_OK && parts_find(PART_DAEMON, path) == 0)
                r = set(l, "SUBLET_DAEMON", path);
        if (r == CLI_OK)
                r = set_framework(l, framework_settings, ARRAY_SIZE(framework_settings));
        if (r == CLI_OK && l->pools)
                r = set_framework(l, pool_settings, ARRAY_SIZE(pool_settings));
        if (r == CLI_OK && l->gpu)
                r = gpu_choose(l, l->gpu);
        if (r == CLI_OK && l->verbose)
                gpu_tell(l);
        if (r == CLI_OK)
                r = set_ranks(l);
        return r;
}
