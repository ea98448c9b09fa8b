/* launch.c: owns the environment that a program needs in order to share the GPU. Must never change
 * its own environment, because `env` only prints the variables. */
#include "cli/launch.h"

#include <ctype.h>
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
#include "base/shares.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/parts.h"
#include "wire/wire.h"

#define NAME_MAX_LENGTH 63 /* longest name of a client, without its NUL */

enum {
        OPTION_NAME,
        OPTION_GROUP,
        OPTION_PRIORITY,
        OPTION_SHARE,
        OPTION_WEIGHT,
        OPTION_MEMORY_CAP,
        OPTION_MEMORY,
        OPTION_KEEP,
        OPTION_PROFILE,
        OPTION_PROFILE_FILE,
        OPTION_POOLS,
        OPTION_FREEZE,
        OPTION_WAY,
        OPTION_RANKS,
        OPTION_GPU,
        OPTION_DAEMON,
        OPTION_SIM,
        OPTION_VERBOSE
};

const struct cli_option launch_options[] = {
        [OPTION_NAME] = {"name", CLI_REQUIRED, "NAME", "how status calls the program"},
        [OPTION_GROUP] = {"group", CLI_REQUIRED, "NAME",
                          "run together with your other programs of this group, or not at all; "
                          "none: in no group"},
        [OPTION_PRIORITY] =
                {"priority", CLI_REQUIRED, "N",
                 "from -20 to 20, higher goes first; above 0 only for the daemon's user"},
        [OPTION_SHARE] = {"share", CLI_REQUIRED, "MIN:MAX",
                          "of the GPU's time, such as 0.2:0.8; the owner limits the first, the "
                          "second is never passed"},
        [OPTION_WEIGHT] = {"weight", CLI_REQUIRED, "N",
                           "from 0.01 to 100: its part of the time, relative to your other "
                           "programs"},
        [OPTION_MEMORY_CAP] = {"memory-cap", CLI_REQUIRED, "SIZE",
                               "the most memory to allocate on a GPU; the program sees a GPU of "
                               "this size"},
        [OPTION_MEMORY] =
                {"memory", CLI_REQUIRED, "swap|overflow|managed",
                 "swap: moved as a whole; overflow: may be more than the card; managed: comes "
                 "back by page faults"},
        [OPTION_KEEP] = {"keep", CLI_REQUIRED, "SIZE",
                         "with --memory overflow: use so much of the card at most"},
        [OPTION_PROFILE] = {"profile", CLI_REQUIRED, "FILE",
                            "with --memory overflow: find the buffers worth their place on the "
                            "card by trying, and write them to FILE"},
        [OPTION_PROFILE_FILE] = {"profile-file", CLI_REQUIRED, "FILE",
                                 "with --memory overflow: keep the buffers on the card that "
                                 "--profile found"},
        [OPTION_POOLS] = {"pools", CLI_NONE, NULL,
                          "PyTorch, JAX and TensorFlow allocate from pools"},
        [OPTION_FREEZE] =
                {"freeze", CLI_REQUIRED, "off|park|move",
                 "whether it can be paused (park), and gives way by standing still at once (move)"},
        [OPTION_WAY] = {"way", CLI_REQUIRED, "auto|shared",
                        "shared: its kernels run beside those of your other shared programs, "
                        "through MPS; only if the owner allows it"},
        [OPTION_RANKS] = {"ranks", CLI_REQUIRED, "N",
                          "for jobs such as torchrun: the program sees N devices, so that up to N "
                          "ranks share the GPU or GPUs"},
        [OPTION_GPU] = {"gpu", CLI_REQUIRED, "auto|N|UUID[,...]",
                        "on the GPU that has most room, or on these GPUs; N as in status and "
                        "nvidia-smi"},
        [OPTION_DAEMON] = {"daemon", CLI_REQUIRED, "DIR",
                           "use the daemon whose sockets are in DIR"},
        [OPTION_SIM] = {"sim", CLI_OPTIONAL, "memory=1GiB,bus=12GB/s,gpus=1,session=NAME",
                        "on the simulated driver instead of a GPU"},
        [OPTION_VERBOSE] = {"verbose", CLI_NONE, NULL,
                            "say which GPUs it may use, with how many others, and what is free",
                            'v'},
        {0},
};

/* In the library's own limit: ranks/devices/map.h. */
#define RANKS_MAX 64

static int check_ranks(const char *text)
{
        char *end;
        long n = strtol(text, &end, 10);

        return isdigit((unsigned char)text[0]) && !*end && n >= 1 && n <= RANKS_MAX;
}

static int check_size(const char *text)
{
        uint64_t bytes;

        return units_parse_size(text, &bytes) == 0 && bytes > 0;
}

/* This check and the next three are for the simulated driver's variables (sim/README.md). */
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

/* A session whose name begins with '+' is open to all users. */
#define SESSION_FORM "up to 32 letters, digits, '-' and '_', perhaps after a '+'"
static int check_session(const char *text)
{
        size_t n;

        text += text[0] == '+';
        n = strlen(text);
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)text[i]) && !strchr("_-", text[i]))
                        return 0;
        return n > 0 && n <= 32;
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
        {"session", "SIMCUDA_SESSION", check_session, SESSION_FORM},
};

const char *launch_value(const struct launch *l, const char *variable)
{
        for (unsigned i = 0; i < l->n_variables; i++)
                if (strcmp(l->variables[i].name, variable) == 0)
                        return l->variables[i].value;
        return NULL;
}

void launch_clear(struct launch *l)
{
        for (unsigned i = 0; i < l->n_variables; i++)
                free(l->variables[i].value);
        l->n_variables = 0;
}

int launch_set(struct launch *l, const char *name, char *value)
{
        struct launch_variable *v = l->variables;

        if (!value)
                return cli_fail(CLI_FAILED, "out of memory");
        while (v < l->variables + l->n_variables && strcmp(v->name, name) != 0)
                v++;
        if (v == l->variables + l->n_variables) {
                v->name = name;
                l->n_variables++;
        } else {
                free(v->value);
        }
        v->value = value;
        return CLI_OK;
}

/* Takes a variable away from the program. */
static void unset(struct launch *l, const char *name)
{
        if (launch_set(l, name, strdup("")) == CLI_OK)
                for (unsigned i = 0; i < l->n_variables; i++)
                        if (strcmp(l->variables[i].name, name) == 0) {
                                free(l->variables[i].value);
                                l->variables[i].value = NULL;
                        }
}

int launch_apply(const struct launch *l)
{
        for (unsigned i = 0; i < l->n_variables; i++) {
                const struct launch_variable *v = &l->variables[i];

                if ((v->value ? setenv(v->name, v->value, 1) : unsetenv(v->name)) < 0)
                        return cli_fail(CLI_FAILED, "%s: %m", v->name);
        }
        return CLI_OK;
}

const char *launch_gpus_variable(const struct launch *l)
{
        return launch_value(l, settings[SETTING_RANKS].name) ? settings[SETTING_RANKS_GPUS].name
                                                             : "CUDA_VISIBLE_DEVICES";
}

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

static int take_sim(struct launch *l, const char *argument)
{
        _cleanup_free_ char *copy = NULL;
        char *rest, *setting;
        int r = CLI_OK;

        l->simulated = 1;
        if (!argument)
                return CLI_OK;
        rest = copy = strdup(argument);
        while (r == CLI_OK && (setting = strsep(&rest, ",")))
                r = take_sim_setting(l, setting);
        return r;
}

/* Handles an option that sets a variable. good: the value is valid; if not, prints a message. */
static int set_setting(struct launch *l, const char *option, enum setting s, const char *value,
                       bool good)
{
        char form[SETTING_FORM_MAX];

        if (!good)
                return cli_fail(CLI_USAGE, "%s is %s, not '%s'", option, setting_form(s, form),
                                value);
        return set(l, settings[s].name, value);
}

int launch_take(int option, const char *argument, void *launch)
{
        struct launch *l = launch;
        unsigned minimum, maximum, weight;
        char shown[NAME_MAX_LENGTH + 1];
        int priority;

        switch (option) {
        case OPTION_NAME:
                if (!argument[0] || strlen(argument) > NAME_MAX_LENGTH)
                        return cli_fail(CLI_USAGE,
                                        "--name takes 1 to %d bytes of text, not the %zu of '%s'",
                                        NAME_MAX_LENGTH, strlen(argument), argument);
                if (!text_is_clean(argument))
                        return cli_fail(CLI_USAGE,
                                        "--name takes UTF-8 without control characters, not '%s'",
                                        text_copy(shown, sizeof(shown), argument));
                l->name = argument;
                return CLI_OK;
        case OPTION_GROUP:
                return set_setting(l, "--group", SETTING_GROUP, argument,
                                   wire_group_is_valid(argument));
        case OPTION_PRIORITY:
                return set_setting(l, "--priority", SETTING_PRIORITY, argument,
                                   shares_parse_priority(argument, &priority) == 0);
        case OPTION_SHARE:
                return set_setting(l, "--share", SETTING_SHARE, argument,
                                   shares_parse_range(argument, &minimum, &maximum) == 0);
        case OPTION_WEIGHT:
                return set_setting(l, "--weight", SETTING_WEIGHT, argument,
                                   shares_parse_weight(argument, &weight) == 0);
        case OPTION_MEMORY_CAP:
                return set_setting(l, "--memory-cap", SETTING_MEMORY_CAP, argument,
                                   check_size(argument));
        case OPTION_MEMORY:
                return set_setting(l, "--memory", SETTING_MEMORY, argument,
                                   setting_place(SETTING_MEMORY, argument) >= 0);
        case OPTION_KEEP:
                return set_setting(l, "--keep", SETTING_KEEP, argument, check_size(argument));
        case OPTION_PROFILE:
                l->profile = argument;
                return CLI_OK;
        case OPTION_PROFILE_FILE:
                l->profile_file = argument;
                return CLI_OK;
        case OPTION_POOLS:
                l->pools = 1;
                return CLI_OK;
        case OPTION_FREEZE:
                return set_setting(l, "--freeze", SETTING_FREEZE, argument,
                                   setting_place(SETTING_FREEZE, argument) >= 0);
        case OPTION_WAY:
                return set_setting(l, "--way", SETTING_WAY, argument,
                                   setting_place(SETTING_WAY, argument) >= 0);
        case OPTION_RANKS:
                return set_setting(l, "--ranks", SETTING_RANKS, argument, check_ranks(argument));
        case OPTION_GPU:
                if (!argument[0])
                        return cli_fail(CLI_USAGE, "--gpu takes auto, a number or a UUID, not ''");
                l->gpu = argument;
                return CLI_OK;
        case OPTION_DAEMON:
                l->daemon = argument;
                return CLI_OK;
        case OPTION_VERBOSE:
                l->verbose = 1;
                return CLI_OK;
        default:
                return take_sim(l, argument);
        }
}

int launch_take_sim(const char *argument, struct launch *l)
{
        return launch_take(OPTION_SIM, argument, l);
}

int launch_simulator_dir(const char *session, char ret[static PATHS_DIR_MAX])
{
        const struct paths_input in = paths_input_here();
        char suffix[64];

        if (session && session[0] && !check_session(session))
                return cli_fail(CLI_USAGE, "a simulator's session is " SESSION_FORM ", not '%s'",
                                session);
        (void)snprintf(suffix, sizeof(suffix), "-sim%s%s", session && session[0] ? "-" : "",
                       session ? session : "");
        if (paths_private_dir(&in, suffix, ret, PATHS_DIR_MAX) < 0)
                return cli_fail(CLI_FAILED, "the directory '%s...' is too long for a socket", ret);
        return CLI_OK;
}

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

        if (!dir[0])
                return cli_fail(CLI_USAGE, "--daemon takes a directory, not ''");
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
        (void)snprintf(job, sizeof(job), "%d", (int)getpid()); /* which will be the program's */
        if (r == CLI_OK && !setting_text(SETTING_RANKS_JOB))
                r = set(l, settings[SETTING_RANKS_JOB].name, job);
        unset(l, "CUDA_VISIBLE_DEVICES");
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
        r = launch_simulator_dir(session ? session : getenv("SIMCUDA_SESSION"), dir);
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
        if (!file[0])
                return cli_fail(CLI_USAGE, "--%s takes a file, not ''", name);
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
#undef FRAMEWORK
};

/* Set by --pools. PyTorch has renamed its variable; a release that knows both names prefers the
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
