/* trial.c: owns the order of the samples and their evaluation. Must never rank by a single sample
 * if there are more.
 * Why: docs/decisions.md, "A profile finds the busy buffers by trying". */
#include "preload/overflow/trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

void trial_begin(struct trial *t, unsigned buffers, const unsigned *kinds)
{
        memset(t, 0, sizeof(*t));
        t->buffers = MIN(buffers, TRIAL_BUFFERS_MAX);
        memcpy(t->kind, kinds, t->buffers * sizeof(*kinds));
}

int trial_next(const struct trial *t)
{
        if (t->round == TRIAL_ROUNDS || t->buffers == 0)
                return TRIAL_OVER;
        return t->with ? (int)t->buffer : TRIAL_GROUND;
}

bool trial_round_is_over(const struct trial *t)
{
        return t->round > 0 && t->buffer == 0 && !t->with;
}

static void advance(struct trial *t)
{
        if (!t->with) {
                t->with = true;
                return;
        }
        t->with = false;
        t->buffer = (t->buffer + 1) % t->buffers;
        t->round += t->buffer == 0;
}

void trial_sample(struct trial *t, uint64_t ns)
{
        unsigned i = t->round * t->buffers + t->buffer;

        if (trial_next(t) == TRIAL_OVER)
                return;
        (t->with ? t->with_ns : t->ground_ns)[i] = (int64_t)MIN(MAX(ns, 1u), (uint64_t)INT64_MAX);
        advance(t);
}

void trial_skip(struct trial *t)
{
        if (trial_next(t) != TRIAL_OVER)
                advance(t);
}

static int by_value(const void *a, const void *b)
{
        int64_t l = *(const int64_t *)a, r = *(const int64_t *)b;

        return l < r ? -1 : l > r;
}

static int64_t median(int64_t *values, unsigned n)
{
        if (n == 0)
                return 0;
        qsort(values, n, sizeof(*values), by_value);
        return n % 2 ? values[n / 2] : values[n / 2 - 1] + (values[n / 2] - values[n / 2 - 1]) / 2;
}

/* Collects the ground samples, in order. Returns their number. */
static unsigned grounds(const struct trial *t, int64_t *ret)
{
        unsigned n = 0;

        for (unsigned i = 0; i < TRIAL_ROUNDS * t->buffers; i++)
                if (t->ground_ns[i])
                        ret[n++] = t->ground_ns[i];
        return n;
}

uint64_t trial_ground_ns(const struct trial *t)
{
        int64_t all[TRIAL_ROUNDS * TRIAL_BUFFERS_MAX];
        unsigned n = grounds(t, all);

        return (uint64_t)median(all, n);
}

/* Returns the median difference between one ground sample and the next. */
static uint64_t noise_ns(const struct trial *t)
{
        int64_t all[TRIAL_ROUNDS * TRIAL_BUFFERS_MAX];
        unsigned n = grounds(t, all);

        for (unsigned i = 0; i + 1 < n; i++)
                all[i] = llabs(all[i + 1] - all[i]);
        return n < 2 ? 0 : (uint64_t)median(all, n - 1);
}

/* *ret: the median of the time that a buffer saved. Returns the number of rounds in which the
 * buffer was tried. */
static unsigned saved_ns(const struct trial *t, unsigned buffer, double *ret)
{
        int64_t saved[TRIAL_ROUNDS];
        unsigned n = 0;

        for (unsigned r = 0; r < TRIAL_ROUNDS; r++) {
                unsigned i = r * t->buffers + buffer;
                int64_t before = t->ground_ns[i], after = 0;

                if (i + 1 < TRIAL_ROUNDS * t->buffers)
                        after = t->ground_ns[i + 1];
                if (!t->with_ns[i] || (!before && !after))
                        continue;
                before = before ? before : after;
                after = after ? after : before;
                saved[n++] = before + (after - before) / 2 - t->with_ns[i];
        }
        *ret = (double)median(saved, n);
        return n;
}

/* The tried buffers of a kind: their number, and the mean and variance of the time that they
 * saved. */
struct kin {
        unsigned count;
        double mean, variance;
};

static struct kin kin_of(const struct trial *t, unsigned buffer)
{
        struct kin k = {0};
        double squares = 0, one;

        for (unsigned i = 0; i < t->buffers; i++)
                if (t->kind[i] == t->kind[buffer] && saved_ns(t, i, &one) > 0) {
                        double from = one - k.mean;

                        k.mean += from / ++k.count;
                        squares += from * (one - k.mean);
                }
        k.variance = k.count > 1 ? squares / (k.count - 1) : 0;
        return k;
}

bool trial_result(const struct trial *t, unsigned buffer, uint64_t *ret_saved_ns,
                  uint64_t *ret_noise_ns)
{
        uint64_t noise = noise_ns(t);
        double saved, square = (double)noise * (double)noise, own = 1;
        unsigned rounds = saved_ns(t, buffer, &saved);
        struct kin k = kin_of(t, buffer);

        if (rounds == 0)
                return false;
        if (k.count > 1) {
                /* If errors were normal, the factor would be 2 for a sample less the mean of two
                 * others. It is 3, because errors of times have longer tails. */
                double by_chance = 3 * square / rounds;

                own = k.variance > by_chance ? 1 - by_chance / k.variance : 0;
        }
        saved = k.mean + own * (saved - k.mean);
        *ret_noise_ns = noise;
        *ret_saved_ns = saved > 0 && saved * saved > square * (own + (1 - own) / k.count)
                                ? (uint64_t)saved
                                : 0;
        return true;
}
