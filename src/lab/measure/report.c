/* report.c: owns the figures of a job: what counts and times of two looks mean. Must never write a
 * figure that was not seen: it is NAN then. */
#include "lab/measure/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/sort.h"
#include "base/text.h"

#define STEPS_LEAST     3u
#define SAMPLES_LEAST   3u
#define SECONDS_TOO_FEW 1e-9
#define PAIR_LENGTHENS_S                                                        \
        3e-6 /* how much a pair of events lengthens a kernel at most (estimate) \
              */
#define MOST_CORRECTED 0.8
#define KERNEL_LEAST_S 2e-6 /* the shortest kernel of a graph on a Hopper card (estimate) */

#define HALF_LEAST 0.1 /* the rate on half of the SMs, as a part of the rate alone, … */
#define HALF_MOST  1.5 /* … which noise may exceed */
#define MIX_MOST   1.3 /* how much the parts of two mixes of launches differ at most … */
#define BY_CHANCE  3.0 /* … beyond so many launches */

/* The launches of one kernel in one geometry, directly or by graphs, and their time. */
struct row {
        const struct measure_page *page;
        const struct measure_kernel *kernel;
        bool graph;
        double launches;
        double seconds; /* time of all launches; NAN: not known */
};

struct rows {
        struct row *row;
        size_t n;
        double seconds; /* sum of the known times */
};

static uint64_t grown(const _Atomic uint64_t *now, const _Atomic uint64_t *before)
{
        return sub_sat(pages_get(now), before ? pages_get(before) : 0);
}

/* Returns the mean time of a launch between two looks. before NULL: the first look saw nothing.
 * Samples of launches that came late are used only if there are hardly any others. */
static double mean_between(const struct measure_time *now, const struct measure_time *before)
{
        const double all = (double)grown(&now->samples, before ? &before->samples : NULL);
        const double late = (double)grown(&now->late, before ? &before->late : NULL);
        const double ns = (double)grown(&now->sampled_ns, before ? &before->sampled_ns : NULL);
        const double late_ns = (double)grown(&now->late_ns, before ? &before->late_ns : NULL);

        if (all <= 0)
                return NAN;
        if (late > 0 && late < all && (all - late) * 4 >= all)
                return MAX(ns - late_ns, 0.0) / (all - late) / 1e9;
        return ns / all / 1e9;
}

/* Returns the mean time of a launch: in the measured time if it was sampled often enough then, or
 * else in all of the program's time. */
static double mean_seconds(const struct measure_time *now, const struct measure_time *before)
{
        const bool often = grown(&now->samples, before ? &before->samples : NULL) >= SAMPLES_LEAST;

        return mean_between(now, often ? before : NULL);
}

/* ---- rows ---- */

static void add_direct(struct rows *rows, const struct measure_page *now,
                       const struct measure_page *before)
{
        const uint32_t n = atomic_load(&now->kernel_count);

        for (uint32_t i = 0; i < n; i++) {
                const struct measure_kernel *k = &now->kernels[i];
                const struct measure_time *old = before ? &before->kernels[i].time : NULL;
                const uint64_t launches = grown(&k->time.launches, old ? &old->launches : NULL);

                if (launches > 0)
                        rows->row[rows->n++] = (struct row){.page = now,
                                                            .kernel = k,
                                                            .launches = (double)launches,
                                                            .seconds = (double)launches *
                                                                       mean_seconds(&k->time, old)};
        }
}

static struct row *graph_row(struct rows *rows, size_t first, const struct measure_page *page,
                             const struct measure_kernel *k)
{
        size_t i = first;

        while (i < rows->n && rows->row[i].kernel != k)
                i++;
        if (i == rows->n)
                rows->row[rows->n++] = (struct row){.page = page, .kernel = k, .graph = true};
        return &rows->row[i];
}

static double known(uint32_t value)
{
        return value == MEASURE_UNSUPPORTED ? NAN : (double)value;
}

/* Returns how often a kernel's blocks fill the card; NAN: not known. */
static double waves_of(const struct measure_page *page, const struct measure_kernel *k)
{
        const double blocks = (double)k->grid[0] * k->grid[1] * k->grid[2];
        const double fit = atomic_load(&k->ready) ? known(k->blocks_per_sm) * page->sms : NAN;

        return fit > 0 ? blocks / fit : NAN;
}

/* Returns the rounds that the kernel's blocks run in. The last round takes as long as a full one.
 * Blocks that fill a part of the card count as that part of a round, an unknown number of blocks
 * counts as one round. */
static double rounds_of(const struct measure_page *page, const struct measure_node *node)
{
        const double waves = waves_of(page, &page->kernels[node->kernel]);

        return isnan(waves) ? 1 : waves > 1 ? ceil(waves) : waves;
}

/* Returns the mean time of this kernel outside graphs; NAN: it was never timed there. */
static double outside_seconds(const struct measure_page *page, const struct measure_node *node)
{
        return mean_seconds(&page->kernels[node->kernel].time, NULL);
}

/* Returns the time of one launch of a node. round_s: the time of a round of blocks in kernels never
 * timed alone. */
static double node_seconds(const struct measure_page *page, const struct measure_node *node,
                           double round_s)
{
        const double seconds = outside_seconds(page, node);

        return isnan(seconds) ? KERNEL_LEAST_S + rounds_of(page, node) * round_s : seconds;
}

/* Returns how long a round of blocks takes in kernels that were never timed alone. With this time
 * all kernels together take the graph's time, but it is no less than in kernels whose times are
 * known. The known times may exceed the graph's, because events lengthen them, and because kernels
 * of a graph may overlap. */
static double round_seconds(const struct measure_page *page, const struct measure_graph *g,
                            double whole)
{
        const struct measure_node *nodes = &page->nodes[g->first];
        double least = 0, rounds = 0, above = 0, known_rounds = 0;

        for (uint32_t i = 0; i < g->count; i++) {
                const double seconds = outside_seconds(page, &nodes[i]), n = nodes[i].count,
                             own = rounds_of(page, &nodes[i]);

                least += n * (isnan(seconds) ? KERNEL_LEAST_S : seconds);
                if (isnan(seconds)) {
                        rounds += n * own;
                } else {
                        above += n * MAX(seconds - KERNEL_LEAST_S, 0.0);
                        known_rounds += n * MAX(own, 1.0);
                }
        }
        return MAX(rounds > 0 && whole > least ? (whole - least) / rounds : 0,
                   known_rounds > 0 ? above / known_rounds : 0);
}

/* Only whole graphs are timed (`whole` seconds a launch). Their time is divided among the kernels
 * in proportion to the times that these have outside graphs; the time of a kernel that was never
 * seen there is estimated from its blocks. */
static void add_graph(struct rows *rows, size_t first, const struct measure_page *page,
                      const struct measure_graph *g, double launches, double whole)
{
        const struct measure_node *nodes = &page->nodes[g->first];
        const double round_s = round_seconds(page, g, whole);
        bool any_known = false;
        double sum = 0, scale;

        for (uint32_t i = 0; i < g->count; i++) {
                sum += node_seconds(page, &nodes[i], round_s) * nodes[i].count;
                any_known |= !isnan(outside_seconds(page, &nodes[i]));
        }
        scale = isnan(whole) ? (any_known ? 1 : NAN) : sum > 0 ? whole / sum : NAN;
        for (uint32_t i = 0; i < g->count; i++) {
                struct row *row = graph_row(rows, first, page, &page->kernels[nodes[i].kernel]);

                row->launches += launches * nodes[i].count;
                row->seconds +=
                        launches * nodes[i].count * scale * node_seconds(page, &nodes[i], round_s);
        }
}

static void add_graphs(struct rows *rows, const struct measure_page *now,
                       const struct measure_page *before)
{
        const uint32_t n = atomic_load(&now->graph_count);
        const size_t first = rows->n;

        for (uint32_t i = 0; i < n; i++) {
                const struct measure_graph *g = &now->graphs[i];
                const struct measure_time *old = before ? &before->graphs[i].time : NULL;
                const uint64_t launches = grown(&g->time.launches, old ? &old->launches : NULL);

                if (launches > 0)
                        add_graph(rows, first, now, g, (double)launches,
                                  mean_seconds(&g->time, old));
        }
}

static int by_seconds(const void *a, const void *b)
{
        const struct row *x = a, *y = b;
        const double s = isnan(x->seconds) ? -1 : x->seconds;
        const double t = isnan(y->seconds) ? -1 : y->seconds;

        return s != t ? (s < t) - (s > t)
                      : (x->launches < y->launches) - (x->launches > y->launches);
}

/* Two events lengthen what is between them: the GPU finishes the kernel before, and only then
 * begins with the next one. If the times of all kernels together exceed the GPU's busy time, this
 * delay is taken off each launch, as far as it explains the difference. */
static void correct_rows(struct rows *rows, double busy_seconds)
{
        double launches = 0, each;

        rows->seconds = 0;
        for (size_t i = 0; i < rows->n; i++) {
                if (isnan(rows->row[i].seconds))
                        continue;
                rows->seconds += rows->row[i].seconds;
                launches += rows->row[i].graph ? 0 : rows->row[i].launches;
        }
        if (rows->seconds <= busy_seconds || launches <= 0)
                return;
        each = MIN((rows->seconds - busy_seconds) / launches, PAIR_LENGTHENS_S);
        rows->seconds = 0;
        for (size_t i = 0; i < rows->n; i++) {
                struct row *row = &rows->row[i];

                if (isnan(row->seconds))
                        continue;
                if (!row->graph)
                        row->seconds -= MIN(each * row->launches, row->seconds * MOST_CORRECTED);
                rows->seconds += row->seconds;
        }
}

static bool find_rows(const struct report_seen *seen, struct rows *ret)
{
        *ret = (struct rows){.row = calloc((size_t)MAX(seen->end->n, 1u) * MEASURE_KERNELS * 2,
                                           sizeof(*ret->row))};
        if (!ret->row)
                return false;
        for (unsigned i = 0; i < seen->end->n; i++) {
                const struct measure_page *now = seen->end->page[i];
                const struct measure_page *before = pages_find(seen->begin, now->pid);

                add_direct(ret, now, before);
                add_graphs(ret, now, before);
        }
        correct_rows(ret, seen->seconds * (isnan(seen->card.busy) ? 1 : seen->card.busy));
        qsort(ret->row, ret->n, sizeof(*ret->row), by_seconds);
        return true;
}

static void fill_kernel(const struct row *row, double steps, double all_seconds,
                        struct job_kernel *ret)
{
        const struct measure_kernel *k = row->kernel;
        double threads = 1;

        job_kernel_init(ret);
        for (unsigned i = 0; i < 3; i++) {
                ret->grid[i] = k->grid[i];
                ret->block[i] = k->block[i];
                threads *= k->block[i];
        }
        (void)text_copy(ret->name, sizeof(ret->name), k->name);
        ret->graph = row->graph;
        if (atomic_load(&k->ready)) {
                ret->registers = known(k->registers);
                ret->shared_bytes = known(k->static_bytes) + k->dynamic_bytes;
                ret->local_bytes = known(k->local_bytes);
                ret->blocks_per_sm = known(k->blocks_per_sm);
        }
        if (row->page->threads_per_sm > 0)
                ret->occupancy = ret->blocks_per_sm * threads / row->page->threads_per_sm;
        ret->waves = waves_of(row->page, k);
        ret->launches_per_step = row->launches / steps;
        ret->seconds = row->seconds / row->launches;
        if (all_seconds > 0 && !isnan(row->seconds))
                ret->share = row->seconds / all_seconds;
}

static bool fill_kernels(const struct rows *rows, double steps, struct job *ret)
{
        const size_t n = MIN(rows->n, (size_t)JOB_KERNELS_MAX);

        ret->other_share = 0;
        ret->kernels = calloc(MAX(n, (size_t)1), sizeof(*ret->kernels));
        if (!ret->kernels)
                return false;
        ret->n_kernels = n;
        for (size_t i = 0; i < n; i++)
                fill_kernel(&rows->row[i], steps, rows->seconds, &ret->kernels[i]);
        for (size_t i = n; i < rows->n; i++)
                if (rows->seconds > 0 && !isnan(rows->row[i].seconds))
                        ret->other_share += rows->row[i].seconds / rows->seconds;
        return true;
}

/* ---- steps ---- */

/* The steps between two looks, as the era of the second look numbers them. */
struct steps_seen {
        uint64_t first, last; /* the first one that began, and the last one */
        bool whole;           /* all of the time between the looks belongs to this era */
};

/* Finds the steps between two looks. False: fewer than two steps began. */
static bool find_steps(const struct measure_page *now, const struct measure_page *before,
                       struct steps_seen *ret)
{
        const uint64_t steps = pages_get(&now->steps);
        const bool same_era = before && pages_get(&before->era) == pages_get(&now->era);

        ret->first = same_era ? pages_get(&before->steps) : 0;
        ret->last = steps - 1;
        ret->whole = same_era;
        return steps > ret->first + 1 && pages_get(&now->era) > 0;
}

/* Half the width of the middle two thirds of the step times, as a part of their median. */
static double spread_of(const struct measure_page *p, uint64_t first, uint64_t last)
{
        const size_t n = (size_t)(last - first);
        _cleanup_free_ double *times = n ? malloc(n * sizeof(*times)) : NULL;

        if (!times)
                return NAN;
        for (size_t i = 0; i < n; i++)
                times[i] = (double)sub_sat(pages_get(&p->step_ns[(first + i + 1) % MEASURE_STEPS]),
                                           pages_get(&p->step_ns[(first + i) % MEASURE_STEPS]));
        sort_doubles(times, n);
        if (times[n / 2] <= 0)
                return NAN;
        return (times[(n - 1) * 84 / 100] - times[(n - 1) * 16 / 100]) / 2 / times[n / 2];
}

/* Returns how many steps the launches are divided by. */
static double fill_steps(const struct report_seen *seen, struct job *ret)
{
        const struct measure_page *now = pages_leader(seen->end, seen->begin);
        struct steps_seen s;
        uint64_t kept, took_ns;

        if (now && find_steps(now, pages_find(seen->begin, now->pid), &s) &&
            s.last - s.first + 1 >= STEPS_LEAST) {
                kept = MAX(s.first, sub_sat(s.last, MEASURE_STEPS - 1));
                took_ns = sub_sat(pages_get(&now->step_ns[s.last % MEASURE_STEPS]),
                                  pages_get(&now->step_ns[kept % MEASURE_STEPS]));
                if (took_ns > 0) {
                        (void)strcpy(ret->steps.unit, "step");
                        ret->steps.count = (double)(s.last - s.first);
                        ret->steps.per_second = (double)(s.last - kept) / ((double)took_ns / 1e9);
                        if (kept > s.first) /* the rate of all steps, not only of the last ones */
                                ret->steps.per_second = ret->steps.count / seen->seconds;
                        ret->steps.spread = spread_of(now, kept, s.last);
                        return s.whole ? ret->steps.count + 1
                                       : ret->steps.per_second * seen->seconds;
                }
        }
        (void)strcpy(ret->steps.unit, "launch");
        ret->steps.per_second = ret->launch.per_second + ret->launch.graphs_per_second;
        ret->steps.count = round(ret->steps.per_second * seen->seconds);
        return ret->steps.count;
}

unsigned long long report_steps(const struct pages *begin, const struct pages *end)
{
        const struct measure_page *now = pages_leader(end, begin);
        struct steps_seen s;

        return now && find_steps(now, pages_find(begin, now->pid), &s) ? s.last - s.first : 0;
}

/* ---- the rest ---- */

static void fill_rates(const struct report_seen *seen, struct job *ret)
{
        double launches = 0, graphs = 0, copied[MEASURE_COPIES] = {0}, peak = 0;

        for (unsigned i = 0; i < seen->end->n; i++) {
                const struct measure_page *now = seen->end->page[i];
                const struct measure_page *old = pages_find(seen->begin, now->pid);
                const uint32_t kernels = atomic_load(&now->kernel_count);
                const uint32_t graph_count = atomic_load(&now->graph_count);

                for (uint32_t k = 0; k < kernels; k++)
                        launches += (double)grown(&now->kernels[k].time.launches,
                                                  old ? &old->kernels[k].time.launches : NULL);
                for (uint32_t g = 0; g < graph_count; g++)
                        graphs += (double)grown(&now->graphs[g].time.launches,
                                                old ? &old->graphs[g].time.launches : NULL);
                launches += (double)grown(&now->unlisted, old ? &old->unlisted : NULL);
                for (unsigned w = 0; w < MEASURE_COPIES; w++)
                        copied[w] += (double)grown(&now->copied[w], old ? &old->copied[w] : NULL);
                peak += (double)pages_get(&now->peak_bytes);
        }
        ret->memory.peak_bytes = peak;
        ret->launch.per_second = launches / seen->seconds;
        ret->launch.graphs_per_second = graphs / seen->seconds;
        ret->copies.to_device_gb_s = copied[MEASURE_TO_DEVICE] / seen->seconds / 1e9;
        ret->copies.to_host_gb_s = copied[MEASURE_TO_HOST] / seen->seconds / 1e9;
        ret->copies.device_gb_s = copied[MEASURE_WITHIN] / seen->seconds / 1e9;
}

static double positive(double value)
{
        return value > 0 ? value : NAN;
}

void report_card(const struct card_figures *c, struct job *ret)
{
        ret->gpu.busy = c->busy;
        ret->gpu.sm = c->sm;
        ret->gpu.occupancy = c->occupancy;
        ret->gpu.dram = c->dram;
        ret->gpu.tensor = c->tensor;
        ret->gpu.fp64 = c->fp64;
        ret->gpu.fp32 = c->fp32;
        ret->gpu.fp16 = c->fp16;
        ret->gpu.integer = c->integer;
        ret->gpu.sm_p90 = c->sm_p90;
        ret->gpu.dram_p90 = c->dram_p90;
        ret->gpu.pcie_to_device_gb_s = c->to_device_gb_s;
        ret->gpu.pcie_to_host_gb_s = c->to_host_gb_s;
        ret->gpu.power_w = c->power_w;
        ret->gpu.clock_mhz = c->clock_mhz;
}

static void fill_card(const struct report_seen *seen, struct job *ret)
{
        const struct measure_page *p = pages_leader(seen->end, seen->begin);
        const struct card_figures *c = &seen->card;

        report_card(c, ret);
        ret->measured.bus_gb_s = c->bus_gb_s;
        (void)strcpy(ret->measured.driver, c->driver);
        ret->measured.seconds = seen->seconds;
        if (!p)
                return;
        (void)strcpy(ret->measured.gpu, p->gpu);
        ret->measured.sms = positive(p->sms);
        ret->measured.memory_bytes = positive((double)p->total_bytes);
        ret->measured.l2_bytes = positive(p->l2_bytes);
        ret->measured.clock_mhz = positive(p->clock_khz / 1e3);
        /* Memory of GPUs transfers twice a clock. */
        ret->measured.dram_gb_s =
                positive(2.0 * p->memory_clock_khz * 1e3 * p->memory_bus_bits / 8 / 1e9);
}

bool report_fill(const struct report_seen *seen, struct job *ret)
{
        struct rows rows;
        double steps;
        bool ok;

        if (seen->seconds < SECONDS_TOO_FEW || !find_rows(seen, &rows))
                return false;
        fill_card(seen, ret);
        fill_rates(seen, ret);
        steps = fill_steps(seen, ret);
        ok = fill_kernels(&rows, steps, ret);
        if (!isnan(seen->card.busy))
                ret->launch.idle = MAX(1 - seen->card.busy, 0.0);
        else if (rows.seconds > 0)
                ret->launch.idle = MAX(1 - rows.seconds / seen->seconds, 0.0);
        if (ret->steps.per_second > 0)
                ret->launch.host_s_per_step = seen->cpu_s / seen->seconds / ret->steps.per_second;
        free(rows.row);
        return ok;
}

/* ---- with half of the SMs ---- */

static double all_launches(const struct job *j)
{
        return j->launch.per_second + j->launch.graphs_per_second;
}

static bool is_alike(double a, double b, double slack)
{
        return MAX(a, b) <= MIX_MOST * MIN(a, b) + slack;
}

/* A program that still warms up launches kernels one by one, and later graphs of them. */
static bool is_same_mix(const struct job *a, const struct job *b)
{
        const double all_a = all_launches(a), all_b = all_launches(b);
        const double n = MIN(all_a * a->measured.seconds, all_b * b->measured.seconds);

        return is_alike(a->launch.per_second / all_a, b->launch.per_second / all_b,
                        BY_CHANCE / n) &&
               is_alike(a->launch.graphs_per_second / all_a, b->launch.graphs_per_second / all_b,
                        BY_CHANCE / n);
}

int report_half(const struct job *half, struct job *ret)
{
        const double alone = all_launches(ret), there = all_launches(half);

        if (!(alone > 0) || !(there > 0))
                return -ENODATA;
        if (!is_same_mix(half, ret) || there > HALF_MOST * alone || there < HALF_LEAST * alone)
                return -EAGAIN;
        ret->steps.half_per_second = ret->steps.per_second * there / alone;
        return 0;
}
