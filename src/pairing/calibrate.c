/* calibrate.c: owns what is made of a model's errors. Must never see the trees. */
#include "pairing/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"

#define KEPT 0.99 /* part of the predictions above a threshold that keep the bound */

static int compare(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

double calibrate_quantile(double *values, size_t n, double part)
{
        const double at = ceil((double)(n + 1) * part) - 1;

        qsort(values, n, sizeof(*values), compare);
        return values[(size_t)MIN(MAX(at, 0.0), (double)(n - 1))];
}

/* A lower quantile, which errs to the smaller. */
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

struct prediction {
        double predicted, measured;
};

static int greater_first(const void *a, const void *b)
{
        const double x = ((const struct prediction *)a)->predicted;
        const double y = ((const struct prediction *)b)->predicted;

        return (x < y) - (x > y);
}

/* Returns the least threshold, divided by the bound, such that KEPT of the predictions above it
 * keep the bound; or 1 + delta where too few are above it to know. sorted: the greatest first. */
static double find_margin(const struct prediction *sorted, size_t n, double bound, double delta)
{
        double margin = 1 + delta;
        size_t broken = 0;

        for (size_t i = 0; i < n && sorted[i].predicted >= bound; i++) {
                broken += sorted[i].measured < bound;
                if ((double)(broken + 1) <= (1 - KEPT) * (double)(i + 2))
                        margin = MIN(margin, sorted[i].predicted / bound);
        }
        return margin;
}

int calibrate(const struct calibrate_pair *pairs, size_t n, struct model_way *ret)
{
        _cleanup_free_ double *room = calloc(2 * n, sizeof(*room));
        _cleanup_free_ struct prediction *sorted = calloc(2 * n, sizeof(*sorted));

        if (!room || !sorted)
                return -ENOMEM;
        find_errors(pairs, n, room, &ret->errors);
        for (size_t i = 0; i < 2 * n; i++) {
                sorted[i].predicted = pairs[i / 2].predicted[i % 2];
                sorted[i].measured = pairs[i / 2].measured[i % 2];
                room[i] = sorted[i].measured / sorted[i].predicted;
        }
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
        qsort(sorted, 2 * n, sizeof(*sorted), greater_first);
        for (unsigned m = 0; m < MODEL_MARGINS; m++)
                ret->margins[m] =
                        find_margin(sorted, 2 * n, (m + 1.0) / (MODEL_MARGINS + 1), ret->delta);
        return 0;
}
