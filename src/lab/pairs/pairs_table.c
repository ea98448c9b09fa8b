/* pairs_table.c: owns the table that people read. Must never show a figure of pairs that were not
 * measured. */
#include <math.h>
#include <stdlib.h>

#include "base/sort.h"
#include "lab/pairs/bench_pairs.h"

#define SHOWN 3 /* pairs that are shown: the best and the worst of each way */

static double sum_of(const struct pairs_result *r)
{
        return r->progress[0] + r->progress[1];
}

static int compare(const void *one, const void *other)
{
        const double a = sum_of(one), b = sum_of(other);

        return compare_doubles(&a, &b);
}

/* Interpolates between the two nearest values. */
static double quantile(const struct pairs_result *sorted, size_t n, double part)
{
        const double at = part * (double)(n - 1);
        const size_t below = (size_t)at, above = below + 1 < n ? below + 1 : below;

        return sum_of(&sorted[below]) +
               (at - floor(at)) * (sum_of(&sorted[above]) - sum_of(&sorted[below]));
}

static void print_pair(FILE *out, const struct pairs_job *jobs, const struct pairs_result *r)
{
        (void)fprintf(out, "    %.2f = %.2f + %.2f  %s beside %s\n", sum_of(r), r->progress[0],
                      r->progress[1], jobs[r->a].name, jobs[r->b].name);
}

static void print_way(FILE *out, const struct pairs_job *jobs, struct pairs_result *sorted,
                      size_t n, enum way way)
{
        const size_t shown = n / 2 < SHOWN ? n / 2 : SHOWN;

        qsort(sorted, n, sizeof(*sorted), compare);
        (void)fprintf(out, "%-8s %5zu  %6.2f %6.2f %6.2f %6.2f %6.2f\n", way_names[way], n,
                      sum_of(&sorted[0]), quantile(sorted, n, 0.25), quantile(sorted, n, 0.5),
                      quantile(sorted, n, 0.75), sum_of(&sorted[n - 1]));
        for (size_t i = 0; i < shown; i++)
                print_pair(out, jobs, &sorted[n - 1 - i]);
        if (shown)
                (void)fprintf(out, "    ...\n");
        for (size_t i = shown; i > 0; i--)
                print_pair(out, jobs, &sorted[i - 1]);
}

struct moved {
        double part; /* the greatest of its rates alone is so much above the least */
        const struct pairs_job *job;
};

void pairs_print_steadiness(FILE *out, const struct pairs_job *jobs, size_t n_jobs)
{
        struct moved *moved = calloc(n_jobs + 1, sizeof(*moved));
        size_t n = 0;

        for (size_t j = 0; moved && j < n_jobs; j++) {
                struct moved m = {.job = &jobs[j], .part = -1};

                for (unsigned shared = 0; shared < 2; shared++) {
                        const struct pairs_alone *a = &jobs[j].alone[shared];

                        if (a->n > 1 && a->most / a->least - 1 > m.part)
                                m.part = a->most / a->least - 1;
                }
                if (m.part >= 0)
                        moved[n++] = m;
        }
        if (n > 0) {
                qsort(moved, n, sizeof(*moved), compare_doubles);
                (void)fprintf(out,
                              "Rates alone, of the %zu jobs for which they were measured again: "
                              "they moved by %.1f %% (median), %.1f %% at most (%s).\n",
                              n, 100 * moved[n / 2].part, 100 * moved[n - 1].part,
                              moved[n - 1].job->name);
        }
        free(moved);
}

void pairs_print_table(FILE *out, const struct pairs_job *jobs, const struct pairs_results *results)
{
        struct pairs_result *of_way = calloc(results->n + 1, sizeof(*of_way));

        if (!of_way)
                return;
        (void)fprintf(out, "The sum of both programs' progress: 1.00 is what one has alone.\n"
                           "way      pairs   least     1/4 median    3/4   most\n");
        for (unsigned way = 0; way < WAYS; way++) {
                size_t n = 0;

                for (size_t i = 0; i < results->n; i++)
                        if (results->items[i].way == way)
                                of_way[n++] = results->items[i];
                if (n > 0)
                        print_way(out, jobs, of_way, n, way);
        }
        free(of_way);
}
