/* turns_model.c: owns the model of turns. Must never know anything of a pair that has run: it is
 * for pairs past memory, which nobody measures beforehand. */
#include "pairing/turns_model.h"

#include <errno.h>
#include <math.h>

#include "base/macros.h"

/* The part of the bus that a hand-off uses in each direction. On an H200 a hand-off, with unmapping
 * and mapping, moved 44.8 to 48.8 of 55.4 GB/s (docs/measurements/h200-core.md). */
#define EACH_WAY_PART 0.85
/* Two ResNet-50 that fit, in turns of 0.2 s, together did 0.82 and 1.03 of what one did alone, in
 * two measurements; 15 ms a hand-off are between the two. */
#define FIXED_S 0.015
#define CONTEXTS_BYTES                                                                      \
        (2.0 * GIB)         /* what two processes have on the card besides their memory … \
                             */
#define CONTEXTS_PART 0.125 /* … and at most this part of a small card */
#define HANDOFF_SHARE 0.05  /* the daemon's handoff_share, quantum_min and quantum_max */
#define QUANTUM_MIN_S 0.2
#define QUANTUM_MAX_S 60.0
#define ROUNDS        32

static double known(double n, double instead)
{
        return isfinite(n) ? n : instead;
}

void turns_card_of(const struct job *job, struct turns_card *ret)
{
        const double memory = known(job->measured.memory_bytes, 139.8 * GIB);

        *ret = (struct turns_card){
                .capacity_bytes = memory - MIN(CONTEXTS_BYTES, memory * CONTEXTS_PART),
                .each_way_bytes_s = known(job->measured.bus_gb_s, 55) * 1e9 * EACH_WAY_PART,
                .fixed_s = FIXED_S,
        };
}

void turns_job_of(const struct job *job, struct turns_job *ret)
{
        const double step_s = job->steps.per_second > 0 ? 1 / job->steps.per_second : 0;
        const double idle = known(job->launch.idle, 0);

        *ret = (struct turns_job){
                .memory_bytes = known(job->memory.peak_bytes, 0),
                .gap_s = step_s * idle,
                .burst_s = step_s * (1 - idle),
        };
}

/* Returns the turn that the daemon gives a job: docs/scheduling.md, "Turns". */
static double quantum_of(const struct turns_card *card, const struct turns *t, double memory_bytes)
{
        double cost;

        if (card->quantum_s > 0)
                return card->quantum_s;
        if (t->missing_bytes == 0)
                return QUANTUM_MIN_S;
        cost = MAX(t->handoff_s, memory_bytes / card->each_way_bytes_s);
        return MIN(MAX(cost * (1 - HANDOFF_SHARE) / HANDOFF_SHARE, QUANTUM_MIN_S), QUANTUM_MAX_S);
}

/* Solves the case that jobs give the card up in their gaps; see turns_model.h. busy: for a job that
 * never does. Returns the mean time between hand-offs. */
static double solve(const struct turns_job jobs[static 2], const bool busy[static 2],
                    struct turns *t)
{
        const double h = t->handoff_s;
        double wanted[2] = {1, 1}, handoffs = 0;

        for (unsigned round = 0; round < ROUNDS; round++)
                for (unsigned k = 0; k < 2; k++) {
                        const double own = t->quantum_s;
                        const double other = busy[!k] ? own : MIN(jobs[!k].burst_s, own);
                        double whole, more;

                        if (busy[k]) {
                                /* A turn, and one of the other job if it wants the card. */
                                whole = own + wanted[!k] * (other + 2 * h);
                                t->progress[k] = own / whole;
                                continue;
                        }
                        more = MAX(ceil(jobs[k].burst_s / own) - 1, 0.0);
                        whole = jobs[k].gap_s + h + jobs[k].burst_s +
                                wanted[!k] * (other / 2 + more * (other + 2 * h));
                        t->progress[k] = (jobs[k].gap_s + jobs[k].burst_s) / whole;
                        wanted[k] = 1 - jobs[k].gap_s / whole;
                }
        for (unsigned k = 0; k < 2; k++) {
                const double own = t->quantum_s, cycle = own / t->progress[k];
                const double step = (jobs[k].gap_s + jobs[k].burst_s) / t->progress[k];

                handoffs = MAX(handoffs, busy[k] ? 1 / cycle : ceil(jobs[k].burst_s / own) / step);
        }
        return 1 / (2 * handoffs);
}

int turns_predict(const struct turns_job jobs[static 2], const struct turns_card *card,
                  struct turns *ret)
{
        struct turns t = {0};
        bool busy[2];

        if (MAX(jobs[0].memory_bytes, jobs[1].memory_bytes) > card->capacity_bytes)
                return -ENOSPC;
        t.missing_bytes =
                MAX(jobs[0].memory_bytes + jobs[1].memory_bytes - card->capacity_bytes, 0.0);
        t.handoff_s = t.missing_bytes / card->each_way_bytes_s + card->fixed_s;
        for (unsigned k = 0; k < 2; k++) {
                t.quantum_s = MAX(t.quantum_s, quantum_of(card, &t, jobs[k].memory_bytes));
                busy[k] = jobs[k].gap_s <= 2 * t.handoff_s;
        }
        t.bus_bytes_s = t.missing_bytes / solve(jobs, busy, &t);
        t.host_bytes = 2 * t.missing_bytes;
        *ret = t;
        return 0;
}
