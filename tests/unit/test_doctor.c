/* test_doctor.c: sublet doctor on a machine that a test makes up: its findings, its advice, and
 * when it fails. */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/macros.h"
#include "base/owner.h"
#include "client/talk/control_order.h"
#include "client/driver/driver_ask.h"
#include "client/doctor/doctor_freeze.h"
#include "client/doctor/doctor_programs.h"
#include "cli_bench.h"

static char dir[] = "/tmp/sublet-doctor-XXXXXX";
static struct {
        int asks; /* result of driver_ask() */
        struct driver_report report;
        int tries; /* result of freeze_ask() */
        struct freeze_report freezing;
        unsigned gpus;      /* GPUs for which freeze_ask() must be called */
        const char *folder; /* folder with which freeze_ask() must be called */
        int daemon;         /* result of ask_daemon() */
        enum owner_says owner;
        const char *most;            /* `freeze` in the daemon's configuration */
        const char *hand, *hand_why; /* of the daemon's status */
        const char *version;
        int hidden;
        struct program_unshared unshared;
        unsigned refused;
        int status; /* doctor's exit status */
        char out[8192];
} now;

/* ---- fakes of other modules ---- */

int driver_ask(const char *folder, struct driver_report *ret)
{
        *ret = now.report;
        return now.asks;
}

int freeze_ask(const char *library, const char *folder, unsigned gpus, struct freeze_report *ret)
{
        if (strcmp(library, cli_bench.parts[PART_LIBRARY]) != 0 || gpus != now.gpus ||
            strcmp(folder ? folder : "", now.folder ? now.folder : "") != 0)
                _exit(99);
        *ret = now.freezing;
        return now.tries;
}

int freeze_try(int argc, char **argv)
{
        return -1;
}

unsigned programs_look(const char *folder, bool simulated,
                       void (*has_hidden)(int pid, const char *library, const char *what),
                       void (*is_unshared)(const struct program_unshared *u))
{
        if (now.hidden)
                has_hidden(now.hidden, "libfoo", "foo");
        if (now.unshared.pid)
                is_unshared(&now.unshared);
        return now.refused;
}

/* Replaces the real function, which is not linked, and answers with the daemon's status. */
int ask_daemon(const char *at, enum paths_kind kind, json_t *order, json_t **ret_answer)
{
        assert_string_equal(json_string_value(json_object_get(order, "order")), "status");
        json_decref(order);
        if (now.daemon == 0)
                *ret_answer = json_pack("{ss*, ss*, s{ss*, ss*}}", "version", now.version, "freeze",
                                        now.most, "hand", "state", now.hand, "why", now.hand_why);
        return now.daemon;
}

/* Also replaces the real function: the machine's own file does not count. */
enum owner_says owner_requires(void)
{
        return now.owner;
}

int target_set_sim(const struct option_row *row, void *target, const char *value)
{
        ((struct target *)target)->simulated = true;
        return CLI_OK;
}

int target_dir(const struct target *target, char ret[static PATHS_DIR_MAX],
               enum paths_kind *ret_kind)
{
        (void)snprintf(ret, PATHS_DIR_MAX, "%s", target->daemon ? target->daemon : dir);
        *ret_kind = !target->daemon                         ? PATHS_PRIVATE
                    : strcmp(target->daemon, "/run/x") == 0 ? PATHS_SYSTEM
                                                            : PATHS_NAMED;
        return strcmp(ret, "long") == 0 ? CLI_USAGE : CLI_OK;
}

int target_can_make(const char *at)
{
        return 0;
}

/* ---- scenes ---- */

static char *path_of(const char *name)
{
        return cli_bench_path(dir, name);
}

static void write_file(const char *name, const char *text)
{
        cli_bench_write(path_of(name), text);
}

static struct freeze_tried can_be_frozen(void)
{
        return (struct freeze_tried){.stage = FREEZE_ANSWERED,
                                     .answer = {.driver = "580.1", .counts = true}};
}

/* Begins with a machine without problems, on which no daemon runs. */
static int begin(void **state)
{
        Dl_info library;

        memset(&now, 0, sizeof(now));
        (void)cli_bench_begin(state);
        (void)strcpy(dir + strlen(dir) - 6, "XXXXXX");
        assert_non_null(mkdtemp(dir));
        (void)setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
        (void)unsetenv("XDG_RUNTIME_DIR");
        now.daemon = -ENOENT;
        now.report = (struct driver_report){
                .stage = DRIVER_ANSWERED, .version = 13010, .nvml = 1, .n_gpus = 1};
        now.report.gpus[0] = (struct driver_gpu){
                .name = "a card", .total_bytes = 2 * GIB, .used_bytes = GIB, .vmm = 1};
        now.gpus = 1;
        now.hand = "works";
        now.freezing.gpus[0] = can_be_frozen();
        (void)unsetenv("SUBLET_FREEZE");
        (void)unsetenv("SUBLET_BUILD"); /* set for the tests themselves */
        (void)unsetenv("SUBLET_SOURCE");
        /* Any library will do as the preload library. */
        assert_int_not_equal(dladdr((void *)(uintptr_t)_cmocka_run_group_tests, &library), 0);
        (void)snprintf(cli_bench.parts[PART_LIBRARY], sizeof(cli_bench.parts[0]), "%s",
                       library.dli_fname);
        write_file("subletd", "#!/bin/sh\necho subletd " SUBLET_VERSION "\necho more\n");
        (void)snprintf(cli_bench.parts[PART_DAEMON], sizeof(cli_bench.parts[0]), "%s",
                       path_of("subletd"));
        return 0;
}

static int end(void **state)
{
        (void)unlink(path_of("subletd"));
        (void)unlink(path_of("nvidia-cuda-mps-control.pid"));
        return rmdir(dir);
}

/* Runs the doctor in a process of its own, because it keeps its findings in a variable. */
static void see(const char *option, const char *argument)
{
        const struct cli_command self = {"doctor", doctor_main, "", "", doctor_options};
        char *argv[] = {(char *)"sublet", (char *)"doctor", (char *)option, (char *)argument, NULL};
        size_t used = 0;
        ssize_t n;
        int ends[2];
        pid_t pid;

        (void)fflush(stdout);
        assert_int_equal(pipe(ends), 0);
        pid = fork();
        if (pid == 0) {
                (void)dup2(ends[1], STDOUT_FILENO);
                now.status = doctor_main(&self, 1 + !!option + !!argument, argv + 1);
                (void)fflush(stdout);
                _exit(now.status);
        }
        (void)close(ends[1]);
        while ((n = read(ends[0], now.out + used, sizeof(now.out) - 1 - used)) > 0)
                used += (size_t)n;
        now.out[used] = 0;
        (void)close(ends[0]);
        assert_int_equal(waitpid(pid, &now.status, 0), pid);
        assert_true(WIFEXITED(now.status));
        now.status = WEXITSTATUS(now.status);
}

/* Returns the texts with the daemon's directory between them, until the next call. */
static const char *with_dir(const char *before, const char *after)
{
        static char text[512];

        (void)snprintf(text, sizeof(text), "%s%s%s", before, dir, after);
        return text;
}

/* finding: the beginning of a line; with a newline at its end, all that stands before the remedy.
 */
static void finds(int status, const char *finding, const char *remedy)
{
        const size_t n = strcspn(finding, "\n");
        const char *at = now.out, *arrow, *end;

        see(NULL, NULL);
        while (at && strncmp(at, finding, n) != 0)
                at = (at = strchr(at, '\n')) ? at + 1 : NULL;
        if (!at)
                fail_msg("no '%s' in: %s", finding, now.out);
        end = strchr(at, '\n');
        arrow = strstr(at, " -> ");
        if (finding[n] && at + n != end)
                assert_ptr_equal(arrow, at + n);
        if (remedy) {
                const char *said = arrow ? strstr(arrow, remedy) : NULL;

                if (!said || said > end)
                        fail_msg("no '%s' in: %s", remedy, at);
        }
        if (now.status != status)
                fail_msg("status %d: %s", now.status, now.out);
}

static void does_not_say(const char *part)
{
        if (strstr(now.out, part))
                fail_msg("'%s' in: %s", part, now.out);
}

static void a_machine_without_problems_gets_no_warning(void **state)
{
        char line[256];

        finds(CLI_OK, "ok    NVIDIA driver for CUDA 13.1, 1 GPU\n", NULL);
        finds(CLI_OK, "ok    GPU 0, a card, 2 GiB, 1 GiB in use\n", NULL);
        finds(CLI_OK, "ok    NVML answers\n", NULL);
        finds(CLI_OK,
              "ok    programs on GPU 0 can be frozen (driver 580.1): to be paused, and "
              "to give way at once\n",
              NULL);
        (void)snprintf(line, sizeof(line), "ok    %s can be preloaded\n",
                       cli_bench.parts[PART_LIBRARY]);
        finds(CLI_OK, line, NULL);
        (void)snprintf(line, sizeof(line), "ok    %s is of this release (" SUBLET_VERSION ")\n",
                       cli_bench.parts[PART_DAEMON]);
        finds(CLI_OK, line, NULL);
        (void)snprintf(line, sizeof(line), "ok    the daemon's directory is %s (yours)\n", dir);
        finds(CLI_OK, line, NULL);
        finds(CLI_OK, with_dir("ok    no daemon runs in ", "; the first program starts one\n"),
              NULL);
        finds(CLI_OK, "ok    no XDG_RUNTIME_DIR; /", NULL);
        finds(CLI_OK, "ok    host memory available", NULL);
        does_not_say("WARN");
        does_not_say("warn");
        does_not_say("FAIL");
        does_not_say("->");
        does_not_say("functions");
        now.report.n_gpus = 2;
        now.gpus = 3;
        now.freezing.gpus[1] = can_be_frozen();
        now.report.gpus[1] = (struct driver_gpu){
                .name = "b", .total_bytes = GIB, .used_bytes = DRIVER_UNKNOWN, .vmm = -1};
        finds(CLI_OK, "ok    NVIDIA driver for CUDA 13.1, 2 GPUs\n", NULL);
        finds(CLI_OK, "ok    GPU 1, b, 1 GiB\n", NULL); /* unknown figures are not shown */
        finds(CLI_OK, "ok    programs on GPU 1 can be frozen (driver 580.1)", NULL);
        now.folder = dir; /* the doctor finds the driver there */
        (void)snprintf(cli_bench.parts[PART_SIMULATOR], sizeof(cli_bench.parts[0]), "%s", dir);
        (void)snprintf(now.report.library, sizeof(now.report.library), "%s/libcuda.so.1", dir);
        see("--sim", NULL);
        assert_int_equal(now.status, CLI_OK);
        assert_non_null(strstr(now.out, "simulated driver for CUDA"));
        see("word", NULL);
        assert_int_equal(now.status, CLI_USAGE);
}

static void a_driver_that_does_not_answer_is_a_failure(void **state)
{
        const struct driver_report before = now.report;

        now.report = (struct driver_report){.hung = 1};
        finds(CLI_FAILED, "FAIL  the driver did not answer when asked for its GPUs\n", "dmesg");
        now.report = (struct driver_report){.stage = DRIVER_LOOKING, .signal = SIGSEGV};
        finds(CLI_FAILED, "FAIL  the driver crashed when asked for its GPUs: Segmentation",
              "dmesg");
        now.report = (struct driver_report){.stage = DRIVER_NOT_FOUND, .reason = "no file"};
        finds(CLI_FAILED, "FAIL  no NVIDIA driver: no file\n", "sublet demo");
        does_not_say("NVML");
        now.report = before;
        now.asks = -EAGAIN;
        finds(CLI_FAILED, "FAIL  cannot ask the driver: ", NULL);
        now.asks = 0;
        now.report.n_gpus = 0;
        finds(CLI_FAILED, "FAIL  NVIDIA driver for CUDA 13.1, 0 GPUs\n", "CUDA_VISIBLE_DEVICES");
        now.report = before;
        cli_bench.parts[PART_SIMULATOR][0] = 0;
        see("--sim", NULL);
        assert_int_equal(now.status, CLI_FAILED);
        assert_non_null(strstr(now.out, "the simulated driver is missing"));
        does_not_say("frozen");
}

static void each_error_of_cuinit_has_its_remedy(void **state)
{
        static const struct {
                int error;
                const char *remedy;
        } cases[] = {{34, "stub"},    {100, "container"},   {802, "nvidia-fabricmanager"},
                     {803, "reboot"}, {804, "cuda-compat"}, {1, "whether nvidia-smi answers"}};

        now.report = (struct driver_report){.stage = DRIVER_NOT_STARTED, .reason = "CUDA_ERROR_X"};
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                now.report.result = cases[i].error;
                finds(CLI_FAILED, "FAIL  the driver does not start: cuInit answers error",
                      cases[i].remedy);
                assert_non_null(strstr(now.out, ", CUDA_ERROR_X -> "));
        }
}

static void a_gpu_that_cannot_be_shared_is_a_failure(void **state)
{
        struct driver_gpu *gpu = &now.report.gpus[0];

        gpu->vmm = 0;
        finds(CLI_FAILED, "FAIL  GPU 0, a card, has no virtual memory management\n", "needs it");
        does_not_say("in use");
        does_not_say("frozen");
        gpu->vmm = 1;
        gpu->compute_mode = 3;
        finds(CLI_FAILED, "FAIL  GPU 0 is in exclusive compute mode", "nvidia-smi -i 0 -c DEFAULT");
        gpu->compute_mode = 1;
        finds(CLI_FAILED, "FAIL  GPU 0 is in exclusive compute mode", NULL);
        gpu->compute_mode = 2;
        finds(CLI_FAILED, "FAIL  GPU 0 is in prohibited compute mode", "-c DEFAULT");
        gpu->compute_mode = -1;
        finds(CLI_OK, "ok    GPU 0, a card", NULL);
}

static void problems_that_stop_no_program_are_warnings(void **state)
{
        now.report.nvml = 0;
        finds(CLI_OK, "warn  NVML (libnvidia-ml.so.1) does not answer", "nvidia-smi");
        now.report.nvml = 1;
        now.report.symbols = (struct driver_symbols){.all = 700, .unknown = 3, .names = "cuFoo"};
        finds(CLI_OK,
              "ok    of the driver's 700 functions this release does not know 3, and leaves "
              "them alone: cuFoo\n",
              NULL);
        does_not_say("newer versions");
        now.report.symbols = (struct driver_symbols){.undecided = 1, .versions = "cuBar_v9"};
        finds(CLI_OK, "warn  1 functions of the driver are newer versions", "newer release");
        does_not_say("does not know");
        now.hidden = 77;
        finds(CLI_OK, "warn  process 77 has loaded libfoo (foo)", "wait until it ends");
        now.unshared = (struct program_unshared){
                .pid = 78, .uid = 0, .name = "a.py", .preloads = true, .ours = true};
        finds(CLI_OK,
              "warn  process 78 (a.py) of root was started under sublet and uses the driver "
              "without",
              "sudo sublet run");
        now.unshared.ours = false;
        (void)strcpy(now.unshared.preload, "/lib/x.so");
        finds(CLI_OK, "warn  process 78 (a.py) of root uses the driver without libsublet.so",
              "LD_PRELOAD is '/lib/x.so'");
        now.unshared.preloads = false;
        finds(CLI_OK, "warn  process 78 (a.py) of root uses the driver without libsublet.so",
              "start it with sublet run");
        now.refused = 1;
        finds(CLI_OK, "ok    doctor may not look at 1 process of other users, which may run", NULL);
}

/* Checks the remedy when the library reports that freezing does not work. */
static void fails_with(int error, const char *remedy)
{
        now.freezing.gpus[0].result = error;
        (void)strcpy(now.freezing.gpus[0].answer.why, "some reason");
        finds(CLI_OK, "warn  programs on GPU 0 are not frozen: some reason (driver 580.1)\n",
              remedy);
        does_not_say("can be frozen");
}

static void each_reason_against_freezing_has_its_remedy(void **state)
{
        static const struct {
                int error;
                const char *remedy;
        } cases[] = {
                {-EBUSY, "less busy"},          {-EPERM, "gVisor, seccomp"},
                {-EPROTO, "newer release"},     {-EOPNOTSUPP, "virtual GPU"},
                {-ETIMEDOUT, "debugger"},       {-EIO, "please report it"},
                {-ENOEXEC, "please report it"}, {-ENODEV, "when their work in flight has ended"}};
        char text[32];

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                fails_with(cases[i].error, cases[i].remedy);
        (void)snprintf(text, sizeof(text), "%d\n", (int)getpid());
        write_file("nvidia-cuda-mps-control.pid", text);
        fails_with(-ENODEV, "echo quit | nvidia-cuda-mps-control");
        now.freezing.gpus[0].answer.driver[0] = 0;
        finds(CLI_OK, "warn  programs on GPU 0 are not frozen: some reason\n", NULL);
}

static void an_earlier_result_of_the_self_test_counts(void **state)
{
        struct freeze_tried *t = &now.freezing.gpus[0];

        t->answer.known = FREEZE_FAILS;
        (void)strcpy(t->answer.known_why, "it had failed");
        finds(CLI_OK,
              "ok    programs on GPU 0 can be frozen again (driver 580.1): it works now; before, "
              "it "
              "had failed\n",
              NULL);
        t->result = -EBUSY;
        (void)strcpy(t->answer.why, "busy");
        finds(CLI_OK, "warn  programs on GPU 0 are not frozen: it had failed (driver 580.1)\n",
              "less busy");
        t->answer.known = FREEZE_WORKS;
        finds(CLI_OK, "ok    programs on GPU 0 can be frozen (driver 580.1), as was found before;",
              NULL);
}

static void a_gpu_on_which_freezing_cannot_be_tried_is_named(void **state)
{
        struct freeze_tried *t = &now.freezing.gpus[0];

        *t = (struct freeze_tried){.stage = FREEZE_NO_CONTEXT, .result = 2};
        finds(CLI_OK, "warn  whether programs on GPU 0 can be frozen is not known: it has no room",
              "memory of the GPU is free");
        *t = (struct freeze_tried){.stage = FREEZE_NO_CONTEXT, .result = 46, .name = "CUDA_X"};
        finds(CLI_OK,
              "warn  whether programs on GPU 0 can be frozen is not known: no context can be made "
              "there (error 46, CUDA_X)\n",
              "again");
        t->stage = FREEZE_TRYING;
        now.freezing.hung = 1;
        finds(CLI_OK,
              "warn  programs on GPU 0 are not to be frozen: the driver did not answer when it was "
              "tried\n",
              "SUBLET_FREEZE=off");
        now.freezing.hung = 0;
        now.freezing.signal = SIGSEGV;
        finds(CLI_OK,
              "warn  programs on GPU 0 are not to be frozen: the process ended when it was "
              "tried: Segmentation",
              "NVRM");
        now.freezing.signal = 0;
        t->stage = FREEZE_NOT_ASKED;
        finds(CLI_OK,
              "warn  whether programs on GPU 0 can be frozen is not known: the process that",
              "NVRM");
        now.tries = -EAGAIN;
        finds(CLI_OK, "warn  whether programs can be frozen is not known: Resource temp", "again");
}

static void freezing_is_not_tried_if_it_is_off(void **state)
{
        now.gpus = 0; /* freeze_ask() must not be called */
        (void)setenv("SUBLET_FREEZE", "off", 1);
        finds(CLI_OK, "warn  programs started here are not frozen: SUBLET_FREEZE is off\n",
              "unset");
        (void)setenv("CUDA_INJECTION64_PATH", "/p.so", 1);
        (void)unsetenv("SUBLET_FREEZE");
        finds(CLI_OK, "warn  programs started here are not frozen: a profiler", "outside");
        (void)unsetenv("CUDA_INJECTION64_PATH");
        now.gpus = 1;
        (void)setenv("SUBLET_FREEZE", "park", 1);
        finds(CLI_OK, "ok    programs on GPU 0 can be frozen", NULL);
}

static void a_daemon_that_limits_freezing_is_named(void **state)
{
        now.daemon = 0;
        now.version = SUBLET_VERSION;
        now.most = "move";
        see(NULL, NULL);
        does_not_say("configuration says");
        now.most = "off";
        finds(CLI_OK,
              with_dir("warn  programs under the daemon in ",
                       " are not frozen, nor taken off the GPU by its hand: its configuration "
                       "says freeze = off\n"),
              "configuration");
        does_not_say("hand of the daemon");
        now.most = "park";
        finds(CLI_OK,
              with_dir("warn  programs under the daemon in ",
                       " can be paused, and are not frozen to give way: its configuration says "
                       "freeze = park\n"),
              "configuration");
}

static void the_daemons_hand_is_reported_as_its_status_says(void **state)
{
        now.daemon = 0;
        now.version = SUBLET_VERSION;
        now.hand = "works";
        finds(CLI_OK, with_dir("ok    the hand of the daemon in ", " takes programs off the GPU\n"),
              NULL);
        now.hand = "untried";
        finds(CLI_OK,
              with_dir("ok    whether the hand of the daemon in ",
                       " can take programs off the GPU shows with the first program\n"),
              NULL);
        now.hand = "missing";
        now.hand_why = "some reason";
        finds(CLI_OK,
              with_dir("warn  the daemon in ",
                       " has no hand to take programs off the GPU: some reason\n"),
              "time slices, and priorities and shares do not hold");
        now.hand = now.hand_why = NULL; /* as an older daemon answers */
        finds(CLI_OK,
              with_dir("warn  the daemon in ",
                       " has no hand to take programs off the GPU: its release has none\n"),
              "newer release");
}

static void a_driver_that_does_not_count_is_named(void **state)
{
        now.freezing.gpus[0].answer.counts = false;
        finds(CLI_OK, "warn  the daemon's hand takes no program off GPU 0: driver 580.1",
              "report the driver");
        finds(CLI_OK, "ok    programs on GPU 0 can be frozen", NULL);
}

static void a_running_mps_server_is_named(void **state)
{
        char text[32];

        (void)snprintf(text, sizeof(text), "%d\n", (int)getpid());
        write_file("nvidia-cuda-mps-control.pid", text);
        finds(CLI_OK, "warn  MPS runs here", "CUDA_MPS_PIPE_DIRECTORY");
        write_file("nvidia-cuda-mps-control.pid", "0\n"); /* not the number of a process */
        see(NULL, NULL);
        does_not_say("MPS runs");
        write_file("nvidia-cuda-mps-control.pid", "word\n");
        see(NULL, NULL);
        does_not_say("MPS runs");
        write_file("nvidia-cuda-mps-control.pid", "4194305\n"); /* above the largest pid */
        see(NULL, NULL);
        does_not_say("MPS runs");
}

static void missing_parts_and_those_of_another_release_are_failures(void **state)
{
        char library[128];

        (void)strcpy(library, cli_bench.parts[PART_LIBRARY]);
        (void)strcpy(cli_bench.parts[PART_LIBRARY], "/no/libsublet.so");
        finds(CLI_FAILED, "FAIL  /no/libsublet.so cannot be preloaded: ERROR",
              "another architecture");
        cli_bench.parts[PART_LIBRARY][0] = 0;
        finds(CLI_FAILED, "FAIL  the preload library is missing", "install sublet again");
        finds(CLI_FAILED, "warn  no program is frozen without the preload library\n", "mend that");
        (void)strcpy(cli_bench.parts[PART_LIBRARY], library);
        write_file("subletd", "#!/bin/sh\necho subletd 0.0.0\n");
        finds(CLI_FAILED, "FAIL  /tmp/sublet-doctor-", "from one tree");
        assert_non_null(
                strstr(now.out, "is not of this release (" SUBLET_VERSION "): subletd 0.0.0"));
        write_file("subletd", "#!/bin/sh\nexit 0\n");
        finds(CLI_FAILED, "FAIL  /tmp/sublet-doctor-", NULL);
        cli_bench.parts[PART_DAEMON][0] = 0;
        finds(CLI_FAILED, "FAIL  the daemon is missing", "install sublet again");
}

static void a_running_daemon_of_another_release_is_named(void **state)
{
        now.daemon = 0;
        now.version = SUBLET_VERSION;
        finds(CLI_OK,
              with_dir("ok    a daemon of this release (" SUBLET_VERSION ") runs in ", "\n"), NULL);
        now.version = "0.0.0";
        finds(CLI_OK,
              with_dir("warn  the daemon in ",
                       " is of release 0.0.0, this is " SUBLET_VERSION "\n"),
              "sublet stop");
        now.version = NULL;
        finds(CLI_OK, with_dir("warn  the daemon in ", " is of release unknown"), NULL);
        now.daemon = -EACCES;
        see("--daemon", "/run/x");
        assert_non_null(strstr(now.out, "directory is /run/x (the machine's)\n"));
        assert_ptr_equal(strstr(now.out, "FAIL  the daemon in /run/x does not let you in"),
                         now.out);
        now.daemon = -ECONNREFUSED;
        see("--daemon", "/run/x");
        assert_ptr_equal(strstr(now.out, "FAIL  no daemon answers in /run/x (Connection refused): "
                                         "programs wait 5 s for it, then run without sharing -> "
                                         "`sudo systemctl start subletd` starts the machine's"),
                         now.out);
        now.owner = OWNER_SAYS_YES;
        see("--daemon", "/run/x");
        assert_ptr_equal(strstr(now.out, "FAIL  no daemon answers in /run/x (Connection refused): "
                                         "programs wait until one does, because the owner of this "
                                         "machine requires sharing (" OWNER_FILE ") -> "),
                         now.out);
        now.owner = OWNER_IN_DOUBT;
        see("--daemon", "/run/x");
        assert_non_null(strstr(now.out, "then run without sharing"));
        assert_non_null(strstr(now.out, "\nwarn  " OWNER_FILE ": `require` does not hold"));
        see("--daemon", dir); /* a program may start one there */
        assert_non_null(strstr(now.out, with_dir("ok    no daemon runs in ", "; the first")));
        see("--daemon", "/x");
        assert_non_null(strstr(now.out, "directory is /x (named)\n"));
        assert_ptr_equal(strstr(now.out, "FAIL  no daemon answers in /x (Connection refused): "
                                         "programs run without sharing -> start one: subletd "
                                         "--dir /x\n"),
                         now.out);
        assert_int_equal(now.status, CLI_FAILED);
}

static void a_directory_open_to_others_is_a_failure(void **state)
{
        assert_int_equal(chmod(dir, 0755), 0);
        finds(CLI_FAILED, "FAIL  /tmp/sublet-doctor-", "chmod 700 /tmp/sublet-doctor-");
        assert_non_null(strstr(now.out,
                               "is not a directory that only you can enter (others may enter it)"));
        does_not_say("no daemon runs");
        assert_int_equal(chmod(dir, 0700), 0);
        see("--daemon", "long");
        assert_int_equal(now.status, CLI_FAILED);
        assert_non_null(strstr(now.out, "directory cannot be used"));
}

static void a_runtime_directory_that_is_not_used_is_named(void **state)
{
        (void)setenv("XDG_RUNTIME_DIR", "", 1);
        finds(CLI_OK, "ok    no XDG_RUNTIME_DIR", NULL);
        (void)setenv("XDG_RUNTIME_DIR", "relative", 1);
        finds(CLI_OK, "ok    XDG_RUNTIME_DIR=relative cannot be used", NULL);
        (void)setenv("XDG_RUNTIME_DIR", "/no/such", 1);
        finds(CLI_OK, "ok    XDG_RUNTIME_DIR=/no/such cannot be used", NULL);
        (void)setenv("XDG_RUNTIME_DIR", path_of("subletd"), 1);
        finds(CLI_OK, "warn  XDG_RUNTIME_DIR=/tmp/", "unset it");
        (void)setenv("XDG_RUNTIME_DIR", dir, 1);
        see(NULL, NULL);
        does_not_say("XDG_RUNTIME_DIR");
}

static void limits_of_memory_are_shown(void **state)
{
        struct rlimit before, less;

        assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
        less = before;
        less.rlim_cur = 64 * GIB;
        if (setrlimit(RLIMIT_AS, &less) < 0)
                skip();
        finds(CLI_OK, "warn  address space is limited to 64 GiB (ulimit -v)", "unlimited");
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
        less = before;
        less.rlim_cur = 64 * KIB;
        assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &less), 0);
        finds(CLI_OK, "ok    locked memory is limited to 64 KiB (ulimit -l)\n", NULL);
        does_not_say("address space");
        assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

#define DOCTOR_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                DOCTOR_TEST(a_machine_without_problems_gets_no_warning),
                DOCTOR_TEST(a_driver_that_does_not_answer_is_a_failure),
                DOCTOR_TEST(each_error_of_cuinit_has_its_remedy),
                DOCTOR_TEST(a_gpu_that_cannot_be_shared_is_a_failure),
                DOCTOR_TEST(problems_that_stop_no_program_are_warnings),
                DOCTOR_TEST(each_reason_against_freezing_has_its_remedy),
                DOCTOR_TEST(an_earlier_result_of_the_self_test_counts),
                DOCTOR_TEST(a_gpu_on_which_freezing_cannot_be_tried_is_named),
                DOCTOR_TEST(freezing_is_not_tried_if_it_is_off),
                DOCTOR_TEST(a_daemon_that_limits_freezing_is_named),
                DOCTOR_TEST(the_daemons_hand_is_reported_as_its_status_says),
                DOCTOR_TEST(a_driver_that_does_not_count_is_named),
                DOCTOR_TEST(a_running_mps_server_is_named),
                DOCTOR_TEST(missing_parts_and_those_of_another_release_are_failures),
                DOCTOR_TEST(a_running_daemon_of_another_release_is_named),
                DOCTOR_TEST(a_directory_open_to_others_is_a_failure),
                DOCTOR_TEST(a_runtime_directory_that_is_not_used_is_named),
                DOCTOR_TEST(limits_of_memory_are_shown),
        };

        /* The doctor starts its own program with the library preloaded. */
        if (argc == 2 && strcmp(argv[1], "--version") == 0)
                return puts("sublet " SUBLET_VERSION) < 0;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
