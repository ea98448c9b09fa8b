/* demo.c: sublet demo. Owns the choice of the card, of the sizes and of the rows of its table. Must
 * never touch a GPU that somebody else uses, unless the user asks for that (--gpu). */
#include "cli/demo/demo.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/doctor/doctor_driver.h"
#include "cli/parts.h"

enum { OPTION_GPU, OPTION_FAST };

const struct cli_option demo_options[] = {
        [OPTION_GPU] = {"gpu", CLI_NONE, NULL, "on the GPU, even if somebody else uses it"},
        [OPTION_FAST] = {"fast", CLI_NONE, NULL, "shorter, on a smaller simulated card"},
        {0},
};

/* The driver and a desktop use up to this much of a card. A card with more in use counts as used by
 * somebody. */
#define UNUSED_BYTES (1 * GIB)

struct choice {
        int gpu, fast;
};

static int take(int option, const char *argument, void *choice)
{
        struct choice *c = choice;

        if (option == OPTION_GPU)
                c->gpu = 1;
        else
                c->fast = 1;
        return CLI_OK;
}

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

/* Returns the size of each of two programs that together need more than the card and leave host
 * memory to spare; 0 if the host has too little memory. */
static uint64_t size_jobs(uint64_t card_bytes, uint64_t host_bytes)
{
        uint64_t wanted = card_bytes / 100 * 64, both = card_bytes / 100 * 90 + host_bytes / 2;
        uint64_t bytes = MIN(wanted, both / 2);

        return bytes >= card_bytes / 100 * 52 ? bytes & ~(GIB / 4 - 1) : 0;
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
        if (!c->gpu && gpu->used_bytes > UNUSED_BYTES) /* also true for DRIVER_UNKNOWN */
                return;
        *ret_why = "host memory is too small to hold what does not fit the GPU";
        stage->card_bytes = gpu->total_bytes;
        stage->job_bytes = size_jobs(
                sub_sat(gpu->total_bytes, gpu->used_bytes == DRIVER_UNKNOWN ? 0 : gpu->used_bytes),
                available_host_bytes());
        if (!stage->job_bytes)
                return;
        stage->small_bytes = gpu->total_bytes / 100 * 40 & ~(GIB / 4 - 1);
        stage->seconds = c->fast ? 3 : 6;
        stage->quantum = c->fast ? "1s" : "2s";
        (void)snprintf(stage->card, sizeof(stage->card), "%s", gpu->name);
        (void)demo_nvml_open(NULL, gpu->pci_bus_id, &stage->nvml);
        *ret_why = NULL;
}

static int choose_simulator(const struct choice *c, struct demo_stage *stage)
{
        struct driver_report report;

        if (parts_find(PART_SIMULATOR, stage->sim_folder) < 0)
                return cli_fail(CLI_FAILED, "the simulated driver is missing: no %s",
                                stage->sim_folder);
        stage->simulated = 1;
        stage->card_bytes = c->fast ? 256 * MIB : 1 * GIB;
        stage->job_bytes = stage->card_bytes / 100 * 68 & ~(8 * MIB - 1);
        stage->small_bytes = stage->card_bytes / 100 * 40 & ~(8 * MIB - 1);
        stage->seconds = c->fast ? 1.5 : 4;
        stage->quantum = c->fast ? "200ms" : "500ms";
        (void)snprintf(stage->session, sizeof(stage->session), "demo-%d", (int)getpid());
        /* These variables are for every process of the demo; the first driver call makes the
         * simulated card. */
        (void)setenv("SIMCUDA_SESSION", stage->session, 1);
        (void)setenv("SIMCUDA_MEMORY", c->fast ? "256MiB" : "1GiB", 1);
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
        (void)printf("Two programs that need %s each, on one card of %s (%s).\n", job, card,
                     stage->card);
        if (stage->simulated)
                (void)printf(
                        "Simulated: %s.\n"
                        "Real: the processes, the allocations, the bytes moved, the results.\n"
                        "A model: the times (kernels run on the CPU, the bus is taken to carry "
                        "12 GB/s,\na group of page faults to cost 80 us).\n",
                        why);
        (void)printf(
                "Each program fills all of its memory, then in every round checks every byte\n"
                "and writes it anew. Turns are kept to %s, so that much is moved; unless told\n"
                "otherwise sublet makes them so long that moving takes a small part of them.\n",
                stage->quantum);
}

static const char *own_name(char path[static PATH_MAX])
{
        _cleanup_free_ char *here = get_current_dir_name();
        ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
        size_t length = here ? strlen(here) : 0;

        if (n < 0)
                return "sublet";
        path[n] = 0;
        if (length > 1 && strncmp(path, here, length) == 0 && path[length] == '/') {
                char *below = path + length + 1;

                if (strchr(below, '/'))
                        return below;
                memmove(path + 2, below, strlen(below) + 1);
                return memcpy(path, "./", 2);
        }
        return path;
}

static void print_next(const struct demo_stage *stage)
{
        char path[PATH_MAX];
        const char *name = own_name(path);

        (void)printf("\nNext:\n"
                     "  %s doctor\n"
                     "      what this machine has and lacks\n"
                     "  %s run -- python3 your-program.py\n"
                     "      %sin two terminals at once\n",
                     name, name, stage->simulated ? "on a machine with a GPU, " : "");
}

/* Deletes the folder. The daemons' directories in it contain only sockets, a lock and a log, no
 * folders. */
static void remove_folder(const char *folder)
{
        DIR *outer = opendir(folder), *inner;
        const struct dirent *e, *f;
        char path[PATH_MAX], deeper[PATH_MAX * 2];

        while (outer && (e = readdir(outer))) {
                (void)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
                inner = e->d_name[0] == '.' ? NULL : opendir(path);
                while (inner && (f = readdir(inner))) {
                        (void)snprintf(deeper, sizeof(deeper), "%s/%s", path, f->d_name);
                        if (f->d_type != DT_DIR)
                                (void)unlink(deeper);
                }
                if (inner) {
                        (void)closedir(inner);
                        (void)rmdir(path);
                }
        }
        if (outer)
                (void)closedir(outer);
        (void)rmdir(folder);
}

static void leave(struct demo_stage *stage)
{
        char path[PATH_MAX], command[PATH_MAX + 64];

        demo_nvml_close(stage->nvml);
        if (stage->simulated && parts_find(PART_SIMULATOR_STAT, path) == 0) {
                (void)snprintf(command, sizeof(command), "'%s' --remove --force --session %s", path,
                               stage->session);
                if (system(command) != 0)
                        (void)cli_fail(0, "the simulated card %s was not removed", stage->session);
        }
        remove_folder(stage->folder);
}

/* ---- the rows ---- */

enum { REFERENCE, PLAIN, MANAGED, SHARED, KILLED, SMALL_REFERENCE, SMALL, ROWS };

static const int references[ROWS] = {
        [REFERENCE] = -1,          [PLAIN] = REFERENCE,  [MANAGED] = REFERENCE,
        [SHARED] = REFERENCE,      [KILLED] = REFERENCE, [SMALL_REFERENCE] = -1,
        [SMALL] = SMALL_REFERENCE,
};

static int run_rows(const struct demo_stage *stage)
{
        struct demo_row rows[ROWS] = {
                [REFERENCE] = {.title = "one after the other", .one_after_the_other = 1},
                [PLAIN] = {.title = "together, plain driver", .meet = 1},
                /* Left out on a GPU: oversubscribed managed memory can hang it, also for other
                 * users. */
                [MANAGED] = {.title = "Unified Memory, unscheduled",
                             .managed = 1,
                             .meet = 1,
                             .left_out = !stage->simulated},
                [SHARED] = {.title = "together, sublet", .shared = 1, .meet = 1},
                [KILLED] = {.title = "the same, daemon killed midway",
                            .shared = 1,
                            .meet = 1,
                            .kill_daemon = 1},
                [SMALL_REFERENCE] = {.title = "that fit, one after the other",
                                     .one_after_the_other = 1},
                [SMALL] = {.title = "that fit, together, sublet", .shared = 1},
        };
        struct demo_result results[ROWS];

        for (int i = 0; i < ROWS; i++) {
                int r;

                if (rows[i].left_out)
                        continue;
                rows[i].bytes = i < SMALL_REFERENCE ? stage->job_bytes : stage->small_bytes;
                if (i != REFERENCE)
                        rows[i].rounds = results[REFERENCE].jobs[0].rounds;
                r = demo_run(stage, &rows[i], &results[i]);
                if (r != CLI_OK)
                        return r;
                if (i == REFERENCE && results[i].jobs[0].outcome != DEMO_COMPLETED)
                        return cli_fail(CLI_FAILED, "a program alone does not run here: %s",
                                        results[i].jobs[0].trouble);
        }
        demo_print_table(stage, rows, results, references, ROWS);
        for (int i = 0; i < ROWS; i++) {
                if ((rows[i].shared || rows[i].managed) && !rows[i].left_out &&
                    (results[i].jobs[0].outcome != DEMO_COMPLETED ||
                     results[i].jobs[1].outcome != DEMO_COMPLETED ||
                     !demo_same_results(&results[i], &results[references[i]])))
                        return cli_fail(CLI_FAILED, "'%s' did not go as it must", rows[i].title);
                if (rows[i].kill_daemon && !results[i].daemon_killed)
                        return cli_fail(CLI_FAILED, "the daemon that was killed was not replaced");
        }
        return CLI_OK;
}

int demo_main(const struct cli_command *self, int argc, char **argv)
{
        struct demo_stage stage = {.folder = "/tmp/sublet-demo-XXXXXX"};
        struct choice choice = {0};
        const char *why;
        int words, r;

        r = cli_parse(self, argc, argv, 0, take, &choice, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words > 0)
                return cli_fail(CLI_USAGE, "demo takes no argument, not '%s'", argv[0]);
        choose_gpu(&choice, &stage, &why);
        if (why && choice.gpu)
                return cli_fail(CLI_FAILED, "not on the GPU: %s", why);
        if (why) {
                r = choose_simulator(&choice, &stage);
                if (r != CLI_OK)
                        return r;
        }
        if (!mkdtemp(stage.folder))
                return cli_fail(CLI_FAILED, "cannot make %s: %m", stage.folder);
        demo_catch_interrupt();
        print_headline(&stage, why);
        r = run_rows(&stage);
        leave(&stage);
        if (demo_interrupted())
                return cli_fail(128 + demo_interrupted(), "interrupted; nothing is left behind");
        if (r == CLI_OK)
                print_next(&stage);
        return r;
}
