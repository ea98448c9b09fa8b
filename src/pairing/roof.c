/* roof.c: owns the estimate without trees. Must never know what jobs are called. */
#include "pairing/roof.h"

#include <math.h>

#include "base/macros.h"

#define ROUNDS 24 /* the error of a round is at most half of that before it */

/* Fitted to 138 sliced pairs of kernels on an H200 with driver 580. */
#define SLICED_SHARE 0.45   /* of two that always have work */
#define SLICE_S      2.1e-3 /* useful time of a slice */
#define SWITCH_S     0.15e-3
#define RETURN_S     (2.5 * SWITCH_S) /* from one job to one that always has work, and back */

/* Fitted to 443 shared pairs. */
#define CROWDED       0.5 /* above, launches alternate */
#define OVERLAP_LEAST 0.7
#define OVERLAP_RISE  0.8 /* with each use that both make together above one */
#define USE_KNOWN     0.6 /* below, what limits the job is none of the resources that are known */
#define USE_UNKNOWN   0.9
#define PROGRESS_MIN  0.001

static double use_of(const struct roof_job *j, unsigned resource)
{
        return isfinite(j->use[resource]) ? MIN(j->use[resource] / MAX(j->duty, 0.01), 1.0) : 0;
}

double roof_fullest(const struct roof_job jobs[static 2], enum roof_resource *ret)
{
        double fullest = 0;

        for (unsigned r = 0; r < ROOF_RESOURCES; r++) {
                const double sum = use_of(&jobs[0], r) + use_of(&jobs[1], r);

                if (sum > fullest) {
                        fullest = sum;
                        if (ret)
                                *ret = (enum roof_resource)r;
                }
        }
        return fullest;
}

double roof_crowded(const struct roof_job jobs[static 2])
{
        double most = 0;

        for (unsigned r = 0; r < ROOF_ROOMS; r++) {
                const double sum = jobs[0].room[r] + jobs[1].room[r];

                if (isfinite(sum))
                        most = MAX(most, sum);
        }
        return most;
}

double roof_left(const struct roof_job *j, const struct roof_job *beside)
{
        const double filled = beside->filled > 0 ? MIN(beside->filled, 1.0) : 1;
        double left = 1;

        for (unsigned r = 0; r < ROOF_ROOMS; r++) {
                const double room =
                        MAX(1 - beside->room[r] / filled, 0.0); /* where it has blocks */

                if (isfinite(room) && j->room[r] > 0)
                        left = MIN(left, filled * MIN(room / j->room[r], 1.0) + 1 - filled);
        }
        return left;
}

/* ---- sliced ---- */

static double burst_of(const struct roof_job *j)
{
        return j->interval_s * j->duty;
}

static double gap_of(const struct roof_job *j)
{
        return j->interval_s * (1 - j->duty);
}

static void slice_ahead(const struct roof_job jobs[static 2], double ret[static 2])
{
        for (unsigned k = 0; k < 2; k++) {
                const double rest = 2 * SLICED_SHARE - jobs[!k].duty;

                ret[k] = MIN(MAX(rest, SLICED_SHARE) / MAX(jobs[k].duty, 0.01), 1.0);
        }
}

/* The first waits for each launch, the second does not. */
static void slice_one_waits(const struct roof_job *waits, const struct roof_job *ahead,
                            double *ret_waits, double *ret_ahead)
{
        const double burst = burst_of(waits), slice = SLICE_S * ahead->duty;
        const double turns = MAX(ceil(burst / SLICE_S) - 1, 0.0);
        const double step =
                burst + MAX(gap_of(waits), slice + RETURN_S) + turns * (slice + 2 * SWITCH_S);

        *ret_waits = waits->interval_s / step;
        *ret_ahead = MIN((step - burst - RETURN_S) / step / MAX(ahead->duty, 0.01), 1.0);
}

/* The hosts of both wait: the one with the longer steps, then the other. */
static void slice_both_wait(const struct roof_job *slow, const struct roof_job *quick,
                            double *ret_slow, double *ret_quick)
{
        double step = MAX(burst_of(slow) + burst_of(quick) + 2 * SWITCH_S, slow->interval_s);
        double times = 1; /* steps of the quick in one of the slow */

        if (gap_of(slow) >= quick->interval_s + 2 * SWITCH_S) {
                step = slow->interval_s + SWITCH_S;
                times = MAX((step - burst_of(slow) - 2 * SWITCH_S) / quick->interval_s, 1.0);
        }
        *ret_slow = slow->interval_s / step;
        *ret_quick = MIN(times * quick->interval_s / step, 1.0);
}

static void slice(const struct roof_job j[static 2], double ret[static 2])
{
        const unsigned slow = j[0].interval_s < j[1].interval_s;

        if (j[0].waits && j[1].waits)
                slice_both_wait(&j[slow], &j[!slow], &ret[slow], &ret[!slow]);
        else if (j[0].waits || j[1].waits)
                slice_one_waits(&j[j[1].waits], &j[!j[1].waits], &ret[j[1].waits],
                                &ret[!j[1].waits]);
        else
                slice_ahead(j, ret);
}

/* ---- shared ---- */

/* While both are on the card, their parts there last longer. */
void roof_beside(const struct roof_job jobs[static 2], double ret[static 2])
{
        const double stretch = MIN(MAX(roof_fullest(jobs, NULL), 1.0), 2.0);
        double on_card[2] = {jobs[0].duty, jobs[1].duty};

        for (unsigned round = 0; round < ROUNDS; round++) {
                const double before[2] = {on_card[0], on_card[1]};

                for (unsigned k = 0; k < 2; k++) {
                        const double card = jobs[k].duty * (1 + on_card[!k] * (stretch - 1));
                        const double whole = 1 - jobs[k].duty + card;

                        on_card[k] = card / whole;
                        ret[k] = 1 / whole;
                }
                if (fabs(on_card[0] - before[0]) + fabs(on_card[1] - before[1]) < 1e-9)
                        break;
        }
}

/* What limits the job, if it is none of the known resources. */
static double unknown_use(const struct roof_job *j)
{
        double most = 0;

        for (unsigned r = 0; r < ROOF_SLOTS; r++)
                most = MAX(most, use_of(j, r));
        return most < USE_KNOWN ? USE_UNKNOWN : 0;
}

static double overlap(const struct roof_job jobs[static 2])
{
        double fullest = unknown_use(&jobs[0]) + unknown_use(&jobs[1]);

        for (unsigned r = 0; r < ROOF_SLOTS; r++)
                fullest = MAX(fullest, use_of(&jobs[0], r) + use_of(&jobs[1], r));
        return MIN(OVERLAP_LEAST + OVERLAP_RISE * MAX(fullest - 1, 0.0), 1.0);
}

static void alternate(const struct roof_job jobs[static 2], double ret[static 2])
{
        const double part = overlap(jobs);

        for (unsigned k = 0; k < 2; k++) {
                const struct roof_job *j = &jobs[k], *o = &jobs[!k];
                const double own = burst_of(j), other = burst_of(o);
                double period = MAX(own, other) + part * MIN(own, other);

                if (gap_of(j) > other)
                        period = j->interval_s + other / 2;
                else if (gap_of(o) > own)
                        period = j->interval_s /
                                 MAX(1 - part * other / (o->interval_s + own / 2), 0.05);
                ret[k] = j->interval_s / MAX(period, j->interval_s);
        }
}

void roof_progress(const struct roof_job jobs[static 2], int shared, double ret[static 2])
{
        const bool timed = jobs[0].interval_s > 0 && jobs[1].interval_s > 0;

        if (!shared && (timed || !(jobs[0].waits || jobs[1].waits)))
                slice(jobs, ret);
        else if (!shared)
                slice_ahead(jobs, ret);
        else if (timed && roof_crowded(jobs) > CROWDED)
                alternate(jobs, ret);
        else
                roof_beside(jobs, ret);
        for (unsigned k = 0; k < 2; k++)
                ret[k] = MAX(ret[k], PROGRESS_MIN);
}
