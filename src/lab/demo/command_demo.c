/* command_demo.c: sublet demo. Owns the choice of the card, of the sizes and of the rows of its
 * table. Must never touch a GPU that somebody else uses, unless the user asks for that (--gpu). */
#include "lab/demo/demo.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/common/cli.h"
#include "client/common/part_paths.h"

/* Each program's part of the free card: two do not fit, and a hand-off stays short. */
#define JOB_PERCENT 53

struct choice {
        bool gpu, fast;
};

const struct option_row demo_options[] = {
        {"gpu", NULL, "use the GPU, even if somebody else uses it", options_set_true,
         offsetof(struct choice, gpu)},
        {"fast", NULL, "run for a shorter time, on a smaller simulated card", options_set_true,
         offsetof(struct choice, fast)},
        {0},
};

/* ---- the card ---- */

static uint64_t available_host_bytes(void)
{
        _cleanup_fclose_ FILE *file = fopen("/proc/meminfo", "re");
        char line[256];
        unsigned long long kib;

        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
                        return kib * KIB;
        return 0;
}

/* Returns the size of each of two programs that together need more than the card; 0 if host memory
 * is too small to hold the rest and leave as much again. */
static uint64_t size_jobs(uint64_t free_bytes, uint64_t host_bytes)
{
        uint64_t rest = free_bytes / 100 * (2 * JOB_PERCENT - 90);

        return host_bytes / 2 >= rest ? free_bytes / 100 * JOB_PERCENT & ~(MIB - 1) : 0;
}

/* Sets *ret_why to NULL if the demo can use this GPU; otherwise to the reason why not. */
static void choose_gpu(const struct choice *c, struct demo_stage *stage, const char **ret_why)
{
        struct driver_report report;
        const struct driver_gpu *gpu = &report.gpus[0];

        *ret_why = "there is no GPU here that the driver can use";
        if (driver_ask(NULL, &report) < 0 || report.stage != DRIVER_ANSWERED || report.n_gpus == 0)
                return;
        *ret_why = "the GPU has no virtual memory management";
        if (gpu->vmm != 1)
                return;
        *ret_why = "the GPU allows one process at a time or none (compute mode)";
        if (gpu->compute_mode > 0)
                return;
        *ret_why = "somebody uses the GPU; sublet demo --gpu takes it all the same";
        if (!c->gpu && gpu->used_bytes > LAB_UNUSED_BYTES) /* also true for DRIVER_UNKNOWN */
                return;
        *ret_why = "host memory is too small to hold what does not fit the GPU";
        stage->card_bytes = gpu->total_bytes;
        stage->job_bytes = size_jobs(
                sub_sat(gpu->total_bytes, gpu->used_bytes == DRIVER_UNKNOWN ? 0 : gpu->used_bytes),
                available_host_bytes());
        if (!stage->job_bytes)
                return;
        stage->phases = c->fast ? 3 : 4;
        stage->seconds = c->fast ? 1 : 2;
        (void)snprintf(stage->card, sizeof(stage->card), "%s", gpu->name);
        (void)demo_nvml_open(NULL, gpu->pci_bus_id, &stage->nvml);
        *ret_why = NULL;
}

static int choose_simulator(const struct choice *c, struct demo_stage *stage)
{
        struct driver_report report;
        const int r =
                lab_card_simulate(&(struct launch){0}, "demo", stage->session, stage->sim_folder);

        if (r != CLI_OK)
                return r;
        stage->simulated = 1;
        stage->card_bytes = c->fast ? 128 * MIB : 256 * MIB;
        stage->job_bytes = size_jobs(stage->card_bytes, UINT64_MAX);
        stage->phases = c->fast ? 3 : 4;
        stage->seconds = c->fast ? 0.4 : 1;
        /* These variables are for every process of the demo; the first driver call makes the
         * simulated card. */
        (void)setenv("SIMCUDA_MEMORY", c->fast ? "128MiB" : "256MiB", 1);
        (void)setenv("SIMCUDA_BUS", "12GB/s", 1);
        (void)setenv("SIMCUDA_GPUS", "1", 1);
        if (driver_ask(stage->sim_folder, &report) < 0 || report.stage != DRIVER_ANSWERED)
                return cli_fail(CLI_FAILED, "the simulated driver in %s does not work: %s",
                                stage->sim_folder, report.reason);
        (void)snprintf(stage->card, sizeof(stage->card), "%s", report.gpus[0].name);
        (void)demo_nvml_open(stage->sim_folder, report.gpus[0].pci_bus_id, &stage->nvml);
        return CLI_OK;
}

/* ---- before and after ---- */

static void print_headline(const struct demo_stage *stage, const char *why)
{
        char card[UNITS_TEXT_MAX], job[UNITS_TEXT_MAX];

        units_format_size(stage->card_bytes, card);
        units_format_size(stage->job_bytes, job);
        (void)printf(
                "Two programs that need %s each, on one card of %s (%s).\n"
                "Each pauses and computes in turn, as notebooks and training loops do: %u times\n"
                "%.1f s and about %.1f s. It checks all of its memory in each round, and writes\n"
                "it anew. sublet has its default settings.\n",
                job, card, stage->card, stage->phases, stage->seconds, stage->seconds / 2);
        if (stage->simulated)
                (void)printf(
                        "\nThe card is simulated: %s.\n"
                        "Real: processes, allocations, moved bytes, results. A model: the times.\n",
                        why);
}

/* True if a shell finds the program by its name alone. */
static bool is_in_path(const char *program)
{
        _cleanup_free_ char *copy = strdup(getenv("PATH") ? getenv("PATH") : "");
        const char *name = strrchr(program, '/');
        char *rest = copy, *folder, path[PATH_MAX];
        struct stat own, found;

        while (name && rest && (folder = strsep(&rest, ":")))
                if (snprintf(path, sizeof(path), "%s%s", folder, name) < (int)sizeof(path) &&
                    access(path, X_OK) == 0)
                        return stat(program, &own) == 0 && stat(path, &found) == 0 &&
                               own.st_dev == found.st_dev && own.st_ino == found.st_ino;
        return false;
}

/* Returns how a shell in the working directory can call the program; changes path. */
static const char *callable(char path[static PATH_MAX])
{
        _cleanup_free_ char *here = get_current_dir_name();
        size_t length = here ? strlen(here) : 0;
        char *below = path + length + 1;

        if (length <= 1 || strncmp(path, here, length) != 0 || path[length] != '/')
                return path;
        if (strchr(below, '/'))
                return below;
        memmove(path + 2, below, strlen(below) + 1);
        return memcpy(path, "./", 2);
}

/* Suggests commands that work on this machine. */
static void print_next(const struct demo_stage *stage)
{
        char own[PATH_MAX] = "sublet", job[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
        const char *name, *sim = stage->simulated ? " --sim" : "";

        if (n > 0)
                own[n] = 0;
        name = is_in_path(own) ? "sublet" : callable(own);
        (void)printf("\nNext, in two terminals:\n");
        if (stage->simulated && parts_find(PART_DEMO_JOB, job) == 0)
                (void)printf("  %s run --sim -- %s 600MiB\n", name, callable(job));
        else
                (void)printf("  %s run -- python3 your-program.py\n", name);
        (void)printf("in a third:\n"
                     "  %s top%s\n"
                     "and to see what this machine has and lacks:\n"
                     "  %s doctor%s\n",
                     name, sim, name, sim);
}

/* ---- the rows ---- */

enum { REFERENCE, PLAIN, SHARED, KILLED, ROWS };

/* Returns CLI_OK if both programs completed with the results of the reference. */
static int check_row(const struct demo_row *row, const struct demo_result *result,
                     const struct demo_result *reference)
{
        for (unsigned k = 0; k < DEMO_JOBS; k++)
                if (result->jobs[k].outcome != DEMO_COMPLETED)
                        return cli_fail(CLI_FAILED, "'%s': program %c did not complete: %s",
                                        row->title, (int)('A' + k),
                                        result->jobs[k].outcome == DEMO_NO_MEMORY
                                                ? "out of memory"
                                                : result->jobs[k].trouble);
        if (!demo_same_results(result, reference))
                return cli_fail(CLI_FAILED, "'%s': other results than '%s'", row->title,
                                "one after the other");
        if (row->kill_daemon && !result->daemon_killed)
                return cli_fail(CLI_FAILED, "the daemon that was killed was not replaced");
        return CLI_OK;
}

static int run_rows(const struct demo_stage *stage)
{
        struct demo_row rows[ROWS] = {
                [REFERENCE] = {.title = "one after the other", .one_after_the_other = 1},
                [PLAIN] = {.title = "together, plain driver"},
                [SHARED] = {.title = "together, sublet", .shared = 1},
                [KILLED] = {.title = "sublet, daemon killed", .shared = 1, .kill_daemon = 1},
        };
        struct demo_result results[ROWS];
        int r;

        for (int i = 0; i < ROWS; i++) {
                if (i != REFERENCE)
                        rows[i].rounds = results[REFERENCE].jobs[0].rounds / stage->phases;
                r = demo_run(stage, &rows[i], &results[i]);
                if (r == CLI_OK && i == REFERENCE)
                        r = check_row(&rows[i], &results[i], &results[i]);
                if (r != CLI_OK)
                        return r;
        }
        demo_print_table(rows, results, ROWS);
        r = check_row(&rows[SHARED], &results[SHARED], &results[REFERENCE]);
        if (r == CLI_OK)
                r = check_row(&rows[KILLED], &results[KILLED], &results[REFERENCE]);
        if (r == CLI_OK)
                (void)printf(
                        "\nUnder sublet both took %.0f %% of the time that they take one after "
                        "the other.\n",
                        results[SHARED].seconds / results[REFERENCE].seconds * 100);
        return r;
}

int demo_main(const struct cli_command *self, int argc, char **argv)
{
        struct demo_stage stage = {.folder = "/tmp/sublet-demo-XXXXXX"};
        struct choice choice = {0};
        const char *why;
        int r;

        r = cli_parse(self, argc, argv, OPTIONS_NO_WORDS, &choice, NULL);
        if (r != CLI_OK)
                return cli_parsed(r);
        choose_gpu(&choice, &stage, &why);
        if (why && choice.gpu)
                return cli_fail(CLI_FAILED, "not on the GPU: %s (sublet doctor says more)", why);
        if (why) {
                r = choose_simulator(&choice, &stage);
                if (r != CLI_OK)
                        return r;
        }
        if (!mkdtemp(stage.folder))
                return cli_fail(CLI_FAILED, "cannot make %s: %m", stage.folder);
        lab_catch_interrupt();
        print_headline(&stage, why);
        r = run_rows(&stage);
        demo_nvml_close(stage.nvml);
        lab_card_leave(stage.simulated ? stage.session : NULL, stage.folder);
        if (lab_interrupted())
                return cli_fail(128 + lab_interrupted(), "interrupted; nothing is left behind");
        if (r == CLI_OK)
                print_next(&stage);
        return r;
}
