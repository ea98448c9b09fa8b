/* calibrate.c: owns the figures that follow from a model's errors. Must never see the trees. */
#include "pairing/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/sort.h"

#define KEPT       0.97 /* part of the jobs that must keep the bound, in pairs above a threshold */
#define NEAR       0.8  /* predictions above this part of the bound are near it */
#define NEAR_LEAST 20   /* predictions near the bound that are needed at least */

double calibrate_quantile(double *values, size_t n, double part)
{
        const double at = ceil((double)(n + 1) * part) - 1;

        sort_doubles(values, n);
        return values[(size_t)MIN(MAX(at, 0.0), (double)(n - 1))];
}

/* Returns a lower quantile. With few values it errs to the smaller side. */
static double lower(double *values, size_t n, double part)
{
        double r;

        for (size_t i = 0; i < n; i++)
                values[i] = -values[i];
        r = -calibrate_quantile(values, n, 1 - part);
        for (size_t i = 0; i < n; i++)
                values[i] = -values[i];
        return r;
}

static void find_errors(const struct calibrate_pair *pairs, size_t n, double *room,
                        struct model_errors *ret)
{
        double sum = 0;

        for (size_t i = 0; i < 2 * n; i++) {
                const struct calibrate_pair *p = &pairs[i / 2];

                room[i] = fabs(p->predicted[i % 2] - p->measured[i % 2]) / p->measured[i % 2];
                sum += room[i];
        }
        ret->mean = sum / (double)(2 * n);
        ret->p90 = calibrate_quantile(room, 2 * n, 0.9);
        ret->median = calibrate_quantile(room, 2 * n, 0.5);
}

/* A pair, with the smaller of its predictions. The pair is made if the smaller one is above the
 * threshold. */
struct made {
        double predicted;
        const struct calibrate_pair *pair;
};

static int greater_first(const void *a, const void *b)
{
        return compare_doubles(b, a);
}

/* Looks at the predictions near or above the bound. Returns a factor: the part KEPT of them exceeds
 * the measured progress by no more than this factor. otherwise: the result if there are too few
 * predictions. */
static double find_excess(const struct calibrate_pair *pairs, size_t n, double bound, double *room,
                          double otherwise)
{
        size_t found = 0;

        for (size_t i = 0; i < 2 * n; i++)
                if (pairs[i / 2].predicted[i % 2] >= bound * NEAR)
                        room[found++] =
                                pairs[i / 2].predicted[i % 2] / pairs[i / 2].measured[i % 2];
        return found < NEAR_LEAST ? otherwise : MAX(calibrate_quantile(room, found, KEPT), 1.0);
}

/* Returns the least threshold, divided by the bound, above which the part KEPT of all jobs in pairs
 * keeps the bound; `excess`: too few pairs are above the bound to know. sorted: the greatest
 * prediction first. */
static double find_margin(const struct made *sorted, size_t n, double bound, double excess)
{
        double margin = INFINITY;
        size_t broken = 0;

        for (size_t i = 0; i < n && sorted[i].predicted >= bound; i++) {
                for (unsigned side = 0; side < 2; side++)
                        broken += sorted[i].pair->measured[side] < bound;
                if ((double)(broken + 1) <= (1 - KEPT) * (double)(2 * i + 3))
                        margin = sorted[i].predicted / bound;
        }
        return isfinite(margin) ? margin : excess;
}

int calibrate(const struct calibrate_pair *pairs, size_t n, struct model_way *ret)
{
        _cleanup_free_ double *room = calloc(2 * n, sizeof(*room));
        _cleanup_free_ struct made *sorted = calloc(n, sizeof(*sorted));

        if (!room || !sorted)
                return -ENOMEM;
        find_errors(pairs, n, room, &ret->errors);
        for (size_t i = 0; i < n; i++)
                sorted[i] =
                        (struct made){MIN(pairs[i].predicted[0], pairs[i].predicted[1]), &pairs[i]};
        for (size_t i = 0; i < 2 * n; i++)
                room[i] = pairs[i / 2].measured[i % 2] / pairs[i / 2].predicted[i % 2];
        ret->low = lower(room, 2 * n, 0.05);
        ret->high = calibrate_quantile(room, 2 * n, 0.95);
        for (size_t i = 0; i < 2 * n; i++)
                room[i] = 1 / room[i];
        ret->delta = MAX(calibrate_quantile(room, 2 * n, 0.99) - 1, 0.0);
        for (size_t i = 0; i < n; i++)
                room[i] = (pairs[i].measured[0] + pairs[i].measured[1]) /
                          (pairs[i].predicted[0] + pairs[i].predicted[1]);
        ret->sum_low = lower(room, n, 0.05);
        ret->sum_high = calibrate_quantile(room, n, 0.95);
        qsort(sorted, n, sizeof(*sorted), greater_first);
        for (unsigned m = 0; m < MODEL_MARGINS; m++) {
                const double bound = (m + 1.0) / (MODEL_MARGINS + 1);

                ret->margins[m] = find_margin(sorted, n, bound,
                                              find_excess(pairs, n, bound, room, 1 + ret->delta));
        }
        return 0;
}
