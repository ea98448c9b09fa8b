/* features.c: owns how a job becomes a row of numbers. Must never use figures that are known only
 * of pairs that have run. */
#include "pairing/features.h"

#include <math.h>
#include <stdbool.h>

#include "base/macros.h"

/* What an SM of Hopper has. Cards differ a little, and a model is of one card. */
#define SM_SHARED_BYTES 233472.0
#define SM_REGISTERS    65536.0
#define SHARE_MOST      0.01 /* kernels of a smaller share do not count as the longest */
#define IDLE_WAITS      0.09 /* of the time: a host that launches ahead idles the card for less */
#define HALF_PACED      0.98 /* part of its rate alone that a paced job keeps on half of the SMs */
#define STEP_LAUNCHES   3    /* with fewer in a step, an idle card means that the host waits */

const char *const feature_names[FEATURES] = {
#define JOB(name, value, beside) "a." #name,
#include "pairing/features.def"
#define JOB(name, value, beside) "b." #name,
#include "pairing/features.def"
#define PAIR(name, value, falls) #name,
#include "pairing/features.def"
};

const signed char feature_signs[FEATURES] = {
#define JOB(name, value, beside) 0,
#include "pairing/features.def"
#define JOB(name, value, beside) beside,
#include "pairing/features.def"
#define PAIR(name, value, falls) falls,
#include "pairing/features.def"
};

/* Means over the kernels of a job, by share of time. NAN where no kernel says it. */
struct means {
        double log_seconds, log_met, log_most, log_waves, filled, slots, blocks_per_sm, threads;
        double shared, registers, local, in_graphs, variety;
};

/* A mean in progress. */
struct mean {
        double sum, weight;
};

static void add(struct mean *m, double value, double weight)
{
        if (!isfinite(value))
                return;
        m->sum += value * weight;
        m->weight += weight;
}

static double mean_of(const struct mean *m)
{
        return m->weight > 0 ? m->sum / m->weight : NAN;
}

static double log_of(double n)
{
        return n > 0 ? log10(n) : NAN;
}

static void means_of(const struct job *job, struct means *ret)
{
        struct mean seconds = {0}, met = {0}, waves = {0}, filled = {0}, slots = {0}, blocks = {0};
        struct mean threads = {0}, shared = {0}, registers = {0}, local = {0}, graphs = {0};
        double most = 0, squares = 0, shares = 0;

        for (size_t i = 0; i < job->n_kernels; i++) {
                const struct job_kernel *k = &job->kernels[i];
                const double w = isfinite(k->share) ? k->share : 0;
                const double block = k->block[0] * k->block[1] * k->block[2];
                const double full = fmin(k->waves, 1);

                add(&seconds, log_of(k->seconds), w);
                add(&met, k->seconds, w);
                add(&waves, log_of(k->waves), w);
                add(&filled, full, w);
                add(&slots, k->occupancy * full, w);
                add(&blocks, k->blocks_per_sm, w);
                add(&threads, block, w);
                add(&shared, k->shared_bytes * k->blocks_per_sm * full / SM_SHARED_BYTES, w);
                add(&registers, k->registers * block * k->blocks_per_sm * full / SM_REGISTERS, w);
                add(&local, k->local_bytes > 0, w);
                add(&graphs, k->graph, w);
                if (w >= SHARE_MOST && k->seconds > most)
                        most = k->seconds;
                squares += w * w;
                shares += w;
        }
        *ret = (struct means){
                .log_seconds = mean_of(&seconds),
                .log_met = log_of(mean_of(&met)),
                .log_most = log_of(most),
                .log_waves = mean_of(&waves),
                .filled = mean_of(&filled),
                .slots = mean_of(&slots),
                .blocks_per_sm = mean_of(&blocks),
                .threads = mean_of(&threads),
                .shared = mean_of(&shared),
                .registers = mean_of(&registers),
                .local = mean_of(&local),
                .in_graphs = mean_of(&graphs),
                .variety = squares > 0 ? log10(shares * shares / squares) : NAN,
        };
}

/* Returns the part of the time that the job is on the card. */
static double duty_of(const struct job *j)
{
        const double duty = isfinite(j->launch.idle) ? 1 - j->launch.idle : j->gpu.busy;

        return isfinite(duty) ? fmax(fmin(duty, 1), 0.01) : NAN;
}

/* Returns the job's rate on half of the SMs / its rate on all. */
static double half_of(const struct job *j)
{
        return j->steps.half_per_second / j->steps.per_second;
}

/* Returns how long the job's kernels last on average. */
static double kernel_s(const struct job *j)
{
        double launches = 0;

        for (size_t i = 0; i < j->n_kernels; i++)
                launches += j->kernels[i].launches_per_step;
        return duty_of(j) / (j->steps.per_second * launches);
}

/* Returns the job's duty. The measurement shows even a busy card as idle for a few percent; such a
 * card counts as always busy. */
static double card_duty_of(const struct job *j)
{
        const double duty = duty_of(j);

        return duty > 1 - IDLE_WAITS ? 1 : duty;
}

static double launches_of(const struct job *j)
{
        const double n = (isfinite(j->launch.per_second) ? j->launch.per_second : 0) +
                         (isfinite(j->launch.graphs_per_second) ? j->launch.graphs_per_second : 0);

        return n > 0 ? n : NAN;
}

/* True if the host launches at a pace of its own, as a server does that waits for requests. Slower
 * kernels cost such a job no steps. */
static bool is_paced(const struct job *j)
{
        return card_duty_of(j) < 1 && half_of(j) >= HALF_PACED;
}

/* True if the host waits for each launch before it prepares the next. */
static bool waits(const struct job *j)
{
        return card_duty_of(j) < 1 && launches_of(j) < STEP_LAUNCHES * j->steps.per_second &&
               !is_paced(j);
}

/* Returns about the part of the instruction slots that the kernels take while they run. */
static double issue_of(const struct job *j)
{
        return (j->gpu.fp32 + j->gpu.integer + 2 * j->gpu.fp64) / duty_of(j);
}

static double least_known(double a, double b)
{
        return isfinite(a) && isfinite(b) ? fmin(a, b) : 0;
}

void features_of(const struct job *j, struct features *ret)
{
        struct means means;
        const struct means *m = &means;

        means_of(j, &means);
#define JOB(name, value, beside) ret->job[JOB_FEATURE_##name] = (value);
#include "pairing/features.def"
        ret->roof = (struct roof_job){
                .duty = isfinite(card_duty_of(j)) ? card_duty_of(j) : 1,
                .sm = j->gpu.sm,
                .occupancy = j->gpu.occupancy,
                .half = half_of(j),
                .kernel_s = kernel_s(j),
                .interval_s = 1 / launches_of(j),
                .waits = waits(j),
                .paced = is_paced(j),
                .use = {[ROOF_DRAM] = j->gpu.dram,
                        [ROOF_TENSOR] = j->gpu.tensor,
                        [ROOF_FP64] = j->gpu.fp64,
                        [ROOF_FP32] = j->gpu.fp32,
                        [ROOF_FP16] = j->gpu.fp16,
                        [ROOF_INTEGER] = j->gpu.integer,
                        [ROOF_SLOTS] = isfinite(m->slots) ? m->slots * ret->job[JOB_FEATURE_duty]
                                                          : j->gpu.occupancy},
        };
}

/* Returns how many resources would be short if both jobs ran as fast together as alone. */
static double count_short(const double *a, const double *b)
{
        static const enum job_feature counted[] = {
                JOB_FEATURE_dram,    JOB_FEATURE_tensor,    JOB_FEATURE_fp64,
                JOB_FEATURE_fp32,    JOB_FEATURE_fp16,      JOB_FEATURE_integer,
                JOB_FEATURE_slots,   JOB_FEATURE_registers, JOB_FEATURE_shared,
                JOB_FEATURE_to_host, JOB_FEATURE_to_device,
        };
        unsigned n = 0;

        for (size_t i = 0; i < ARRAY_SIZE(counted); i++)
                n += a[counted[i]] + b[counted[i]] > 1; /* an unknown figure counts as not short */
        return n;
}

/* What both rows of a pair have in common. */
struct estimate {
        double fullest, half[2], sliced[2], shared[2];
};

static void write_row(const struct features *fa, const struct features *fb,
                      const struct estimate *estimate, unsigned side, float ret[static FEATURES])
{
        const double *a = fa->job, *b = fb->job;
        float *at = ret;

        for (unsigned i = 0; i < JOB_FEATURES; i++)
                *at++ = (float)a[i];
        for (unsigned i = 0; i < JOB_FEATURES; i++)
                *at++ = (float)b[i];
#define A(name)                  a[JOB_FEATURE_##name]
#define B(name)                  b[JOB_FEATURE_##name]
#define PAIR(name, value, falls) *at++ = (float)(value);
#include "pairing/features.def"
        /* Infinities, such as a division by nothing, are not known. */
        for (unsigned i = 0; i < FEATURES; i++)
                if (!isfinite(ret[i]))
                        ret[i] = NAN;
}

void features_rows(const struct features *a, const struct features *b,
                   float ret[static 2 * FEATURES])
{
        const struct roof_job roof[2] = {a->roof, b->roof};
        struct estimate estimate = {.fullest = roof_fullest(roof),
                                    .half = {roof_half(&roof[0]), roof_half(&roof[1])}};

        roof_progress(roof, 0, estimate.sliced);
        roof_progress(roof, 1, estimate.shared);
        write_row(a, b, &estimate, 0, ret);
        write_row(b, a, &estimate, 1, ret + FEATURES);
}
