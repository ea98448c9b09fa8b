/* command_doctor.c: sublet doctor. Owns the findings and the advice. Must never change anything,
 * nor start a daemon. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/cleanup.h"
#include "base/host.h"
#include "base/macros.h"
#include "base/owner.h"
#include "base/settings.h"
#include "base/shares.h"
#include "base/units.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/doctor/doctor_configuration.h"
#include "client/driver/driver_ask.h"
#include "client/doctor/doctor_freeze.h"
#include "client/doctor/doctor_line.h"
#include "client/doctor/doctor_processes.h"
#include "client/doctor/finding.h"
#include "client/common/part_paths.h"
#include "client/common/value.h"
#include "client/doctor/doctor_places.h"

const struct option_row doctor_options[] = {
        {"daemon", "DIR", "look at the daemon in DIR", options_set_text,
         offsetof(struct target, daemon)},
        {"sim", "session=NAME", "look at the simulated driver instead of a GPU", target_set_sim,
         .optional = true},
        {0},
};

/* Reports on a GPU. Returns 1 if programs can use the GPU and sublet can manage it; 0 if not. */
static unsigned judge_gpu(int i, const struct driver_gpu *gpu)
{
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];

        if (gpu->vmm == 0) {
                finding_add(FAIL, "GPU %d, %s, has no virtual memory management", i, gpu->name);
                finding_remedy(
                        "sublet needs it to move memory; programs there run as without sublet");
        } else if (gpu->used_bytes != DRIVER_UNKNOWN) {
                finding_add(OK, "GPU %d, %s, %s, %s in use", i, gpu->name,
                            units_format_size(gpu->total_bytes, a),
                            units_format_size(gpu->used_bytes, b));
        } else {
                finding_add(OK, "GPU %d, %s, %s", i, gpu->name,
                            units_format_size(gpu->total_bytes, a));
        }
        if (gpu->compute_mode == 3 || gpu->compute_mode == 1) {
                finding_add(FAIL,
                            "GPU %d is in exclusive compute mode: the driver lets one process at a "
                            "time use it",
                            i);
                finding_remedy("sudo nvidia-smi -i %d -c DEFAULT (MPS uses this mode; sublet does "
                               "not need MPS)",
                               i);
        } else if (gpu->compute_mode == 2) {
                finding_add(
                        FAIL,
                        "GPU %d is in prohibited compute mode: the driver lets no process use it",
                        i);
                finding_remedy("sudo nvidia-smi -i %d -c DEFAULT", i);
        }
        return gpu->vmm != 0 && gpu->compute_mode != 2;
}

/* Returns the pid of the MPS control daemon, which it writes into the directory where programs look
 * for it; 0: MPS does not run. Under MPS several processes share the hardware of one context, and
 * end together. */
static int find_mps(const char **ret_dir)
{
        const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
        _cleanup_fclose_ FILE *file = NULL;
        char path[PATH_MAX];
        int pid = 0;

        if (!dir || !dir[0])
                dir = "/tmp/nvidia-mps";
        *ret_dir = dir;
        (void)snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", dir);
        file = fopen(path, "re");
        if (!file || fscanf(file, "%d", &pid) != 1 || pid <= 0 ||
            (kill(pid, 0) < 0 && errno != EPERM))
                return 0;
        return pid;
}

static void look_at_mps(void)
{
        const char *dir;
        int pid = find_mps(&dir);

        if (!pid)
                return;
        finding_add(WARN,
                    "MPS runs here (process %d, %s): a fault in one program can end all that go "
                    "through it",
                    pid, dir);
        finding_remedy(
                "nothing, if that is wanted; else echo quit | nvidia-cuda-mps-control, or start "
                "programs with CUDA_MPS_PIPE_DIRECTORY=/nonexistent");
}

/* Returns advice for an error of cuInit. */
static const char *why_not_started(int error)
{
        static const struct {
                int error;
                const char *remedy;
        } known[] = {
                {34, "this is the toolkit's stub and no driver: take its folder out of "
                     "LD_LIBRARY_PATH"},
                {100, "it finds no GPU: see nvidia-smi, and in a container whether the GPU was "
                      "passed in"},
                {802, "machines with NVSwitch need their fabric manager: systemctl status "
                      "nvidia-fabricmanager"},
                {803, "the driver was updated under it: reboot, and start containers again"},
                {804, "a compatibility library of CUDA is found first and this card does not take "
                      "it: take cuda-compat out of LD_LIBRARY_PATH"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
                if (known[i].error == error)
                        return known[i].remedy;
        return "see whether nvidia-smi answers, and reboot if the driver was updated under it";
}

static bool is_in(const char *file, const char *folder)
{
        size_t n = strlen(folder);

        return strncmp(file, folder, n) == 0 && file[n] == '/';
}

/* Returns the set of GPUs that a program can use: a bit 1 << ordinal for each. Sets *simulated if
 * the driver that programs find here is the simulated one, whose folder is `folder`. */
static unsigned look_at_driver(bool *simulated, const char *folder)
{
        struct driver_report report;
        unsigned usable = 0;
        int r;

        if (*simulated && access(folder, F_OK) < 0) {
                finding_add(FAIL, "the simulated driver is missing: no %s", folder);
                finding_remedy("build with -DSUBLET_SIM=ON");
                return 0;
        }
        r = driver_ask(*simulated ? folder : NULL, &report);
        if (r < 0) {
                finding_add(FAIL, "cannot ask the driver: %s", strerror(-r));
                return 0;
        }
        if (report.hung || report.signal) {
                finding_add(FAIL, "the driver %s when asked for its GPUs%s%s",
                            report.hung ? "did not answer" : "crashed", report.hung ? "" : ": ",
                            report.hung ? "" : strsignal(report.signal));
                finding_remedy("see whether nvidia-smi answers, and dmesg for lines with NVRM");
                return 0;
        }
        if (report.stage == DRIVER_NOT_FOUND) {
                finding_add(FAIL, "no NVIDIA driver: %s", report.reason);
                finding_remedy("install the driver of your GPU; without one try sublet demo and "
                               "sublet run --sim");
                return 0;
        }
        if (report.stage == DRIVER_NOT_STARTED) {
                finding_add(FAIL, "the driver does not start: cuInit answers error %d, %s",
                            report.result, report.reason);
                finding_remedy("%s", why_not_started(report.result));
                return 0;
        }
        *simulated = is_in(report.library, folder);
        finding_add(report.n_gpus > 0 ? OK : FAIL, "%s for CUDA %d.%d, %d GPU%s",
                    *simulated ? "simulated driver" : "NVIDIA driver", report.version / 1000,
                    report.version % 1000 / 10, report.n_gpus, report.n_gpus == 1 ? "" : "s");
        if (report.n_gpus == 0)
                finding_remedy("see CUDA_VISIBLE_DEVICES, and whether nvidia-smi lists one");
        for (int i = 0; i < report.n_gpus; i++)
                usable |= judge_gpu(i, &report.gpus[i]) << i;
        if (report.symbols.unknown > 0)
                finding_add(OK,
                            "of the driver's %u functions this release does not know %u, and "
                            "leaves them alone: %s",
                            report.symbols.all, report.symbols.unknown, report.symbols.names);
        if (report.symbols.undecided > 0) {
                finding_add(WARN,
                            "%u functions of the driver are newer versions of what sublet "
                            "catches; programs that look them up do not find them: %s",
                            report.symbols.undecided, report.symbols.versions);
                finding_remedy("install a newer release of sublet if a program needs them");
        }
        if (report.nvml) {
                finding_add(OK, "NVML answers");
        } else {
                finding_add(WARN, "NVML (libnvidia-ml.so.1) does not answer: the memory of "
                                  "programs outside sublet is not seen");
                finding_remedy("install the package of your driver that carries nvidia-smi");
        }
        return usable;
}

/* Reads what `command --version` prints. 0 or -errno. */
static int ask_version(const char *command, const char *preload, char *ret, size_t n)
{
        const char *const argv[] = {command, "--version", NULL};
        int r = line_of(argv, preload, ret, n);

        return r < 0 ? r : 0;
}

/* Reports on the library and the daemon. False: programs cannot load the library. */
static bool look_at_parts(char ret_library[static PATH_MAX])
{
        char path[PATH_MAX], self[PATH_MAX], said[256];
        bool ok = false;

        if (parts_find(PART_LIBRARY, ret_library) < 0) {
                finding_add(FAIL, "the preload library is missing: no %s", ret_library);
                finding_remedy("build it, or install sublet again");
        } else if (!realpath("/proc/self/exe", self) ||
                   ask_version(self, ret_library, said, sizeof(said)) < 0 ||
                   strcmp(said, "sublet " SUBLET_VERSION) != 0) {
                finding_add(FAIL, "%s cannot be preloaded: %s", ret_library, said);
                finding_remedy("build it for this machine; programs of another architecture cannot "
                               "use it");
        } else {
                finding_add(OK, "%s can be preloaded", ret_library);
                ok = true;
        }
        if (parts_find(PART_DAEMON, path) < 0) {
                finding_add(FAIL, "the daemon is missing: no %s", path);
                finding_remedy("build it, or install sublet again");
        } else if (ask_version(path, NULL, said, sizeof(said)) < 0 ||
                   strcmp(said, "subletd " SUBLET_VERSION) != 0) {
                finding_add(FAIL, "%s is not of this release (%s): %s", path, SUBLET_VERSION, said);
                finding_remedy("build or install both from one tree");
        } else {
                finding_add(OK, "%s is of this release (%s)", path, SUBLET_VERSION);
        }
        return ok;
}

/* ---- freezing ---- */

/* The remedies where there is no hand end like this. */
#define SLICES_REMEDY                                                                  \
        "programs whose memory fits get the driver's time slices, and priorities and " \
        "shares do not hold between them"

static const char *why_no_channels(void)
{
        const char *dir;

        if (find_mps(&dir))
                return "end MPS (echo quit | nvidia-cuda-mps-control), or start programs with "
                       "CUDA_MPS_PIPE_DIRECTORY=/nonexistent";
        if (access("/dev/dxg", F_OK) == 0)
                return "WSL gives no program channels of its own: they give way when their work in "
                       "flight has ended";
        return "they give way when their work in flight has ended";
}

static const char *freeze_remedy(int error)
{
        switch (error) {
        case -EBUSY:
                return "run sublet doctor again when the GPU is less busy";
        case -ENODEV:
                return why_no_channels();
        case -EPERM:
                return "let programs call ioctl on /dev/nvidiactl, if they run in a sandbox "
                       "(gVisor, seccomp)";
        case -EPROTO:
                return "install a newer release of sublet, and report the driver if there is none";
        case -EOPNOTSUPP:
                return "a sandbox or a virtual GPU may lack the call; programs give way when their "
                       "work in flight has ended";
        case -ETIMEDOUT:
                return "run sublet doctor again when no debugger uses this GPU, and report it if "
                       "that stays";
        default:
                return "please report it, with the driver and the lines about Xid that dmesg shows";
        }
}

static void judge_freeze(int gpu, const struct freeze_tried *t)
{
        const struct freeze_answer *a = &t->answer;
        bool untold = t->result == -EBUSY;

        if (t->result == 0 && a->known == FREEZE_FAILS) {
                finding_add(OK,
                            "programs on GPU %d can be frozen again (driver %s): it works now; "
                            "before, %s",
                            gpu, a->driver, a->known_why);
        } else if (t->result == 0) {
                finding_add(OK,
                            "programs on GPU %d can be frozen (driver %s): to be paused, and "
                            "to give way at once",
                            gpu, a->driver);
        } else if (untold && (a->known == FREEZE_WORKS || a->known == FREEZE_WORKS_ALONE)) {
                finding_add(OK,
                            "programs on GPU %d can be frozen (driver %s), as was found before; "
                            "now it is too busy to try",
                            gpu, a->driver);
        } else {
                finding_add(WARN, "programs on GPU %d are not frozen: %s%s%s%s", gpu,
                            untold && a->known == FREEZE_FAILS ? a->known_why : a->why,
                            a->driver[0] ? " (driver " : "", a->driver, a->driver[0] ? ")" : "");
                finding_remedy("%s", freeze_remedy(t->result));
        }
        if (t->result == 0 && !a->counts) {
                finding_add(WARN,
                            "the daemon's hand takes no program off GPU %d: driver %s does not "
                            "count how often a channel was disabled",
                            gpu, a->driver);
                finding_remedy("report the driver; there, " SLICES_REMEDY);
        }
}

static void judge_no_context(int gpu, const struct freeze_tried *t)
{
        if (t->result == 2) { /* CUDA_ERROR_OUT_OF_MEMORY */
                finding_add(WARN,
                            "whether programs on GPU %d can be frozen is not known: it has no "
                            "room to try",
                            gpu);
                finding_remedy("run sublet doctor again when memory of the GPU is free");
                return;
        }
        finding_add(WARN,
                    "whether programs on GPU %d can be frozen is not known: no context can be "
                    "made there (error %d, %s)",
                    gpu, t->result, t->name);
        finding_remedy("run sublet doctor again when programs can use it");
}

static void judge_no_answer(int gpu, const struct freeze_report *r)
{
        const char *when = r->gpus[gpu].stage == FREEZE_TRYING ? "it was tried" : "it was begun";

        if (r->hung)
                finding_add(WARN,
                            "programs on GPU %d are not to be frozen: the driver did not answer "
                            "when %s",
                            gpu, when);
        else if (r->signal)
                finding_add(WARN,
                            "programs on GPU %d are not to be frozen: the process ended when %s: "
                            "%s",
                            gpu, when, strsignal(r->signal));
        else
                finding_add(WARN,
                            "whether programs on GPU %d can be frozen is not known: the process "
                            "that was to try ended when %s",
                            gpu, when);
        finding_remedy("set SUBLET_FREEZE=off for programs, and see dmesg for lines with NVRM");
}

static void look_at_freezing(const char *library, const char *folder, unsigned gpus)
{
        const char *set = setting_text(SETTING_FREEZE), *profiler = getenv("CUDA_INJECTION64_PATH");
        struct freeze_report report;
        int r;

        if (!gpus)
                return;
        if (!library) {
                finding_add(WARN, "no program is frozen without the preload library");
                finding_remedy("mend that first");
                return;
        }
        if (set && strcmp(set, "off") == 0) {
                finding_add(WARN, "programs started here are not frozen: SUBLET_FREEZE is off");
                finding_remedy("unset SUBLET_FREEZE");
                return;
        }
        if (profiler && *profiler) {
                finding_add(WARN, "programs started here are not frozen: a profiler is attached "
                                  "to them (CUDA_INJECTION64_PATH)");
                finding_remedy("start sublet outside of the profiler");
                return;
        }
        r = freeze_ask(library, folder, gpus, &report);
        if (r < 0) {
                finding_add(WARN, "whether programs can be frozen is not known: %s", strerror(-r));
                finding_remedy("run sublet doctor again");
                return;
        }
        for (int i = 0; i < DRIVER_GPUS_MAX; i++) {
                if (!(gpus & 1u << i))
                        continue;
                if (report.gpus[i].stage == FREEZE_ANSWERED)
                        judge_freeze(i, &report.gpus[i]);
                else if (report.gpus[i].stage == FREEZE_NO_CONTEXT)
                        judge_no_context(i, &report.gpus[i]);
                else
                        judge_no_answer(i, &report);
        }
}

static const char *kind_name(enum paths_kind kind)
{
        static const char *const names[] = {[PATHS_NAMED] = "named",
                                            [PATHS_SYSTEM] = "the machine's",
                                            [PATHS_PRIVATE] = "yours"};

        return names[kind];
}

/* Returns who forbids programs started here to run without sharing; NULL: nobody. */
static const char *who_requires(void)
{
        switch (owner_requires()) {
        case OWNER_SAYS_YES:
                return OWNER_REQUIRES;
        case OWNER_IN_DOUBT:
                finding_add(WARN,
                            "%s: `require` does not hold, because others than root may write "
                            "the file",
                            OWNER_FILE);
                finding_remedy("chown root, chmod go-w");
                break;
        case OWNER_NOT_KNOWN:
        case OWNER_SAYS_NO:
                break;
        }
        return setting_is_on(SETTING_REQUIRE) ? "SUBLET_REQUIRE=1 is set" : NULL;
}

/* Reports that no daemon answers. on_demand: if no daemon runs in this directory, a program starts
 * one. requires: what who_requires() returned. */
static void judge_absent_daemon(int r, const char *dir, enum paths_kind kind, bool on_demand,
                                const char *requires)
{
        const int missing =
                paths_check_private(dir, getuid()) == -ENOENT ? target_can_make(dir) : 0;

        if (r == -ETIMEDOUT) {
                finding_add(FAIL, "the daemon in %s does not answer: programs wait for it", dir);
                finding_remedy(TARGET_SILENT_REMEDY);
        } else if (on_demand && missing < 0) {
                finding_add(FAIL, "no daemon can be started in %s (%s): programs %s", dir,
                            strerror(-missing), requires ? "wait" : "run without sharing");
                finding_remedy("set SUBLET_DIR or XDG_RUNTIME_DIR to a directory in which you may "
                               "make one");
        } else if (on_demand) {
                finding_add(OK, "no daemon runs in %s; the first program starts one", dir);
        } else if (r == -EACCES) {
                finding_add(FAIL,
                            "the daemon in %s does not let you in: it is another user's, or of "
                            "a group that you are not in",
                            dir);
                finding_remedy("ask its administrator; until then programs %s",
                               requires ? "wait" : "run without sharing");
        } else {
                if (requires)
                        finding_add(FAIL,
                                    "no daemon answers in %s (%s): programs wait until one does, "
                                    "because %s",
                                    dir, strerror(-r), requires);
                else if (kind == PATHS_SYSTEM)
                        finding_add(FAIL,
                                    "no daemon answers in %s (%s): programs wait 5 s for it, then "
                                    "run without sharing",
                                    dir, strerror(-r));
                else
                        finding_add(FAIL,
                                    "no daemon answers in %s (%s): programs run without sharing",
                                    dir, strerror(-r));
                if (kind == PATHS_SYSTEM)
                        finding_remedy("%s", paths_system_remedy());
                else
                        finding_remedy("start one: subletd --dir %s", dir);
        }
}

/* Reports the daemon's limit on freezing. most: the daemon's setting `freeze`; NULL: there is
 * none. */
static void judge_limit(const char *dir, const char *most)
{
        if (!most || strcmp(most, "move") == 0)
                return;
        if (strcmp(most, "off") == 0)
                finding_add(WARN,
                            "programs under the daemon in %s are not frozen, nor taken off the GPU "
                            "by its hand: its configuration says freeze = off",
                            dir);
        else
                finding_add(WARN,
                            "programs under the daemon in %s can be paused, and are not frozen "
                            "to give way: its configuration says freeze = %s",
                            dir, most);
        finding_remedy("take the line out of its configuration and start the daemon again");
}

/* Reports on the daemon's hand. hand: that of the daemon's status; NULL: an older daemon, which has
 * none. */
static void judge_hand(const char *dir, const json_t *hand)
{
        const char *state = json_string_value(json_object_get(hand, "state"));
        const char *why = json_string_value(json_object_get(hand, "why"));

        if (state && strcmp(state, "works") == 0) {
                finding_add(OK, "the hand of the daemon in %s takes programs off the GPU", dir);
        } else if (state && strcmp(state, "untried") == 0) {
                finding_add(OK,
                            "whether the hand of the daemon in %s can take programs off the GPU "
                            "shows with the first program",
                            dir);
        } else {
                finding_add(WARN, "the daemon in %s has no hand to take programs off the GPU: %s",
                            dir, why ? why : "its release has none");
                finding_remedy(
                        "let the daemon open /dev/nvidiactl and /dev/nvidia0, ..., or install "
                        "a newer release; until then " SLICES_REMEDY);
        }
}

/* Returns the daemon's status, a new reference; NULL: no daemon answered. Clears *good if the
 * daemon's configuration has a mistake. */
static json_t *look_at_daemon(const struct target *target, bool *good)
{
        json_t *answer = NULL;
        const char *requires = who_requires(), *version, *most;
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
        bool on_demand;
        int r;

        if (target_dir(target, dir, &kind) != CLI_OK) {
                finding_add(FAIL, "the daemon's directory cannot be used");
                finding_remedy("choose another one; a line in stderr says why");
                return NULL;
        }
        r = paths_check_private(dir, getuid());
        if (kind == PATHS_PRIVATE && r < 0 && r != -ENOENT) {
                finding_add(FAIL, "%s is not a directory that only you can enter (%s)", dir,
                            r == -EPERM    ? "somebody else owns it"
                            : r == -EACCES ? "others may enter it"
                                           : strerror(-r));
                if (r == -EACCES)
                        finding_remedy("chmod 700 %s", dir);
                else
                        finding_remedy("remove it, or set SUBLET_DIR to another one");
                return NULL;
        }
        on_demand = kind == PATHS_PRIVATE ||
                    (kind == PATHS_NAMED && (r == 0 || (r == -ENOENT && !target->daemon)));
        finding_add(OK, "the daemon's directory is %s (%s)", dir, kind_name(kind));
        if (kind == PATHS_PRIVATE && !target->simulated)
                finding_add(OK, "to take turns with other users, share one daemon: subletd as "
                                "root, or subletd --shared and SUBLET_DIR");
        r = ask_daemon(dir, kind, json_pack("{ss}", "order", "status"), &answer);
        if (r < 0) {
                judge_absent_daemon(r, dir, kind, on_demand, requires);
                *good = configuration_look(dir, on_demand, NULL);
                places_look_at_others(target, dir, kind);
                return NULL;
        }
        version = json_string_value(json_object_get(answer, "version"));
        if (version && strcmp(version, SUBLET_VERSION) == 0) {
                finding_add(OK, "a daemon of this release (%s) runs in %s", version, dir);
        } else {
                finding_add(WARN, "the daemon in %s is of release %s, this is %s", dir,
                            version ? version : "unknown", SUBLET_VERSION);
                finding_remedy("sublet stop; the next program starts a new one");
        }
        *good = configuration_look(dir, kind == PATHS_PRIVATE, answer);
        places_look_at_others(target, dir, kind);
        most = json_string_value(json_object_get(answer, "freeze"));
        judge_limit(dir, most);
        if (!most || strcmp(most, "off") != 0)
                judge_hand(dir, json_object_get(answer, "hand"));
        return answer;
}

static void look_at_host_memory(void)
{
        const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
        struct host_memory m;
        struct rlimit locked;
        bool limited;

        if (host_memory_read(&m) < 0) {
                finding_add(WARN, "/proc/meminfo does not say how much host memory there is");
                return;
        }
        limited = (double)m.total_bytes < machine;
        finding_add(OK, "host memory available for what does not fit the GPU: %s%s%s",
                    units_format_size(m.available_bytes, a), limited ? ", the cgroup allows " : "",
                    limited ? units_format_size(m.total_bytes, b) : "");
        if (getrlimit(RLIMIT_AS, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY) {
                finding_add(WARN, "address space is limited to %s (ulimit -v); CUDA reserves more",
                            units_format_size(locked.rlim_cur, a));
                finding_remedy("ulimit -v unlimited");
        }
        if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
                finding_add(OK, "locked memory is limited to %s (ulimit -l)",
                            units_format_size(locked.rlim_cur, a));
}

/* If libsublet.so is preloaded into doctor, as after eval "$(sublet env)", restarts doctor without
 * it. Otherwise doctor would examine sublet instead of the driver. */
static void leave_preload(char **argv)
{
        const char *preload = getenv("LD_PRELOAD");

        if (!preload || !strstr(preload, "libsublet.so"))
                return;
        (void)unsetenv("LD_PRELOAD");
        argv[-1] = (char *)"sublet";
        (void)execv("/proc/self/exe", argv - 1);
}

/* Reports variables of ours that are misspelt or have a malformed value. Programs pass over such a
 * value, unless it was to be a limit: then they do not start CUDA. */
static void look_at_variables(void)
{
        char name[SETTING_NAME_MAX], form[SETTING_FORM_MAX];
        size_t at = 0;
        unsigned away;

        for (enum setting s = 0; s < SETTING_COUNT; s++) {
                const char *value = setting_text(s);

                if (!value || value_is_good(s, value))
                        continue;
                (void)setting_form(s, form);
                if (s == SETTING_MEMORY_CAP || (s == SETTING_SHARE && shares_may_bound(value)))
                        finding_add(FAIL, "%s is %s, not '%s': programs started here get an error",
                                    settings[s].name, form, value);
                else
                        finding_add(WARN, "%s is %s, not '%s': it has no effect", settings[s].name,
                                    form, value);
                finding_remedy("correct it, or unset %s", settings[s].name);
        }

        while (setting_unknown(&at, name)) {
                finding_add(WARN, "%s is set, and is no variable of sublet", name);
                finding_remedy("did you mean %s? `sublet help variables` lists them",
                               settings[setting_closest(name, &away)].name);
        }
}

static const char *verdict(void)
{
        if (finding_worst() == FAIL)
                return "\nPrograms cannot share a GPU here until the lines with FAIL are mended.";
        return finding_worst() == OK
                       ? "\nPrograms can share the GPU here: start them with sublet run."
                       : "\nPrograms can share the GPU here; the lines with warn say what could "
                         "be better.";
}

#define FILES_LEAST 32 /* descriptors that a process must be allowed */

/* Returns false if the process may open too few descriptors. The other checks would then report
 * existing files as missing. */
static bool can_look(void)
{
        struct rlimit files;

        if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= FILES_LEAST)
                return true;
        finding_add(FAIL, "programs started here may have %llu files open: too few for CUDA",
                    (unsigned long long)files.rlim_cur);
        finding_remedy("ulimit -n 1024, then sublet doctor again");
        return false;
}

int doctor_main(const struct cli_command *self, int argc, char **argv)
{
        char folder[PATH_MAX], library[PATH_MAX];
        struct target target = {0};
        bool simulated, has_library;
        json_t *status;
        unsigned gpus;
        bool good = true;
        int r;

        (void)freeze_try(argc, argv);
        leave_preload(argv);
        r = cli_parse(self, argc, argv, OPTIONS_NO_WORDS, &target, NULL);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (target.session)
                (void)setenv("SIMCUDA_SESSION", target.session, 1);
        if (!can_look()) {
                findings_print();
                (void)puts(verdict());
                return CLI_FAILED;
        }
        (void)parts_find(PART_SIMULATOR, folder);
        simulated = target.simulated;
        gpus = look_at_driver(&simulated, folder);
        has_library = look_at_parts(library);
        status = look_at_daemon(&target, &good);
        processes_look(status, folder, simulated);
        json_decref(status);
        look_at_variables();
        places_look_at_runtime();
        look_at_mps();
        look_at_freezing(has_library ? library : NULL, target.simulated ? folder : NULL, gpus);
        look_at_host_memory();
        findings_print();
        (void)puts(verdict());
        return finding_worst() == FAIL || !good ? CLI_FAILED : CLI_OK;
}
