/* kernels_draw.c: owns the synthetic jobs beyond the table: a sequence that spreads over all
 * parameters, and the names from which such jobs are made again. The same name must always make the
 * same job: data files have the names. */
#include "lab/pairs/kernels.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/splitmix.h"

#define MIX_EVERY   7       /* every so many jobs, one is a sequence of kernels */
#define MIX_FIRST   1000000 /* where in the sequence the kernels of the mixes begin */
#define US_LEAST    20
#define US_MOST     5000
#define WAVES_MOST  20
#define FOOTPRINT   (1024 * KIB_OF_MIB) /* KiB; the greatest footprint */
#define NUMBER_MOST 9999999

/* The sequence is Halton's. Each parameter has a prime base; digits are multiplied, because plain
 * sequences of large bases are alike (Chi, Mascagni, Warnock 2005). The base of FAMILY is the
 * number of families, so each family comes once in so many jobs. */
enum dimension { GRID, LENGTH, INTENSITY, BLOCKS, FAMILY, FOOT, GAP, THREADS, VALUES, DIMENSIONS };
static const struct {
        unsigned base, factor;
} halton[DIMENSIONS] = {
        [GRID] = {2, 1},   [LENGTH] = {3, 2},    [INTENSITY] = {5, 2},
        [BLOCKS] = {7, 5}, [FAMILY] = {11, 3},   [FOOT] = {13, 7},
        [GAP] = {17, 3},   [THREADS] = {19, 10}, [VALUES] = {23, 18},
};
_Static_assert(KERNEL_FAMILIES_COUNT == 11, "the base of FAMILY is the number of families");

/* Bounds of the parameters that are sensible in a family. */
static const struct {
        unsigned intensity; /* the greatest intensity; 0: no arithmetic beside memory */
        unsigned footprint_least, footprint_most; /* KiB, of families that always use memory */
        unsigned values;                          /* the greatest number of values */
} limits[KERNEL_FAMILIES_COUNT] = {
        [KERNEL_FP32] = {256, 0, 0, 64},
        [KERNEL_FP64] = {128, 0, 0, 32},
        [KERNEL_FP16] = {256, 0, 0, 64},
        [KERNEL_INTEGER] = {256, 0, 0, 64},
        [KERNEL_SPECIAL] = {128, 0, 0, 64},
        [KERNEL_TENSOR] = {64, 0, 0, 16},
        [KERNEL_READ] = {0, 512, FOOTPRINT, 8},
        [KERNEL_UPDATE] = {0, 512, FOOTPRINT, 8},
        [KERNEL_SHARED] = {0, 0, 0, 8},
        [KERNEL_GATHER] = {0, 512, FOOTPRINT, 8},
        [KERNEL_ATOMIC] = {0, 4, 64 * KIB_OF_MIB, 8},
};

/* ---- numbers ---- */

/* Returns a number in [0, 1) that the seed determines. */
static double shift(uint64_t seed, unsigned dimension)
{
        const uint64_t x = splitmix((seed * DIMENSIONS + dimension + 1) * SPLITMIX_STEP);

        return (double)(x >> 11) / 9007199254740992.0;
}

static double draw(uint64_t seed, unsigned i, enum dimension d)
{
        const unsigned base = halton[d].base;
        double part = 1, sum = shift(seed, d);

        for (; i > 0; i /= base) {
                part /= base;
                sum += part * (i % base * halton[d].factor % base);
        }
        return sum - floor(sum);
}

/* Picks one of n things by u, which is in [0, 1). */
static size_t pick(double u, size_t n)
{
        return MIN((size_t)(u * (double)n), n - 1);
}

/* Returns a number from least to most, spread evenly in its logarithm. */
static double between(double u, double least, double most)
{
        return least * exp(u * log(most / least));
}

/* Maps u, which is in [from, to), to [0, 1). */
static double within(double u, double from, double to)
{
        return MIN(MAX((u - from) / (to - from), 0.0), 0.999999);
}

static unsigned round_to_two_digits(double n)
{
        const double unit = pow(10, MAX(floor(log10(n)) - 1, 0));

        return (unsigned)(round(n / unit) * unit);
}

static unsigned footprint(double u, double least, double most)
{
        const double kib = between(u, least, most);

        return kib >= KIB_OF_MIB ? (unsigned)round(kib / KIB_OF_MIB) * KIB_OF_MIB
                                 : MAX((unsigned)round(kib / 4) * 4, 4U);
}

/* ---- a kernel ---- */

/* Returns how many registers one value takes. */
static unsigned registers_of(enum kernel_family family)
{
        return family == KERNEL_TENSOR ? 4 : family == KERNEL_FP64 ? 2 : 1;
}

/* About a third of the kernels leave a good part of the card free: their grid is small, or shared
 * memory bounds their blocks, or the host pauses. */
static void draw_room(uint64_t seed, unsigned i, struct kernel_job *k)
{
        const double grid = draw(seed, i, GRID), blocks = draw(seed, i, BLOCKS),
                     gap = draw(seed, i, GAP);

        if (grid < 0.2)
                k->grid = -(int)(5 * round(1 + within(grid, 0, 0.2) * 17)); /* 5 to 90 % */
        else
                k->grid = (int)round(between(within(grid, 0.2, 1), 1, WAVES_MOST));
        if (blocks < 0.35) {
                static const double parts[] = {0.125, 0.25, 0.5, 0.75};
                const double part = parts[pick(within(blocks, 0, 0.35), ARRAY_SIZE(parts))];

                k->blocks_per_sm = MAX((unsigned)(part * SM_THREADS / k->threads), 1U);
        }
        if (gap < 0.2)
                k->gap = (unsigned)(5 * round(2 + within(gap, 0, 0.2) * 10)); /* 10 to 60 % */
}

void kernel_draw(uint64_t seed, unsigned i, struct kernel_job *ret)
{
        static const unsigned threads[] = {64, 128, 256, 256, 512, 1024};
        static const unsigned values[] = {2, 4, 8, 8, 16, 32, 64};
        struct kernel_job k = {.drawn = true};
        const double intensity = draw(seed, i, INTENSITY), size = draw(seed, i, FOOT);

        k.family = (enum kernel_family)pick(draw(seed, i, FAMILY), KERNEL_FAMILIES_COUNT);
        k.threads = threads[pick(draw(seed, i, THREADS), ARRAY_SIZE(threads))];
        k.values = values[pick(draw(seed, i, VALUES), ARRAY_SIZE(values))];
        /* A block of many threads has fewer registers for each. */
        k.values = MIN(MIN(k.values, limits[k.family].values),
                       16384 / k.threads / registers_of(k.family));
        if (limits[k.family].footprint_most) {
                k.footprint_kib = footprint(size, limits[k.family].footprint_least,
                                            limits[k.family].footprint_most);
        } else if (limits[k.family].intensity && intensity < 0.6) {
                k.intensity = (unsigned)round(
                        between(within(intensity, 0, 0.6), 1, limits[k.family].intensity));
                k.footprint_kib = footprint(size, KIB_OF_MIB, FOOTPRINT);
        }
        draw_room(seed, i, &k);
        k.us = round_to_two_digits(between(draw(seed, i, LENGTH), US_LEAST, US_MOST));
        *ret = k;
}

static void mix(uint64_t seed, unsigned i, unsigned n, struct kernel_step *ret)
{
        *ret = (struct kernel_step){.n = n};
        for (unsigned k = 0; k < n; k++) {
                /* Each part has a sequence of its own: neighbours in one sequence are always
                 * unlike. */
                kernel_draw(seed * KERNEL_PARTS_MAX + k, MIX_FIRST + i, &ret->kernels[k]);
                ret->kernels[k].us = MAX(ret->kernels[k].us / n, (unsigned)US_LEAST);
                if (k > 0)
                        ret->kernels[k].gap = 0; /* the host pauses once in a step */
        }
}

void kernel_draw_name(uint64_t seed, unsigned i, char buf[static KERNEL_NAME_MAX],
                      const char **ret_family)
{
        struct kernel_job k;

        if (i % MIX_EVERY == MIX_EVERY - 1) {
                (void)snprintf(buf, KERNEL_NAME_MAX, "mix%u-s%" PRIu64 "-n%u",
                               2 + i / MIX_EVERY % (KERNEL_PARTS_MAX - 1), seed, i);
                *ret_family = "mix";
                return;
        }
        kernel_draw(seed, i, &k);
        kernel_name(&k, buf);
        *ret_family = kernel_family_name(k.family);
}

const char *kernel_step_family(const struct kernel_step *step)
{
        return step->n > 1 ? "mix" : kernel_family_name(step->kernels[0].family);
}

/* ---- from a name ---- */

/* Takes one part of a name. False: there is no such part. */
static bool take_part(const char *part, struct kernel_job *k)
{
        const size_t letters = strcspn(part, "0123456789");
        char *unit;
        const unsigned long number = strtoul(part + letters, &unit, 10);
        const unsigned n = (unsigned)MIN(number, (unsigned long)NUMBER_MOST);

        if (letters == 0 && strcmp(unit, "us") == 0)
                k->us = n;
        else if (part[0] == 'f' && letters == 1 && strcmp(unit, "m") == 0)
                k->footprint_kib = n * KIB_OF_MIB;
        else if (part[0] == 'f' && letters == 1 && strcmp(unit, "k") == 0)
                k->footprint_kib = n;
        else if (*unit)
                return false;
        else if (strncmp(part, "waves", letters) == 0 && letters == 5)
                k->grid = (int)n;
        else if (strncmp(part, "part", letters) == 0 && letters == 4)
                k->grid = -(int)n;
        else if (strncmp(part, "gap", letters) == 0 && letters == 3)
                k->gap = n;
        else if (letters != 1)
                return false;
        else if (part[0] == 'i')
                k->intensity = n;
        else if (part[0] == 't')
                k->threads = n;
        else if (part[0] == 'v')
                k->values = n;
        else if (part[0] == 'b')
                k->blocks_per_sm = n;
        else
                return false;
        return true;
}

static bool is_sensible(const struct kernel_job *k)
{
        return k->threads >= 32 && k->threads <= 1024 && k->threads % 32 == 0 && k->values >= 2 &&
               k->values <= limits[k->family].values &&
               k->intensity <= limits[k->family].intensity && k->footprint_kib <= FOOTPRINT &&
               k->grid != 0 && k->grid >= -100 && k->grid <= 1000 && k->us > 0 && k->gap < 100 &&
               (k->intensity == 0 || k->footprint_kib > 0) &&
               (limits[k->family].footprint_most == 0 || k->footprint_kib > 0);
}

static int find_kernel(const char *name, struct kernel_job *ret)
{
        struct kernel_job k = {.drawn = true, .family = KERNEL_FAMILIES_COUNT};
        char copy[KERNEL_NAME_MAX], *part, *next = NULL;

        (void)snprintf(copy, sizeof(copy), "%s", name);
        part = strtok_r(copy, "-", &next);
        for (unsigned f = 0; part && f < KERNEL_FAMILIES_COUNT; f++)
                if (strcmp(part, kernel_family_name((enum kernel_family)f)) == 0)
                        k.family = (enum kernel_family)f;
        if (k.family == KERNEL_FAMILIES_COUNT)
                return -ENOENT;
        while ((part = strtok_r(NULL, "-", &next)))
                if (!take_part(part, &k))
                        return -ENOENT;
        if (!is_sensible(&k))
                return -ENOENT;
        kernel_name(&k, copy);
        if (strcmp(copy, name) != 0) /* each job has one name */
                return -ENOENT;
        *ret = k;
        return 0;
}

/* Does what kernel_find() does, for jobs beyond the table. */
static int find_drawn(const char *name, struct kernel_step *ret)
{
        char again[KERNEL_NAME_MAX];
        uint64_t seed;
        unsigned n, i;

        if (sscanf(name, "mix%u-s%" SCNu64 "-n%u", &n, &seed, &i) == 3) {
                (void)snprintf(again, sizeof(again), "mix%u-s%" PRIu64 "-n%u", n, seed, i);
                if (n < 2 || n > KERNEL_PARTS_MAX || i > NUMBER_MOST || strcmp(again, name) != 0)
                        return -ENOENT;
                mix(seed, i, n, ret);
                return 0;
        }
        *ret = (struct kernel_step){.n = 1};
        return find_kernel(name, &ret->kernels[0]);
}

int kernel_find(const char *name, struct kernel_step *ret)
{
        for (size_t i = 0; i < kernel_jobs_count; i++) {
                char own[KERNEL_NAME_MAX];

                kernel_name(&kernel_jobs[i], own);
                if (strcmp(own, name) == 0) {
                        *ret = (struct kernel_step){.n = 1, .kernels = {kernel_jobs[i]}};
                        return 0;
                }
        }
        return find_drawn(name, ret);
}
