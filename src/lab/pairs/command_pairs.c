/* command_pairs.c: sublet bench pairs. Owns its options and the choice of jobs. Must never use a
 * GPU that somebody else uses: the figures would be wrong, and the others would suffer. */
#include "lab/pairs/bench_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/common/cli.h"
#include "lab/common/lab.h"
#include "lab/common/lab_card.h"
#include "lab/pairs/kernels.h"
#include "client/common/part_paths.h"

#define KERNELS_MAX 900 /* leaves room for the models */

struct request {
        struct pairs_setting setting;
        bool list;
        struct launch launch; /* the variables of --sim */
        char session[LAB_SESSION_MAX], simulator[PATH_MAX];
};

/* ---- options ---- */

static int set_pair_seconds(const struct option_row *row, void *field, const char *value)
{
        char *end;
        const double s = strtod(value, &end);

        if (*end || end == value || !(s >= 0.01 && s <= 3600))
                return -EINVAL;
        *(double *)field = s;
        return 0;
}

#define AT(field) offsetof(struct request, field)

static const struct option_row pairs_options[] = {
        {"output", "DATA",
         "the file of the figures; pairs that it has are not measured again (pairs.jsonl)",
         options_set_text, AT(setting.output), .letter = 'o'},
        {"ways", "WAY,...", "how two programs share (shared,sliced,turns)", ways_set,
         AT(setting.choice.ways), "auto", WAYS_FORM},
        {"torch", NULL, "models of PyTorch, too", options_set_true, AT(setting.torch)},
        {"python", "FILE", "the Python that has PyTorch (python3)", options_set_text,
         AT(setting.python)},
        {"seconds", "S", "how long a pair of kernels runs; models run 4 times as long (0.25)",
         set_pair_seconds, AT(setting.seconds), .form = "a number such as 0.25"},
        {"limit", "TIME", "end after this time, with a part of the pairs (none)",
         options_set_seconds, AT(setting.limit), .form = "a time such as 10min"},
        {"jobs", "NAME,...",
         "which jobs (all): names or their beginnings, families, kernels, models", options_set_text,
         AT(setting.jobs)},
        {"kernels", "N", "N other kernels, spread over all parameters, instead of the usual 48",
         options_set_count, AT(setting.kernels), .parameter = KERNELS_MAX},
        {"partners", "K", "each job has K partners of its kind (all)", options_set_count,
         AT(setting.choice.partners), .parameter = PAIRS_JOBS_MAX},
        {"within", "N|FILE",
         "only all pairs among N of the jobs, or those that FILE names, in each way",
         options_set_text, AT(setting.within)},
        {"seed", "N", "seed of the order of the pairs, and of --kernels (1)", options_set_number,
         AT(setting.choice.seed), .form = "a number"},
        {"list", NULL, "list the jobs", options_set_true, AT(list)},
        {"sim", "memory=1GiB,bus=12GB/s", "use the simulated driver instead of a GPU",
         launch_set_sim, AT(launch), .optional = true},
        {0},
};

static const struct cli_command pairs_command = {
        .name = "bench pairs",
        .arguments = "[options]",
        .help = "measure how fast pairs of programs run beside each other, in each way to share",
        .options = pairs_options,
};

/* ---- the jobs ---- */

/* Adds the models that pairs_torch.py has. It lists them without PyTorch. */
static int add_models(const struct pairs_setting *s, struct pairs_job *jobs, size_t *n)
{
        char path[PATH_MAX], command[2 * PATH_MAX], line[128];
        FILE *answer;

        if (parts_find(PART_PAIRS_TORCH, path) < 0)
                return cli_fail(CLI_FAILED, "the program to measure is missing: no %s", path);
        (void)snprintf(command, sizeof(command), "exec '%s' '%s' list", s->python, path);
        answer = popen(command, "re");
        while (answer && *n < PAIRS_JOBS_MAX && fgets(line, sizeof(line), answer)) {
                struct pairs_job *job = &jobs[*n];

                *job = (struct pairs_job){.torch = true};
                if (sscanf(line, "%63s %23s", job->name, job->family) == 2)
                        (*n)++;
        }
        if (!answer || pclose(answer) != 0)
                return cli_fail(CLI_FAILED, "cannot run %s; --python names another Python",
                                s->python);
        return CLI_OK;
}

/* Two places of the sequence may, rarely, have the same name. */
static size_t draw_kernels(const struct pairs_setting *s, struct pairs_job *jobs)
{
        size_t n = 0;

        for (unsigned i = 0; n < s->kernels && i < 2 * KERNELS_MAX; i++) {
                struct pairs_job *job = &jobs[n];
                const char *family;

                *job = (struct pairs_job){0};
                kernel_draw_name(s->choice.seed, i, job->name, &family);
                (void)snprintf(job->family, sizeof(job->family), "%s", family);
                n += pairs_find_job(jobs, n, job->name) < 0;
        }
        return n;
}

static int list_jobs(const struct pairs_setting *s, struct pairs_job *jobs, size_t *ret_n)
{
        size_t n = s->kernels ? draw_kernels(s, jobs) : 0;

        for (size_t i = 0; !s->kernels && i < kernel_jobs_count && n < PAIRS_JOBS_MAX; i++) {
                struct pairs_job *job = &jobs[n++];

                *job = (struct pairs_job){0};
                kernel_name(&kernel_jobs[i], job->name);
                (void)snprintf(job->family, sizeof(job->family), "%s",
                               kernel_family_name(kernel_jobs[i].family));
        }
        *ret_n = n;
        return s->torch ? add_models(s, jobs, ret_n) : CLI_OK;
}

/* A word is the beginning of a name, a family, or one of the two kinds. */
static bool fits(const struct pairs_job *job, const char *word, size_t length)
{
        const char *kind = job->torch ? "models" : "kernels";

        return length > 0 &&
               (strncmp(job->name, word, length) == 0 ||
                (strlen(job->family) == length && strncmp(job->family, word, length) == 0) ||
                (strlen(kind) == length && strncmp(kind, word, length) == 0));
}

/* Keeps only the jobs that a word of --jobs chooses. */
static int choose_jobs(const struct pairs_setting *s, struct pairs_job *jobs, size_t *n)
{
        bool chosen[PAIRS_JOBS_MAX] = {false};
        const char *word = s->jobs;
        size_t kept = 0;

        if (!word)
                return CLI_OK;
        while (*word) {
                const size_t length = strcspn(word, ",");
                bool any = false;

                for (size_t i = 0; i < *n; i++)
                        if (fits(&jobs[i], word, length))
                                any = chosen[i] = true;
                if (!any)
                        return cli_fail(CLI_USAGE,
                                        "--jobs does not know '%.*s'; sublet bench pairs --list "
                                        "names all",
                                        (int)length, word);
                word += length + (word[length] == ',');
        }
        for (size_t i = 0; i < *n; i++)
                if (chosen[i])
                        jobs[kept++] = jobs[i];
        *n = kept;
        return CLI_OK;
}

/* Keeps only the jobs that the file names, one in a line. The file may also name kernels that are
 * not in the list. */
static int choose_named(const char *path, struct pairs_job *jobs, size_t *n)
{
        static struct pairs_job chosen[PAIRS_JOBS_MAX];
        _cleanup_fclose_ FILE *file = fopen(path, "re");
        char line[256];
        size_t kept = 0;

        if (!file)
                return cli_fail(CLI_USAGE,
                                "--within is a number of jobs, or a file of their names; '%s': %m",
                                path);
        while (fgets(line, sizeof(line), file)) {
                struct kernel_step step;
                int at;

                line[strcspn(line, " \t\r\n")] = 0;
                if (!line[0] || pairs_find_job(chosen, kept, line) >= 0)
                        continue;
                at = pairs_find_job(jobs, *n, line);
                if ((at < 0 && kernel_find(line, &step) < 0) || kept == PAIRS_JOBS_MAX)
                        return cli_fail(CLI_USAGE,
                                        "%s: there is no job '%.100s'; sublet bench pairs --list "
                                        "names all",
                                        path, line);
                if (at >= 0) {
                        chosen[kept++] = jobs[at];
                        continue;
                }
                chosen[kept] = (struct pairs_job){0};
                (void)snprintf(chosen[kept].name, sizeof(chosen->name), "%.63s", line);
                (void)snprintf(chosen[kept].family, sizeof(chosen->family), "%s",
                               kernel_step_family(&step));
                kept++;
        }
        memcpy(jobs, chosen, kept * sizeof(*jobs));
        *n = kept;
        return CLI_OK;
}

static int choose_within(const struct pairs_setting *s, struct pairs_job *jobs, size_t *n)
{
        uint64_t number;

        if (!s->within)
                return CLI_OK;
        if (units_parse_count(s->within, &number) < 0)
                return choose_named(s->within, jobs, n);
        if (number < 2 || number > *n)
                return cli_fail(CLI_USAGE, "--within %s: there are %zu jobs to choose from",
                                s->within, *n);
        pairs_choose(jobs, *n, (size_t)number, s->choice.seed);
        *n = (size_t)number;
        return CLI_OK;
}

static void print_list(const struct pairs_job *jobs, size_t n)
{
        for (size_t i = 0; i < n; i++)
                (void)printf("%-42s %s\n", jobs[i].name, jobs[i].family);
}

/* ---- the card ---- */

/* Makes a simulated card for the processes of this run. Its folder has a small MPS, too. */
static int make_card(struct request *q)
{
        const char *path = getenv("PATH");
        char list[2 * PATH_MAX];
        int r;

        if (q->setting.torch)
                return cli_fail(CLI_USAGE,
                                "PyTorch does not run on the simulated driver: leave out --torch "
                                "or --sim");
        r = lab_card_simulate(&q->launch, "pairs", q->session, q->simulator);
        if (r != CLI_OK)
                return r;
        (void)snprintf(list, sizeof(list), "%s/mps:%s", q->simulator,
                       path ? path : "/usr/bin:/bin");
        (void)setenv("PATH", list, 1);
        q->setting.simulator = q->simulator;
        return CLI_OK;
}

static int choose_card(struct request *q)
{
        struct driver_report report;
        const int r = q->launch.simulated ? make_card(q) : CLI_OK;

        return r == CLI_OK ? lab_card_ask(q->setting.simulator, &report) : r;
}

static int measure(struct request *q, struct pairs_job *jobs, size_t n)
{
        struct pairs_results results = {0};
        int r = choose_card(q);

        if (r != CLI_OK)
                return r;
        (void)snprintf(q->setting.folder, sizeof(q->setting.folder), "/tmp/sublet-pairs-XXXXXX");
        if (!mkdtemp(q->setting.folder))
                return cli_fail(CLI_FAILED, "cannot make %s: %m", q->setting.folder);
        lab_catch_interrupt();
        r = pairs_run(&q->setting, jobs, n, &results);
        lab_card_leave(q->launch.simulated && !launch_value(&q->launch, "SIMCUDA_SESSION")
                               ? q->session
                               : NULL,
                       q->setting.folder);
        if (r == CLI_OK)
                pairs_print_table(stdout, jobs, &results);
        if (r == CLI_OK)
                pairs_print_steadiness(stdout, jobs, n);
        free(results.items);
        if (lab_interrupted())
                return cli_fail(128 + lab_interrupted(),
                                "interrupted; what was measured is in %s, and the same command "
                                "goes on",
                                q->setting.output);
        return r;
}

int pairs_main(int argc, char **argv)
{
        static struct pairs_job jobs[PAIRS_JOBS_MAX];
        struct request q = {.setting = {.output = "pairs.jsonl",
                                        .python = "python3",
                                        .seconds = 0.25,
                                        .choice = {.seed = 1}}};
        size_t n = 0;
        int r;

        r = cli_parse(&pairs_command, argc, argv, OPTIONS_NO_WORDS, &q, NULL);
        if (r != CLI_OK) {
                r = cli_parsed(r);
        } else {
                q.setting.choice.within = q.setting.within != NULL;
                r = list_jobs(&q.setting, jobs, &n);
                if (r == CLI_OK)
                        r = choose_jobs(&q.setting, jobs, &n);
                if (r == CLI_OK)
                        r = choose_within(&q.setting, jobs, &n);
                if (r == CLI_OK && q.list)
                        print_list(jobs, n);
                else if (r == CLI_OK)
                        r = measure(&q, jobs, n);
        }
        launch_clear(&q.launch);
        return r;
}
