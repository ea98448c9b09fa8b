/* launch_gpu.c: owns the choice of GPUs, and the line about them at the start: it asks the daemon,
 * which knows NVML's numbers and UUIDs. Must never give the program a number that means another GPU
 * to CUDA. */
#include "client/launch/launch_gpu.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "client/figures/figures.h"
#include "client/talk/control_order.h"
#include "client/launch/launch.h"

#define NAPS   600
#define NAP_NS (5 * NSEC_PER_MSEC)
#define LOOKS  20 /* how often the daemon is asked until its figures are new */

#define NODES_MAX 256 /* device files /dev/nvidiaN that are looked for */

/* ---- the daemon ---- */

struct daemon {
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
};

static int find_daemon(const struct launch *l, struct daemon *ret)
{
        const struct target target = {.daemon = launch_value(l, "SUBLET_DIR")};

        return target_dir(&target, ret->dir, &ret->kind);
}

static _Noreturn void become_daemon(const struct launch *l, const char *path, const char *dir)
{
        (void)launch_apply(l);
        (void)unsetenv("LD_PRELOAD");
        (void)execl(path, "subletd", "--private", "--dir", dir, (char *)NULL);
        _exit(127);
}

/* Starts a daemon only in a directory that no other user can enter. */
static bool start_daemon(const struct launch *l, const char *dir, enum paths_kind kind)
{
        const char *path = launch_value(l, "SUBLET_DAEMON");
        int may, status = 0;
        pid_t pid;

        if (!path || kind == PATHS_SYSTEM)
                return false;
        may = kind == PATHS_PRIVATE ? paths_make_private(dir, getuid())
                                    : paths_check_private(dir, getuid());
        if (may < 0 && may != -ENOENT)
                return false;
        /* A grandchild, so that the program that follows has no child that it does not know. */
        pid = fork();
        if (pid == 0) {
                pid = fork();
                if (pid == 0)
                        become_daemon(l, path, dir);
                _exit(pid < 0);
        }
        return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool may_come(int r)
{
        /* ECONNRESET: a shared daemon ends a user's oldest connection when too many come at once.
         */
        return r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE;
}

bool gpu_daemon_comes(const struct launch *l, const char *dir, enum paths_kind kind, int r)
{
        return r == -ENOENT || r == -ECONNREFUSED ? start_daemon(l, dir, kind) : may_come(r);
}

bool gpu_await_daemon(int r, unsigned n)
{
        static const struct timespec nap = {.tv_nsec = NAP_NS};

        if (n >= NAPS || !may_come(r))
                return false;
        (void)nanosleep(&nap, NULL);
        return true;
}

/* Gives the daemon an order, and starts a daemon if there is none. Takes over the order. */
static int ask(const struct launch *l, const struct daemon *d, json_t *order, json_t **ret)
{
        json_t *answer = NULL;
        int r = ask_daemon(d->dir, d->kind, json_incref(order), &answer);
        const bool comes = gpu_daemon_comes(l, d->dir, d->kind, r);

        for (unsigned n = 0; comes && gpu_await_daemon(r, n); n++)
                r = ask_daemon(d->dir, d->kind, json_incref(order), &answer);
        json_decref(order);
        return control_answered(r, d->dir, true, answer, ret);
}

/* ---- names of GPUs ---- */

static const char *text_of(const json_t *gpu, const char *key)
{
        const char *text = json_string_value(json_object_get(gpu, key));

        return text ? text : "";
}

static long long number_of(const json_t *gpu)
{
        const json_t *nvml = json_object_get(gpu, "nvml_index");

        return json_integer_value(json_is_integer(nvml) ? nvml : json_object_get(gpu, "index"));
}

/* Returns the one GPU that the name means: by NVML's number, or by the beginning of its UUID. NULL:
 * none, or several. */
static json_t *find(const json_t *gpus, const char *name, unsigned *ret_matches)
{
        json_t *found = NULL, *gpu;
        char *end;
        long number = strtol(name, &end, 10);
        bool is_number = name[0] >= '0' && name[0] <= '9' && !*end;
        bool is_uuid = strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0;
        size_t i;

        *ret_matches = 0;
        json_array_foreach (gpus, i, gpu) {
                if (!(is_number && number_of(gpu) == number) &&
                    !(is_uuid && strncasecmp(text_of(gpu, "uuid"), name, strlen(name)) == 0))
                        continue;
                found = gpu;
                (*ret_matches)++;
        }
        return *ret_matches == 1 ? found : NULL;
}

/* Says which GPUs there are: "0 (GPU-0123...), ...". */
static int fail_missing(const json_t *gpus, const char *name, unsigned matches)
{
        char list[2048] = "";
        const json_t *gpu;
        size_t i, used = 0;

        if (json_array_size(gpus) == 0)
                return cli_fail(CLI_FAILED, "--gpu: no GPU is known here: is NVIDIA's driver "
                                            "loaded? sublet doctor looks");
        json_array_foreach (gpus, i, gpu) {
                used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%lld (%s)",
                                         i ? ", " : "", number_of(gpu), text_of(gpu, "uuid"));
                if (used >= sizeof(list))
                        break;
        }
        return cli_fail(CLI_USAGE, "--gpu: '%s' names %s GPU; the GPUs here: %s", name,
                        matches > 1 ? "more than one" : "no", list);
}

/* True if CUDA, in the order of the bus, gives the GPUs the numbers that NVML gives them for the
 * daemon. In a container with some of the GPUs it does not. */
static bool has_numbers(const json_t *gpus)
{
        const char *simulated = getenv("SIMCUDA_DEV"), *order = getenv("CUDA_DEVICE_ORDER");
        size_t i, n_nodes = 0;
        const json_t *gpu;

        if (order && strcmp(order, "PCI_BUS_ID") != 0)
                return false;
        json_array_foreach (gpus, i, gpu)
                if (strncmp(text_of(gpu, "uuid"), "GPU-", 4) != 0 ||
                    !json_is_integer(json_object_get(gpu, "nvml_index")))
                        return false;
        for (unsigned minor = 0; minor < NODES_MAX; minor++) {
                char path[256];

                (void)snprintf(path, sizeof(path), "%.200s/nvidia%u",
                               simulated ? simulated : "/dev", minor);
                n_nodes += access(path, R_OK | W_OK) == 0;
        }
        return n_nodes == 0 || n_nodes == json_array_size(gpus);
}

/* Shows the program the chosen GPUs: by number if has_numbers(), because some programs understand
 * nothing else. */
static int show(struct launch *l, const json_t *gpus, const json_t *chosen)
{
        const bool by_number = has_numbers(gpus);
        char *list = NULL;
        const json_t *gpu;
        size_t i, size;
        int r;
        FILE *f = open_memstream(&list, &size);

        json_array_foreach (chosen, i, gpu)
                if (f && by_number)
                        (void)fprintf(f, "%s%lld", i ? "," : "", number_of(gpu));
                else if (f)
                        (void)fprintf(f, "%s%s", i ? "," : "", text_of(gpu, "uuid"));
        if (!f || fclose(f) != 0)
                return cli_fail(CLI_FAILED, "out of memory");
        r = launch_set(l, "CUDA_VISIBLE_DEVICES", list);
        return r == CLI_OK && by_number ? launch_set(l, "CUDA_DEVICE_ORDER", strdup("PCI_BUS_ID"))
                                        : r;
}

static bool has(const json_t *list, const json_t *gpu)
{
        const json_t *one;
        size_t i;

        json_array_foreach (list, i, one)
                if (one == gpu)
                        return true;
        return false;
}

static int choose_named(struct launch *l, const json_t *gpus, const char *text)
{
        _cleanup_free_ char *copy = strdup(text);
        char *rest = copy, *name;
        json_t *chosen = json_array();
        int r = copy ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");

        while (r == CLI_OK && (name = strsep(&rest, ","))) {
                unsigned matches;
                json_t *gpu = find(gpus, name, &matches);

                if (!gpu)
                        r = fail_missing(gpus, name, matches);
                else if (!has(chosen, gpu))
                        (void)json_array_append(chosen, gpu);
        }
        if (r == CLI_OK)
                r = show(l, gpus, chosen);
        json_decref(chosen);
        return r;
}

/* ---- auto ---- */

/* True if CUDA's numbers are NVML's: the user has set the order of the bus, or the GPUs are alike.
 * With MIG they are not: CUDA counts GPUs, and we count their instances. */
static bool is_numbered_alike(const json_t *gpus)
{
        const char *order = getenv("CUDA_DEVICE_ORDER");
        bool by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
        const json_t *gpu, *first = json_array_get(gpus, 0);
        size_t i;

        json_array_foreach (gpus, i, gpu)
                if (strncmp(text_of(gpu, "uuid"), "MIG-", 4) == 0 ||
                    (!by_bus && strcmp(text_of(gpu, "name"), text_of(first, "name")) != 0))
                        return false;
        return true;
}

/* Finds the GPUs that CUDA_VISIBLE_DEVICES shows. As in the driver, the first entry that names no
 * GPU ends the list. */
static int find_visible(const json_t *gpus, const char *visible, json_t *ret_among)
{
        _cleanup_free_ char *copy = strdup(visible);
        char *rest = copy, *name;

        while (copy && (name = strsep(&rest, ","))) {
                unsigned matches;
                const json_t *gpu = find(gpus, name + strspn(name, " "), &matches);

                if (!gpu)
                        break;
                if (strncmp(name + strspn(name, " "), text_of(gpu, "uuid"), 4) != 0 &&
                    !is_numbered_alike(gpus))
                        return cli_fail(
                                CLI_USAGE,
                                "--gpu auto: CUDA_VISIBLE_DEVICES=%s counts in CUDA's order, "
                                "which may differ from NVML's: set "
                                "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs by UUID",
                                visible);
                (void)json_array_append_new(ret_among, json_string(text_of(gpu, "uuid")));
        }
        if (json_array_size(ret_among) == 0)
                return cli_fail(CLI_USAGE, "--gpu auto: CUDA_VISIBLE_DEVICES='%s' shows no GPU",
                                visible);
        return CLI_OK;
}

int gpu_show(struct launch *l, const char *dir, enum paths_kind kind, const char *uuid)
{
        json_t *status = NULL, *gpus;
        unsigned matches;
        int r;

        (void)ask_daemon(dir, kind, json_pack("{s:s}", "order", "status"), &status);
        gpus = json_object_get(status, "gpus");
        r = find(gpus, uuid, &matches) ? choose_named(l, gpus, uuid)
                                       : launch_set(l, "CUDA_VISIBLE_DEVICES", strdup(uuid));
        json_decref(status);
        return r;
}

/* among: the GPUs to choose from, whose reference is taken over; NULL: all. */
static int choose_auto(struct launch *l, const struct daemon *d, json_t *among)
{
        json_t *order = json_pack("{s:s, s:o*}", "order", "reserve", "among", among);
        json_t *answer;
        int r = ask(l, d, order, &answer);

        if (r != CLI_OK)
                return r;
        r = gpu_show(l, d->dir, d->kind, text_of(answer, "uuid"));
        json_decref(answer);
        return r;
}

int gpu_choose(struct launch *l, const char *text)
{
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        bool automatic = strcmp(text, "auto") == 0;
        json_t *status, *gpus, *among;
        struct daemon d;
        int r = find_daemon(l, &d);

        if (r == CLI_OK && automatic && !visible)
                return choose_auto(l, &d, NULL);
        if (r == CLI_OK)
                r = ask(l, &d, json_pack("{s:s}", "order", "status"), &status);
        if (r != CLI_OK)
                return r;
        gpus = json_object_get(status, "gpus");
        if (automatic) {
                among = json_array();
                r = find_visible(gpus, visible, among);
                if (r == CLI_OK)
                        r = choose_auto(l, &d, among);
                else
                        json_decref(among);
        } else {
                r = choose_named(l, gpus, text);
        }
        json_decref(status);
        return r;
}

/* ---- the line about the start ---- */

static void add_gpu(const json_t *gpu, char *line, size_t n)
{
        const size_t others = json_array_size(json_object_get(gpu, "clients")), used = strlen(line);
        const double visible = figure_number(gpu, "visible");
        const double left = figure_number(gpu, "capacity") - figure_number(gpu, "headroom") -
                            figure_number(gpu, "charged");
        const bool large = visible >= 10.0 * GIB;
        const double unit = large ? GIB : MIB;
        char with[48] = "nobody";

        if (others)
                (void)snprintf(with, sizeof(with), "%zu other%s", others, others == 1 ? "" : "s");
        (void)snprintf(line + used, n - used,
                       "%sGPU %lld, shared with %s, %.0f of %.0f %s free now", used ? "; " : "",
                       number_of(gpu), with, MIN(MAX(left, 0.0), visible) / unit, visible / unit,
                       large ? "GiB" : "MiB");
}

void gpu_line(const json_t *status, const char *visible, char *line, size_t n)
{
        const json_t *gpus = json_object_get(status, "gpus"), *gpu;
        _cleanup_free_ char *copy = visible ? strdup(visible) : NULL;
        char *rest = copy, *name;
        size_t i;

        line[0] = '\0';
        json_array_foreach (gpus, i, gpu)
                if (!copy)
                        add_gpu(gpu, line, n);
        while (copy && (name = strsep(&rest, ","))) {
                unsigned matches;

                gpu = find(gpus, name + strspn(name, " "), &matches);
                if (!gpu)
                        break; /* this entry ends the list, as for the driver */
                add_gpu(gpu, line, n);
        }
        if (!line[0])
                (void)snprintf(line, n, "no GPU is known here, or visible");
}

/* True if some figures are older than a period: a daemon without clients measures when asked. */
static bool is_outdated(const json_t *status)
{
        const json_t *gpu;
        size_t i;

        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                if (figure_number(gpu, "measured_s_ago") > 1.5)
                        return true;
        return false;
}

void gpu_tell(const struct launch *l)
{
        const char *visible = launch_value(l, "CUDA_VISIBLE_DEVICES");
        const struct timespec nap = {.tv_nsec = NAP_NS};
        json_t *status = NULL;
        struct daemon d;
        char line[1024];

        if (find_daemon(l, &d) != CLI_OK)
                return;
        for (unsigned n = 0; n < LOOKS && (!status || is_outdated(status)); n++) {
                if (status)
                        (void)nanosleep(&nap, NULL);
                json_decref(status);
                if (ask(l, &d, json_pack("{s:s}", "order", "status"), &status) != CLI_OK)
                        return;
        }
        gpu_line(status, visible ? visible : getenv("CUDA_VISIBLE_DEVICES"), line, sizeof(line));
        json_decref(status);
        (void)fprintf(stderr, "sublet: %s\n", line);
}
