/* command_bench.c: sublet bench. Owns its options, the choice of the card and the files it writes.
 * Must never use a GPU that somebody else uses: the figures would be wrong, and the others would
 * suffer.
 */
#include "lab/bench/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/common/cli.h"
#include "lab/demo/demo.h"
#include "lab/pairs/bench_pairs.h"
#include "client/common/part_paths.h"

/* How much host memory the run uses: of what the daemon may promise, and of free memory. */
#define PROMISED_PERCENT     90
#define PINNED_PERCENT       75
#define DURATION_S           15
#define DURATION_SIMULATED_S 3

struct request {
        const char *mixes, *json, *plot, *python;
        char *quanta; /* cut into setting.quanta */
        enum { PROGRAM_DRIVER, PROGRAM_TORCH } program;
        bool list;
        struct bench_setting setting;
        struct launch launch; /* the variables of --sim */
};

void bench_explain(FILE *out)
{
        (void)fputs(
                "\nsublet bench pairs measures how fast pairs of programs run beside each other; "
                "sublet\nbench pairs --help has its options.\n",
                out);
}

/* ---- options ---- */

static int set_quanta(const struct option_row *row, void *request, const char *text)
{
        struct request *q = request;
        char *rest, *quantum;
        uint64_t ns;

        free(q->quanta);
        q->setting.n_quanta = 0;
        rest = q->quanta = strdup(text);
        while (rest && (quantum = strsep(&rest, ","))) {
                if (q->setting.n_quanta == BENCH_QUANTA_MAX ||
                    (strcmp(quantum, "auto") != 0 &&
                     (units_parse_duration(quantum, &ns) < 0 || ns == 0)))
                        return cli_fail(CLI_USAGE,
                                        "--quanta takes up to %d of auto and durations such as 2s, "
                                        "not '%s'",
                                        BENCH_QUANTA_MAX, quantum);
                q->setting.quanta[q->setting.n_quanta++] = quantum;
        }
        return CLI_OK;
}

static const char *const programs[] = {
        [PROGRAM_DRIVER] = "driver", [PROGRAM_TORCH] = "torch", NULL};

static int set_capacity(const struct option_row *row, void *field, const char *value)
{
        uint64_t *bytes = field;

        return units_parse_size(value, bytes) < 0 || *bytes < 16 * MIB ? -EINVAL : 0;
}

#define AT(field) offsetof(struct request, field)

const struct option_row bench_options[] = {
        {"mix", "NAME,...", "what to run (small_50,small_90,big_50,big_90); --list names all",
         options_set_text, AT(mixes)},
        {"jobs", "N", "how many programs together (2)", options_set_count, AT(setting.jobs),
         .parameter = BENCH_COPIES_MAX},
        {"quanta", "TIME,...", "lengths of turns to try (auto,2s)", set_quanta, 0, "auto,2s"},
        {"duration", "TIME", "how long one program takes alone (15s; simulated 3s)",
         options_set_seconds, AT(setting.duration), .form = "a time such as 15s"},
        {"repeat", "N", "measure N times, and show medians (1)", options_set_count,
         AT(setting.repeat), .parameter = BENCH_REPEATS_MAX},
        {"seed", "N", "seed of the data and the pauses (1)", options_set_number, AT(setting.seed),
         .form = "a number"},
        {"program", "driver|torch", "a program of the driver API, or PyTorch (driver)",
         options_set_word, AT(program), .form = "driver or torch", .words = programs},
        {"python", "FILE", "the Python that has PyTorch (python3)", options_set_text, AT(python)},
        {"capacity", "SIZE", "use SIZE of the card (all, or what host memory allows)", set_capacity,
         AT(setting.capacity), .form = "a size such as 40GiB"},
        {"json", "FILE", "write all figures to FILE", options_set_text, AT(json)},
        {"plot", "FILE", "draw the figures into FILE, as SVG", options_set_text, AT(plot)},
        {"list", NULL, "list what --mix takes", options_set_true, AT(list)},
        {"sim", "memory=1GiB,bus=12GB/s", "use the simulated driver instead of a GPU",
         launch_set_sim, AT(launch), .optional = true},
        {0},
};

static void print_list(void)
{
        for (size_t i = 0; i < bench_mixes_count; i++)
                (void)printf("%-12s %s\n", bench_mixes[i].name, bench_mixes[i].help);
        (void)printf("\nThe beginning of a name chooses several: big, grow.\n");
}

/* ---- the card ---- */

static void read_driver_version(struct bench_setting *s, const struct driver_report *report)
{
        _cleanup_fclose_ FILE *file = fopen("/sys/module/nvidia/version", "re");
        char text[24] = "unknown";

        if (s->simulated)
                (void)snprintf(text, sizeof(text), "simulated");
        else if (file)
                (void)fscanf(file, "%23s", text);
        (void)snprintf(s->driver, sizeof(s->driver), "%.23s, CUDA %d.%d", text,
                       report->version / 1000, report->version % 1000 / 10);
}

static void read_machine(struct bench_setting *s)
{
        struct utsname name;

        (void)uname(&name);
        (void)snprintf(s->machine, sizeof(s->machine), "%ld processors, %.32s, Linux %.32s",
                       sysconf(_SC_NPROCESSORS_ONLN), name.machine, name.release);
        (void)units_format_utc(time(NULL), s->time);
}

static int choose_card(struct request *q, struct bench_stage *stage)
{
        struct bench_setting *s = &q->setting;
        struct driver_report report;
        const struct driver_gpu *gpu = &report.gpus[0];
        char folder[PATH_MAX] = "";
        int r = CLI_OK;

        if (q->launch.simulated && q->program == PROGRAM_TORCH)
                return cli_fail(CLI_USAGE,
                                "PyTorch does not run on the simulated driver: leave out "
                                "--program or --sim");
        if (q->launch.simulated)
                r = lab_card_simulate(&q->launch, "bench", stage->session, folder);
        if (r == CLI_OK)
                r = lab_card_ask(q->launch.simulated ? folder : NULL, &report);
        if (r != CLI_OK)
                return r;
        stage->simulated = s->simulated = q->launch.simulated;
        s->torch = q->program == PROGRAM_TORCH;
        s->card_bytes = gpu->total_bytes;
        (void)snprintf(s->card, sizeof(s->card), "%s", gpu->name);
        read_driver_version(s, &report);
        return CLI_OK;
}

static int choose_capacity(struct bench_setting *s, const struct bench_mix *const *mixes, size_t n)
{
        struct host_memory host;
        struct bench_room room;

        if (host_memory_read(&host) < 0)
                return cli_fail(CLI_FAILED,
                                "/proc/meminfo does not say how much host memory there is");
        s->host_bytes = host.total_bytes;
        room = (struct bench_room){.card_bytes = s->card_bytes,
                                   .promised_bytes =
                                           host_memory_budget(&host, 0) / 100 * PROMISED_PERCENT,
                                   .pinned_bytes = host.available_bytes / 100 * PINNED_PERCENT};
        if (!s->capacity)
                s->capacity = bench_capacity(mixes, n, s->jobs, &room);
        else if (s->capacity > s->card_bytes)
                return cli_fail(CLI_USAGE, "--capacity is more than the card has");
        return CLI_OK;
}

static bool has_server(const struct bench_mix *const *mixes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                for (unsigned k = 0; k < BENCH_ROLES; k++)
                        if (mixes[i]->roles[k].server)
                                return true;
        return false;
}

/* Asks the interpreter which releases it has. The answer is part of the result. */
static int ask_python(struct request *q, struct bench_stage *stage,
                      const struct bench_mix *const *mixes, size_t n)
{
        char path[PATH_MAX], command[2 * PATH_MAX];
        FILE *answer;

        if (q->program != PROGRAM_TORCH)
                return CLI_OK;
        if (parts_find(PART_BENCH_TORCH, path) < 0)
                return cli_fail(CLI_FAILED, "the program to measure is missing: no %s", path);
        (void)snprintf(command, sizeof(command), "exec '%s' '%s' about", q->python, path);
        answer = popen(command, "re");
        if (!answer || !fgets(q->setting.decoder, sizeof(q->setting.decoder), answer))
                q->setting.decoder[0] = 0;
        if (!answer || pclose(answer) != 0)
                return cli_fail(CLI_FAILED,
                                "%s cannot import torch; --python names the one that can",
                                q->python);
        q->setting.decoder[strcspn(q->setting.decoder, "\n")] = 0;
        if (!q->setting.decoder[0] && has_server(mixes, n))
                return cli_fail(CLI_FAILED,
                                "%s cannot import transformers, which first_token needs; --python "
                                "names the one that can",
                                q->python);
        stage->python = q->python;
        return CLI_OK;
}

/* ---- the files ---- */

static int write_file(const char *path, const struct bench_setting *setting,
                      const struct bench_row *rows, size_t n, bool json)
{
        FILE *file = path ? fopen(path, "we") : NULL;
        json_t *all;
        int r = 0;

        if (!path)
                return CLI_OK;
        if (!file)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", path);
        if (json) {
                all = bench_json(setting, rows, n);
                r = all ? json_dumpf(all, file, JSON_INDENT(1)) : -1;
                (void)fputc('\n', file);
                json_decref(all);
        } else {
                bench_print_plot(file, setting, rows, n);
        }
        if (ferror(file))
                r = -1;
        if (fclose(file) != 0 || r != 0)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", path);
        return CLI_OK;
}

static int conclude(const struct bench_row *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (rows[i].state == BENCH_FAILED ||
                    (rows[i].state == BENCH_MEASURED && rows[i].verdict == BENCH_DIFFERENT))
                        return cli_fail(CLI_FAILED,
                                        "a run failed, or results differ: the table says which");
        return CLI_OK;
}

static int prepare(struct request *q, struct bench_stage *stage,
                   const struct bench_mix *const *mixes, size_t n)
{
        struct bench_setting *s = &q->setting;
        int r = choose_card(q, stage);

        if (r == CLI_OK)
                r = choose_capacity(s, mixes, n);
        if (r == CLI_OK)
                r = ask_python(q, stage, mixes, n);
        if (r != CLI_OK)
                return r;
        if (!s->duration)
                s->duration = s->simulated ? DURATION_SIMULATED_S : DURATION_S;
        stage->capacity = s->capacity;
        read_machine(s);
        if (!mkdtemp(stage->folder))
                return cli_fail(CLI_FAILED, "cannot make %s: %m", stage->folder);
        return CLI_OK;
}

static int run(struct request *q, const struct bench_mix *const *mixes, size_t n_mixes)
{
        struct bench_stage stage = {.folder = "/tmp/sublet-bench-XXXXXX"};
        struct bench_setting *s = &q->setting;
        _cleanup_free_ struct bench_row *rows = NULL;
        size_t n = 0;
        int r = prepare(q, &stage, mixes, n_mixes);

        lab_catch_interrupt();
        if (r == CLI_OK)
                r = bench_measure(&stage, s, mixes, n_mixes, &rows, &n);
        lab_card_leave(s->simulated && !launch_value(&q->launch, "SIMCUDA_SESSION") ? stage.session
                                                                                    : NULL,
                       stage.folder);
        if (lab_interrupted())
                return cli_fail(128 + lab_interrupted(), "interrupted; nothing is left behind");
        if (r != CLI_OK)
                return r;
        bench_print_table(stdout, s, rows, n);
        r = write_file(q->json, s, rows, n, true);
        if (r == CLI_OK)
                r = write_file(q->plot, s, rows, n, false);
        return r == CLI_OK ? conclude(rows, n) : r;
}

int bench_main(const struct cli_command *self, int argc, char **argv)
{
        struct request q = {.mixes = "small,big",
                            .python = "python3",
                            .setting = {.jobs = 2, .repeat = 1, .seed = 1}};
        const struct bench_mix *mixes[BENCH_MIXES_MAX];
        char wrong[BENCH_TEXT_MAX];
        int n, r;

        if (argc > 1 && strcmp(argv[1], "pairs") == 0)
                return pairs_main(argc - 1, argv + 1);
        r = cli_parse(self, argc, argv, OPTIONS_NO_WORDS, &q, NULL);
        if (r != CLI_OK) {
                r = cli_parsed(r);
        } else if (q.list) {
                print_list();
        } else {
                n = bench_choose_mixes(q.mixes, mixes, wrong);
                r = n > 0 ? run(&q, mixes, (size_t)n)
                          : cli_fail(CLI_USAGE,
                                     "--mix does not know '%s'; sublet bench --list names all",
                                     wrong);
        }
        launch_clear(&q.launch);
        free(q.quanta);
        return r;
}
