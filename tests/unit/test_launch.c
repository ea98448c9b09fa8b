/* test_launch.c: a program gets the environment that the options ask for, besides the variables
 * that the user has set. Impossible options are refused. */
#include "unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "client/launch/launch.h"
#include "client/talk/simulator_dir.h"
#include "cli_bench.h"

static const char *const variables[] = {
        "LD_PRELOAD",
        "ASAN_OPTIONS",
        "LD_LIBRARY_PATH",
        "SUBLET_DIR",
        "SUBLET_MEMORY",
        "SIMCUDA_SESSION",
        "XDG_RUNTIME_DIR",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "XLA_PYTHON_CLIENT_ALLOCATOR",
        "TF_GPU_ALLOCATOR",
        "CUDA_VISIBLE_DEVICES",
        "SUBLET_RANKS",
};
static struct launch launch;
static char folder[] = "/tmp/sublet-launch-XXXXXX", file[64];

static int begin(void **state)
{
        launch = (struct launch){0};
        for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
                (void)unsetenv(variables[i]);
        return cli_bench_begin(state);
}

static int end(void **state)
{
        launch_clear(&launch);
        assert_int_equal(launch.n_variables, 0);
        return 0;
}

static int take(const char *name, const char *argument)
{
        static const struct cli_command command = {"run", NULL, "", "", launch_options};
        static char option[128];
        const bool sim = strcmp(name, "sim") == 0;
        char *argv[] = {(char *)"run", option, sim ? NULL : (char *)argument, NULL};
        int words;

        (void)snprintf(option, sizeof(option), "--%s%s%s", name, sim && argument ? "=" : "",
                       sim && argument ? argument : "");
        return cli_parse(&command, argv[2] ? 3 : 2, argv, OPTIONS_WORDS, &launch, &words);
}

static void takes(const char *name, const char *argument)
{
        if (take(name, argument) != CLI_OK)
                fail_msg("--%s %s: %s", name, argument ? argument : "", cli_bench.said);
}

static void refuses(const char *name, const char *argument)
{
        unsigned before = cli_bench.failures;

        if (take(name, argument) != CLI_USAGE || cli_bench.failures != before + 1)
                fail_msg("--%s '%s' is taken", name, argument);
}

static const char *value(const char *variable)
{
        const char *v = launch_value(&launch, variable);

        return v ? v : "(not set)";
}

static int complete(void)
{
        return launch_complete(&launch);
}

static void a_program_gets_the_paths_of_library_and_daemon(void **state)
{
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("LD_PRELOAD"), "/parts/1");
        assert_string_equal(value("SUBLET_DAEMON"), "/parts/0");
        assert_string_equal(value("XLA_PYTHON_CLIENT_PREALLOCATE"), "false");
        assert_string_equal(value("TF_FORCE_GPU_ALLOW_GROWTH"), "true");
        assert_null(launch_value(&launch, "SUBLET_DIR"));
        assert_null(launch_value(&launch, "SUBLET_NAME"));
        assert_null(launch_value(&launch, "LD_LIBRARY_PATH"));
        assert_null(launch_value(&launch, "PYTORCH_ALLOC_CONF"));
        assert_string_equal(value("ASAN_OPTIONS"), "verify_asan_link_order=0");
        assert_int_equal(launch.n_variables, 5);
}

static void a_missing_library_or_an_unusable_path_starts_nothing(void **state)
{
        cli_bench.parts[PART_LIBRARY][0] = 0;
        assert_int_equal(complete(), CLI_NO_LAUNCH);
        (void)strcpy(cli_bench.parts[PART_LIBRARY], "/a b/libsublet.so");
        assert_int_equal(complete(), CLI_NO_LAUNCH);
        assert_non_null(strstr(cli_bench.said, "/a b/libsublet.so"));
        (void)strcpy(cli_bench.parts[PART_LIBRARY], "/a:b/libsublet.so");
        assert_int_equal(complete(), CLI_NO_LAUNCH);
        /* A missing daemon is no error, because one may be running already. */
        (void)strcpy(cli_bench.parts[PART_LIBRARY], "/libsublet.so");
        cli_bench.parts[PART_DAEMON][0] = 0;
        assert_int_equal(complete(), CLI_OK);
        assert_null(launch_value(&launch, "SUBLET_DAEMON"));
}

/* A process must not load libsublet.so twice. */
static void other_preloaded_libraries_stay_behind_libsublet(void **state)
{
        (void)setenv("LD_PRELOAD", "/x/a.so /old/libsublet.so::libsublet.so b.so:notlibsublet.so",
                     1);
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("LD_PRELOAD"), "/parts/1:/x/a.so:b.so:notlibsublet.so");
}

static void names_are_clean_and_not_too_long(void **state)
{
        char name[65];

        memset(name, 'n', sizeof(name));
        name[64] = 0;
        refuses("name", name);
        name[63] = 0;
        takes("name", name);
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("SUBLET_NAME"), name);
        refuses("name", "");
        refuses("name", "a\nb");
        takes("name", "café");
        refuses("name", "caf\xe9");
        takes("name", "n");
}

static void groups_are_checked(void **state)
{
        takes("group", "my job");
        assert_string_equal(value("SUBLET_GROUP"), "my job");
        refuses("group", "");
        refuses("group", "a name of more than 31 characters");
}

static void priorities_modes_and_sizes_are_checked(void **state)
{
        takes("priority", "-20");
        takes("priority", "20");
        assert_string_equal(value("SUBLET_PRIORITY"), "20");
        assert_int_equal(launch.n_variables, 1); /* the last value counts */
        refuses("priority", "21");
        refuses("priority", "-21");
        refuses("priority", "high");
        takes("memory", "swap");
        takes("memory", "managed");
        takes("memory", "overflow");
        assert_string_equal(value("SUBLET_MEMORY"), "overflow");
        refuses("memory", "virtual");
        takes("freeze", "off");
        takes("freeze", "park");
        takes("freeze", "move");
        assert_string_equal(value("SUBLET_FREEZE"), "move");
        refuses("freeze", "on");
        takes("keep", "20GiB");
        assert_string_equal(value("SUBLET_KEEP"), "20GiB");
        refuses("keep", "0");
        refuses("keep", "lots");
}

static void bytes_are_kept_on_the_card_only_in_overflow_mode(void **state)
{
        takes("keep", "20GiB");
        assert_int_equal(complete(), CLI_USAGE);
        takes("memory", "managed");
        assert_int_equal(complete(), CLI_USAGE);
        assert_non_null(strstr(cli_bench.said, "--keep"));
        takes("memory", "overflow");
        assert_int_equal(complete(), CLI_OK);
}

static void the_mode_may_come_from_the_environment(void **state)
{
        (void)setenv("SUBLET_MEMORY", "overflow", 1);
        takes("keep", "1GiB");
        assert_int_equal(complete(), CLI_OK);
        assert_null(launch_value(&launch, "SUBLET_MEMORY"));
        takes("memory", "swap"); /* options take precedence over the environment */
        assert_int_equal(complete(), CLI_USAGE);
}

static void profiles_are_made_and_used_only_in_overflow_mode(void **state)
{
        takes("profile", file);
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("SUBLET_PROFILE"), file);
        assert_string_equal(value("SUBLET_MEMORY"), "overflow");
        assert_null(launch_value(&launch, "SUBLET_PROFILE_FILE"));
        takes("profile-file", file);
        assert_int_equal(complete(), CLI_USAGE); /* only one of the two is allowed */
        launch_clear(&launch);
        launch.profile = NULL;
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("SUBLET_PROFILE_FILE"), file);
        assert_string_equal(value("SUBLET_MEMORY"), "overflow");
        assert_null(launch_value(&launch, "SUBLET_PROFILE"));
        takes("memory", "swap");
        assert_int_equal(complete(), CLI_USAGE);
        assert_non_null(strstr(cli_bench.said, "--profile-file"));
        takes("memory", "overflow");
        assert_int_equal(complete(), CLI_OK);
        assert_int_equal(take("profile-file", ""), CLI_USAGE);
}

static void a_profile_that_cannot_be_read_or_written_is_named(void **state)
{
        char path[128];

        (void)snprintf(path, sizeof(path), "%s/none/p", folder);
        takes("profile", path);
        assert_int_equal(complete(), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, path));
        /* The folder exists, so the file can be made. */
        (void)snprintf(path, sizeof(path), "%s/new", folder);
        takes("profile", path);
        assert_int_equal(complete(), CLI_OK);
        assert_int_equal(access(path, F_OK), -1);
        takes("profile", "/sublet-no-such-file"); /* a file in the root folder */
        assert_int_equal(complete(), access("/", W_OK) == 0 ? CLI_OK : CLI_FAILED);
        launch.profile = NULL;
        takes("profile-file", path);
        assert_int_equal(complete(), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "cannot read"));
}

static void relative_paths_begin_at_the_current_folder(void **state)
{
        char here[PATH_MAX], path[PATH_MAX + 8];

        assert_non_null(getcwd(here, sizeof(here)));
        assert_int_equal(chdir(folder), 0);
        assert_int_equal(mkdir("d", 0700), 0);
        takes("daemon", "d");
        takes("profile-file", "profile");
        assert_int_equal(complete(), CLI_OK);
        assert_int_equal(rmdir("d"), 0);
        assert_int_equal(chdir(here), 0);
        (void)snprintf(path, sizeof(path), "%s/d", folder);
        assert_string_equal(value("SUBLET_DIR"), path);
        assert_string_equal(value("SUBLET_PROFILE_FILE"), file);
}

static void a_daemons_directory_has_room_for_its_sockets(void **state)
{
        char dir[PATHS_DIR_MAX + 1];

        memset(dir, 'd', sizeof(dir));
        dir[0] = '/';
        dir[PATHS_DIR_MAX] = 0;
        takes("daemon", dir);
        assert_int_equal(complete(), CLI_USAGE);
        assert_non_null(strstr(cli_bench.said, "too long"));
        dir[PATHS_DIR_MAX - 1] = 0;
        assert_int_equal(complete(), CLI_USAGE);
        assert_non_null(strstr(cli_bench.said, "no directory"));
        memset(dir, '/', PATHS_DIR_MAX - 1);
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("SUBLET_DIR"), dir);
        assert_int_equal(take("daemon", ""), CLI_USAGE);
}

static void settings_of_frameworks_by_the_user_stay(void **state)
{
        takes("pools", NULL);
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("PYTORCH_ALLOC_CONF"), "backend:cudaMallocAsync");
        assert_string_equal(value("PYTORCH_CUDA_ALLOC_CONF"), "backend:cudaMallocAsync");
        assert_string_equal(value("XLA_PYTHON_CLIENT_ALLOCATOR"), "cuda_async");
        assert_string_equal(value("TF_GPU_ALLOCATOR"), "cuda_malloc_async");
        launch_clear(&launch);
        (void)setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", 1);
        (void)setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false", 1);
        (void)setenv("TF_GPU_ALLOCATOR", "", 1);
        assert_int_equal(complete(), CLI_OK);
        /* If the user has set one name of a variable, neither name is set. */
        assert_null(launch_value(&launch, "PYTORCH_ALLOC_CONF"));
        assert_null(launch_value(&launch, "PYTORCH_CUDA_ALLOC_CONF"));
        assert_null(launch_value(&launch, "TF_FORCE_GPU_ALLOW_GROWTH"));
        assert_null(launch_value(&launch, "TF_GPU_ALLOCATOR"));
        assert_string_equal(value("XLA_PYTHON_CLIENT_ALLOCATOR"), "cuda_async");
        assert_string_equal(value("XLA_PYTHON_CLIENT_PREALLOCATE"), "false");
}

static bool is_taken_away(const char *variable)
{
        for (unsigned i = 0; i < launch.n_variables; i++)
                if (strcmp(launch.variables[i].name, variable) == 0)
                        return !launch.variables[i].value;
        return false;
}

static void ranks_have_a_library_in_front_and_a_launcher_that_chooses_devices(void **state)
{
        refuses("ranks", "0");
        refuses("ranks", "65");
        refuses("ranks", "8 ");
        refuses("ranks", "-1");
        refuses("ranks", "");
        takes("ranks", "64");
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("SUBLET_RANKS"), "64");
        assert_string_equal(value("LD_PRELOAD"), "/parts/10:/parts/1");
        assert_true(is_taken_away("CUDA_VISIBLE_DEVICES"));
        assert_int_equal(atoi(value("SUBLET_RANKS_JOB")), getpid());
        assert_null(launch_value(&launch, "SUBLET_RANKS_GPUS"));
        assert_string_equal(launch_gpus_variable(&launch), "SUBLET_RANKS_GPUS");

        (void)setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
        assert_int_equal(launch_apply(&launch), CLI_OK);
        assert_null(getenv("CUDA_VISIBLE_DEVICES"));
        assert_string_equal(getenv("SUBLET_RANKS"), "64");
}

static void the_gpus_of_ranks_are_those_that_were_visible(void **state)
{
        (void)setenv("CUDA_VISIBLE_DEVICES", "", 1); /* none */
        takes("ranks", "2");
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("SUBLET_RANKS_GPUS"), "");
        launch_clear(&launch);
        /* In a job of ranks this variable counts the job's devices. */
        (void)setenv("CUDA_VISIBLE_DEVICES", "3", 1);
        (void)setenv("SUBLET_RANKS", "4", 1);
        (void)setenv("SUBLET_RANKS_JOB", "77", 1);
        takes("ranks", "2");
        assert_int_equal(complete(), CLI_OK);
        assert_null(launch_value(&launch, "SUBLET_RANKS_JOB"));
        assert_null(launch_value(&launch, "SUBLET_RANKS_GPUS"));
        assert_true(is_taken_away("CUDA_VISIBLE_DEVICES"));
        /* Other programs have no such library. */
        launch_clear(&launch);
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("LD_PRELOAD"), "/parts/1");
        assert_false(is_taken_away("CUDA_VISIBLE_DEVICES"));
        assert_string_equal(launch_gpus_variable(&launch), "CUDA_VISIBLE_DEVICES");
        takes("ranks", "2");
        cli_bench.parts[PART_RANKS][0] = 0;
        assert_int_equal(complete(), CLI_NO_LAUNCH);
        assert_non_null(strstr(cli_bench.said, "library for ranks"));
}

static void the_simulator_is_loaded_first_and_has_a_daemon_of_its_own(void **state)
{
        char dir[PATHS_DIR_MAX];

        (void)setenv("LD_LIBRARY_PATH", "/a:/parts/2;/b::", 1);
        takes("sim", NULL);
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("LD_LIBRARY_PATH"), "/parts/2:/a:/b");
        assert_int_equal(simulator_dir(NULL, dir), CLI_OK);
        assert_string_equal(value("SUBLET_DIR"), dir);
        assert_null(launch_value(&launch, "SIMCUDA_SESSION"));
        launch_clear(&launch);
        takes("daemon", "/tmp");
        assert_int_equal(complete(), CLI_OK);
        assert_string_equal(value("SUBLET_DIR"), "/tmp");
        cli_bench.parts[PART_SIMULATOR][0] = 0;
        assert_int_equal(complete(), CLI_NO_LAUNCH);
        (void)strcpy(cli_bench.parts[PART_SIMULATOR], "/a;b");
        assert_int_equal(complete(), CLI_NO_LAUNCH);
}

static void each_session_of_the_simulator_has_its_directory(void **state)
{
        char dir[PATHS_DIR_MAX], expected[PATHS_DIR_MAX];

        (void)snprintf(expected, sizeof(expected), "/tmp/sublet-sim-%u", (unsigned)getuid());
        assert_int_equal(simulator_dir("", dir), CLI_OK);
        assert_string_equal(dir, expected);
        (void)snprintf(expected, sizeof(expected), "/tmp/sublet-sim-a_B-9-%u", (unsigned)getuid());
        assert_int_equal(simulator_dir("a_B-9", dir), CLI_OK);
        assert_string_equal(dir, expected);
        (void)snprintf(expected, sizeof(expected), "/tmp/sublet-sim-+lab-%u", (unsigned)getuid());
        assert_int_equal(simulator_dir("+lab", dir), CLI_OK); /* of all users */
        assert_string_equal(dir, expected);
        assert_int_equal(simulator_dir("a/b", dir), CLI_USAGE);
        /* --sim takes precedence over the environment. */
        (void)setenv("SIMCUDA_SESSION", "outer", 1);
        takes("sim", NULL);
        assert_int_equal(complete(), CLI_OK);
        assert_non_null(strstr(value("SUBLET_DIR"), "-sim-outer-"));
        takes("sim", "session=inner");
        assert_int_equal(complete(), CLI_OK);
        assert_non_null(strstr(value("SUBLET_DIR"), "-sim-inner-"));
        (void)setenv("SIMCUDA_SESSION", "a/b", 1);
        launch_clear(&launch);
        assert_int_equal(complete(), CLI_USAGE);
}

static void the_simulators_settings_are_checked(void **state)
{
        static const char *const bad[] = {"memory=15MiB", "memory=",  "memory",       "bus=12",
                                          "bus=0GB/s",    "gpus=0",   "gpus=9",       "gpus=10",
                                          "gpus=",        "session=", "session=a.b",  "colour=red",
                                          "gpus=2,",      "mem=1GiB", "memoryx=1GiB", "session=+",
                                          "session=a+b"};
        char session[64] = "session=";

        takes("sim", "memory=16MiB,bus=12GB/s,gpus=8,session=x");
        assert_true(launch.simulated);
        assert_string_equal(value("SIMCUDA_MEMORY"), "16MiB");
        assert_string_equal(value("SIMCUDA_BUS"), "12GB/s");
        assert_string_equal(value("SIMCUDA_GPUS"), "8");
        assert_string_equal(value("SIMCUDA_SESSION"), "x");
        takes("sim", "gpus=1");
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                refuses("sim", bad[i]);
        memset(session + 8, 's', 33);
        refuses("sim", session);
        session[8 + 32] = 0;
        takes("sim", session);
        /* Settings after a wrong one are not read. */
        refuses("sim", "gpus=0,memory=2GiB");
        assert_string_equal(value("SIMCUDA_MEMORY"), "16MiB");
}

static int make_folder(void **state)
{
        FILE *f;

        if (!mkdtemp(folder))
                return -1;
        (void)snprintf(file, sizeof(file), "%s/profile", folder);
        f = fopen(file, "w");
        return f ? fclose(f) : -1;
}

static int remove_folder(void **state)
{
        return unlink(file) < 0 || rmdir(folder) < 0;
}

#define LAUNCH_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                LAUNCH_TEST(a_program_gets_the_paths_of_library_and_daemon),
                LAUNCH_TEST(a_missing_library_or_an_unusable_path_starts_nothing),
                LAUNCH_TEST(other_preloaded_libraries_stay_behind_libsublet),
                LAUNCH_TEST(names_are_clean_and_not_too_long),
                LAUNCH_TEST(groups_are_checked),
                LAUNCH_TEST(priorities_modes_and_sizes_are_checked),
                LAUNCH_TEST(bytes_are_kept_on_the_card_only_in_overflow_mode),
                LAUNCH_TEST(the_mode_may_come_from_the_environment),
                LAUNCH_TEST(profiles_are_made_and_used_only_in_overflow_mode),
                LAUNCH_TEST(a_profile_that_cannot_be_read_or_written_is_named),
                LAUNCH_TEST(relative_paths_begin_at_the_current_folder),
                LAUNCH_TEST(a_daemons_directory_has_room_for_its_sockets),
                LAUNCH_TEST(settings_of_frameworks_by_the_user_stay),
                LAUNCH_TEST(ranks_have_a_library_in_front_and_a_launcher_that_chooses_devices),
                LAUNCH_TEST(the_gpus_of_ranks_are_those_that_were_visible),
                LAUNCH_TEST(the_simulator_is_loaded_first_and_has_a_daemon_of_its_own),
                LAUNCH_TEST(each_session_of_the_simulator_has_its_directory),
                LAUNCH_TEST(the_simulators_settings_are_checked),
        };

        return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
