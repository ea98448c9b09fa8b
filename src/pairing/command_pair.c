/* command_pair.c: sublet pair: which jobs share a GPU, which have one alone, which wait. Must never
 * start a job. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"
#include "pairing/commands.h"
#include "pairing/plan.h"

#define OPTIONAL  true
#define REQUIRED  false
#define NONE      false
#define IDLE_W    75 /* assumed if nobody has measured the card's idle power */
#define JOBS_MOST 4096

struct pairing {
        struct command_input in;
        struct plan_options plan;
        bool by_energy;
};

/* Chooses by energy, and takes the card's idle power. Without a value, it is the model's. */
static int set_energy(const struct option_row *row, void *pairing, const char *value)
{
        struct pairing *p = pairing;
        char *end;
        const double watts = value ? strtod(value, &end) : 0;

        p->by_energy = true;
        if (!value)
                return 0;
        if (end == value || *end || !(watts >= 1 && watts <= 10000))
                return -EINVAL;
        p->plan.idle_w = watts;
        return 0;
}

#define AT(field)       offsetof(struct pairing, field)
#define SET_GPUS        options_set_count, AT(plan.gpus), .parameter = UINT16_MAX
#define SET_QOS         options_set_part, AT(plan.bound), .form = "a part from 0.01 to 0.99"
#define SET_WAY         ways_set, AT(in.allowed), "auto", WAYS_FORM
#define SET_FEWEST      options_set_true, AT(plan.fewest)
#define SET_ENERGY      set_energy, .form = "watts from 1 to 10000"
#define SET_HOST_MEMORY command_set_size, AT(plan.host_bytes), .form = COMMAND_SIZE_FORM
#define SET_BUS         command_set_rate, AT(plan.bus_bytes_s), .form = COMMAND_RATE_FORM
#define SET_MODEL       options_set_text, AT(in.model_path)
#define SET_CAPACITY    command_set_size, AT(in.capacity_bytes), .form = COMMAND_SIZE_FORM
#define SET_QUANTUM     options_set_seconds, AT(in.quantum_s), .form = COMMAND_DURATION_FORM
#define SET_JSON        options_set_true, AT(in.json)

static const struct option_row options[] = {
#define PAIR(id, name_, argument_, placeholder, help_, letter_) \
        {name_, placeholder, help_, SET_##id, .letter = letter_, .optional = argument_},
#include "pairing/options.def"
        {0}};

/* ---- output ---- */

static double sum_of(const struct plan_pair *p)
{
        const double *progress = p->pair->ways[p->way].progress;

        return progress[0] + progress[1];
}

static double total_of(const struct plan *plan)
{
        double total = (double)plan->n_alone;

        for (size_t i = 0; i < plan->n_pairs; i++)
                total += sum_of(&plan->pairs[i]);
        return total;
}

static bool is_too_large(const struct pairing *p, unsigned job)
{
        return p->in.pairs.turns[job].memory_bytes > p->in.pairs.card.capacity_bytes;
}

static int name_width(const struct pairing *p)
{
        size_t width = 3;

        for (size_t i = 0; i < p->in.n; i++)
                width = MAX(width, strlen(p->in.jobs[i].name));
        return (int)width;
}

static void print_text(const struct pairing *p, const struct plan *plan)
{
        const struct job *jobs = p->in.jobs;
        const int width = name_width(p);
        char bytes[UNITS_TEXT_MAX], rate[UNITS_TEXT_MAX];
        size_t gpu = 0;

        (void)printf("GPU  %-*s  %-*s  way     progress      sum\n", width, "job", width, "beside");
        for (size_t i = 0; i < plan->n_pairs; i++) {
                const struct plan_pair *one = &plan->pairs[i];
                const double *progress = one->pair->ways[one->way].progress;

                (void)printf("%3zu  %-*s  %-*s  %-6s  %.2f + %.2f  %.2f\n", ++gpu, width,
                             jobs[one->pair->a].name, width, jobs[one->pair->b].name,
                             way_names[one->way], progress[0], progress[1], sum_of(one));
        }
        for (size_t i = 0; i < plan->n_alone; i++)
                (void)printf("%3zu  %-*s  %-*s  alone   1.00         1.00\n", ++gpu, width,
                             jobs[plan->alone[i]].name, width, "");
        for (size_t i = 0; i < plan->n_waiting; i++)
                (void)printf("  -  %-*s  %-*s  waits%s\n", width, jobs[plan->waiting[i]].name,
                             width, "",
                             is_too_large(p, plan->waiting[i])
                                     ? "   it needs more memory than the card has"
                                     : "");
        (void)printf("\n%zu jobs on %zu GPUs do what %.2f GPUs do for jobs alone. %zu of %zu pairs "
                     "keep %.2f.\n",
                     p->in.n - plan->n_waiting, gpu, total_of(plan), plan->edges,
                     p->in.n * (p->in.n - 1) / 2, p->plan.bound);
        if (plan->host_bytes > 0)
                (void)printf("Pairs past memory take at most %s of host memory, and move %s/s each "
                             "way.\n",
                             units_format_size((uint64_t)plan->host_bytes, bytes),
                             units_format_size((uint64_t)plan->bus_bytes_s, rate));
}

static json_t *names(const struct pairing *p, const unsigned *list, size_t n)
{
        json_t *json = json_array();

        for (size_t i = 0; i < n; i++)
                (void)json_array_append_new(json, json_string(p->in.jobs[list[i]].name));
        return json;
}

static int print_json(const struct pairing *p, const struct plan *plan)
{
        json_t *pairs = json_array();

        for (size_t i = 0; i < plan->n_pairs; i++) {
                const struct plan_pair *one = &plan->pairs[i];
                const double *progress = one->pair->ways[one->way].progress;
                char why[PAIRS_WHY_MAX];

                (void)json_array_append_new(
                        pairs,
                        json_pack("{s[ss] ss s[ff] sf sf sf ss}", "jobs",
                                  p->in.jobs[one->pair->a].name, p->in.jobs[one->pair->b].name,
                                  "way", way_names[one->way], "progress", progress[0], progress[1],
                                  "sum", sum_of(one), "host_bytes",
                                  one->pair->fits ? 0 : one->pair->host_bytes, "bus_bytes_s",
                                  one->pair->fits ? 0 : one->pair->bus_bytes_s, "why",
                                  pairs_why(&p->in.pairs, one->pair, one->way, why)));
        }
        return command_print_json(json_pack(
                "{sf sf so so so sf sI sf sf}", "bound", p->plan.bound, "idle_w", p->plan.idle_w,
                "pairs", pairs, "alone", names(p, plan->alone, plan->n_alone), "waiting",
                names(p, plan->waiting, plan->n_waiting), "throughput", total_of(plan),
                "possible_pairs", (json_int_t)plan->edges, "host_bytes", plan->host_bytes,
                "bus_bytes_s", plan->bus_bytes_s));
}

/* ---- pairing ---- */

static int pair_all(struct pairing *p, struct pairs_pair *list, size_t n)
{
        _cleanup_plan_ struct plan plan = {0};
        char error[PAIRS_ERROR_MAX];
        int r = pairs_predict(&p->in.pairs, p->in.allowed, list, n, error);

        if (r < 0)
                return command_fail(STATUS_FAILED, "%s", error);
        r = plan_make(&p->in.pairs, list, n, &p->plan, &plan);
        if (r < 0)
                return command_fail(STATUS_FAILED, "cannot match %zu jobs: %s", p->in.n,
                                    strerror(-r));
        if (p->in.json)
                return print_json(p, &plan);
        print_text(p, &plan);
        return STATUS_OK;
}

static int pair(struct pairing *p, char **paths, size_t n)
{
        _cleanup_free_ struct pairs_pair *list = NULL;
        size_t pairs = 0;
        int status = command_open(&p->in, paths, n);

        if (status != STATUS_OK)
                return status;
        if (p->by_energy && p->plan.idle_w == 0)
                p->plan.idle_w = p->in.model.idle_w > 0 ? p->in.model.idle_w : IDLE_W;
        if (*p->in.no_model)
                (void)command_fail(0,
                                   "%s; until then only jobs that do not fit together are paired",
                                   p->in.no_model);
        list = calloc(n * (n - 1) / 2 + 1, sizeof(*list));
        if (!list)
                return command_fail(STATUS_FAILED, "no memory for the pairs of %zu jobs", n);
        for (unsigned a = 0; a < n; a++)
                for (unsigned b = a + 1; b < n; b++)
                        list[pairs++] = (struct pairs_pair){.a = a, .b = b};
        return pair_all(p, list, pairs);
}

int pair_main(int argc, char **argv)
{
        const double host = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
        struct pairing p = {
                .plan = {.bound = 0.7, .host_bytes = host / 2},
        };
        int words, status = command_options("pair", argc, argv, options, &p, &words);

        if (status != STATUS_OK)
                return status;
        if (words == 0)
                return command_fail(STATUS_USAGE, "pair needs job files");
        if (words > JOBS_MOST)
                return command_fail(STATUS_USAGE, "pair takes at most %d job files", JOBS_MOST);
        status = pair(&p, argv, (size_t)words);
        command_close(&p.in);
        return status;
}
