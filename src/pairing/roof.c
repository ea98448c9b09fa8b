/* roof.c: owns the estimate without trees. Must never know what jobs are called. */
#include "pairing/roof.h"

#include <math.h>

#include "base/macros.h"

/* Fitted to 138 sliced pairs of kernels on an H200 with driver 580. */
#define SLICED_TAX 0.1  /* part of the time that switches take, if both jobs always have work … */
#define TAX_RISE   0.27 /* … growing with the smaller of both duties: 421 pairs on an H100 */
#define SLICE_S    2.1e-3 /* seconds of useful time in a slice */
#define SWITCH_S   0.15e-3
#define RETURN_S   (2.5 * SWITCH_S) /* time from one job to one that always has work, and back */

/* Fitted to what 66 models did alone on half of the SMs of an H100, and in 945 shared pairs. */
#define HALF_SM        0.457 /* what half of the SMs costs a job that keeps them busy … */
#define HALF_SM_POWER  2.18
#define HALF_OCCUPANCY 0.24 /* … with many threads … */
#define HALF_TENSOR    0.061
#define HALF_DRAM      0.291 /* … and what it does not cost one that waits for the DRAM */
#define HALF_LEAST     0.4
#define STRETCH_BOTH   0.39    /* for the DRAM that both use */
#define STRETCH_DRAM   0.54    /* for the DRAM that the other one uses … */
#define SHORT_DRAM_S   1.6e-6  /* … and more, divided by the length of a kernel */
#define STRETCH_DUTY   0.068   /* for all else that the other one does … */
#define SHORT_DUTY_S   0.47e-6 /* … and more, too */
#define PROGRESS_MIN   0.001

static double use_of(const struct roof_job *j, unsigned resource)
{
        return isfinite(j->use[resource]) ? MIN(j->use[resource] / MAX(j->duty, 0.01), 1.0) : 0;
}

double roof_fullest(const struct roof_job jobs[static 2])
{
        double fullest = 0;

        for (unsigned r = 0; r < ROOF_RESOURCES; r++)
                fullest = MAX(fullest, use_of(&jobs[0], r) + use_of(&jobs[1], r));
        return fullest;
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
        const double time = 1 - MIN(SLICED_TAX, TAX_RISE * MIN(jobs[0].duty, jobs[1].duty));

        for (unsigned k = 0; k < 2; k++)
                ret[k] = MIN(MAX(time - jobs[!k].duty, time / 2) / MAX(jobs[k].duty, 0.01), 1.0);
}

/* The host of the first job waits for each launch; the host of the second does not. */
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

/* The hosts of both jobs wait. slow: the job with the longer steps. */
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

/* Estimates how fast the job's kernels run on half of the SMs, compared with all. */
static double half_of_kernels(const struct roof_job *j)
{
        const double duty = MAX(j->duty, 0.01);
        const double sm = isfinite(j->sm) ? MIN(MAX(j->sm, 0.0) / duty, 1.0) : 1,
                     occupancy = isfinite(j->occupancy) ? MIN(j->occupancy / duty, 1.0) : 0;

        return MIN(MAX(1 - HALF_SM * pow(sm, HALF_SM_POWER) - HALF_OCCUPANCY * occupancy -
                               HALF_TENSOR * use_of(j, ROOF_TENSOR) +
                               HALF_DRAM * use_of(j, ROOF_DRAM),
                       HALF_LEAST),
                   1.0);
}

double roof_half(const struct roof_job *j)
{
        return j->half > 0 ? j->half : 1 / (1 - j->duty + j->duty / half_of_kernels(j));
}

static void share(const struct roof_job jobs[static 2], double ret[static 2])
{
        double half[2], dram[2];

        for (unsigned k = 0; k < 2; k++) {
                half[k] = roof_half(&jobs[k]);
                dram[k] = isfinite(jobs[k].use[ROOF_DRAM]) ? jobs[k].use[ROOF_DRAM] * half[k] : 0;
        }
        for (unsigned k = 0; k < 2; k++) {
                const double duty = jobs[k].duty;
                const double shorter = jobs[k].kernel_s > 0 ? 1 / MAX(jobs[k].kernel_s, 1e-6) : 0;
                const double stretch = 1 + STRETCH_BOTH * dram[0] * dram[1] +
                                       (STRETCH_DRAM + SHORT_DRAM_S * shorter) * dram[!k] +
                                       (STRETCH_DUTY + SHORT_DUTY_S * shorter) * jobs[!k].duty;
                const double step = 1 / half[k], card = step - 1 + duty; /* of a step alone */

                if (jobs[k].paced) /* it loses steps only if the card has no time left */
                        ret[k] = MIN(half[k], half_of_kernels(&jobs[k]) / (duty * stretch));
                else
                        ret[k] = 1 / (step + card * (stretch - 1));
        }
}

void roof_progress(const struct roof_job jobs[static 2], int shared, double ret[static 2])
{
        const bool timed = jobs[0].interval_s > 0 && jobs[1].interval_s > 0;

        if (shared)
                share(jobs, ret);
        else if (timed || !(jobs[0].waits || jobs[1].waits))
                slice(jobs, ret);
        else
                slice_ahead(jobs, ret);
        for (unsigned k = 0; k < 2; k++)
                ret[k] = MAX(ret[k], PROGRESS_MIN);
}
