/* roof.c: owns the estimate without a model. Must never know what a way costs on a certain card:
 * the trees learn that. */
#include "pairing/roof.h"

#include <math.h>

#include "base/macros.h"

#define ROUNDS 24 /* the error of a round is at most half of that before it */

double roof_fullest(const struct roof_job jobs[static 2], enum roof_resource *ret)
{
        double fullest = 0;

        for (unsigned r = 0; r < ROOF_RESOURCES; r++) {
                double sum = 0;

                for (unsigned k = 0; k < 2; k++)
                        if (isfinite(jobs[k].use[r]))
                                sum += MIN(jobs[k].use[r] / MAX(jobs[k].duty, 0.01), 1.0);
                if (sum > fullest) {
                        fullest = sum;
                        if (ret)
                                *ret = (enum roof_resource)r;
                }
        }
        return fullest;
}

void roof_progress(const struct roof_job jobs[static 2], int shared, double ret[static 2])
{
        const double stretch = shared ? MIN(MAX(roof_fullest(jobs, NULL), 1.0), 2.0) : 2.0;
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
