/* bench_plan.c: owns the table of mixes and all sizes. Must never look at the machine. */
#include "lab/bench/bench_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/sort.h"

/* Permille of the card, from table 12.1 of the thesis (docs/benchmark.md): 7.2 and 15.3 of 16 GB.
 */
#define SMALL 450
#define BIG   956

/* A program gets this much of the capacity: the daemon keeps 5 % for contexts (unevictable_share)
 * and 3 % free. */
#define USABLE_PERCENT 92
/* A page of a card has 2 MiB, and a program has four allocations. */
#define SIZE_STEP (8 * MIB)

#define COPIES(mix_name, share, cpu_part, gpu_part, text)      \
        {                                                      \
                .name = (mix_name), .help = (text), .roles = { \
                        {.name = "all programs",               \
                         .figure = BENCH_TIME,                 \
                         .permille = (share),                  \
                         .cpu = (cpu_part),                    \
                         .gpu = (gpu_part),                    \
                         .phases = 1,                          \
                         .many = true}                         \
                }                                              \
        }

const struct bench_mix bench_mixes[] = {
        COPIES("small_50", SMALL, 0.5, 0.5,
               "45 % of the card each; half on the CPU, half on the GPU"),
        COPIES("small_90", SMALL, 0.1, 0.9,
               "45 % of the card each; 10 % on the CPU, 90 % on the GPU"),
        COPIES("big_50", BIG, 0.5, 0.5, "96 % of the card each; half on the CPU, half on the GPU"),
        COPIES("big_90", BIG, 0.1, 0.9, "96 % of the card each; 10 % on the CPU, 90 % on the GPU"),
        COPIES("grow_20", 200, 0, 0.2, "working sets that grow past the card: 20 % each, GPU only"),
        COPIES("grow_40", 400, 0, 0.2, "40 % each"),
        COPIES("grow_60", 600, 0, 0.2, "60 % each"),
        COPIES("grow_80", 800, 0, 0.2, "80 % each"),
        COPIES("grow_95", 950, 0, 0.2, "95 % each"),
        {.name = "notebooks",
         .help = "notebooks with pauses for thought beside a batch job, 45 % of the card each",
         .meet = true,
         .roles = {{.name = "the batch job",
                    .figure = BENCH_TIME,
                    .permille = SMALL,
                    .gpu = 2,
                    .phases = 1},
                   {.name = "a notebook's cell",
                    .figure = BENCH_DELAY,
                    .permille = SMALL,
                    .pause = 0.2,
                    .gpu = 0.05,
                    .many = true}}},
        {.name = "first_token",
         .help = "a server that idles between requests, beside a batch job that fills the card",
         .meet = true,
         .roles = {{.name = "the first token",
                    .figure = BENCH_DELAY,
                    .permille = 350,
                    .pause = 0.27,
                    .phases = 5,
                    .server = true},
                   {.name = "the batch job", .permille = 1000, .priority = -1}}},
};
const size_t bench_mixes_count = ARRAY_SIZE(bench_mixes);

static bool chooses(const char *name, const char *mix)
{
        const size_t n = strlen(name);

        return n > 0 && strncmp(name, mix, n) == 0 && (mix[n] == 0 || mix[n] == '_');
}

int bench_choose_mixes(const char *list, const struct bench_mix *ret[static BENCH_MIXES_MAX],
                       char ret_wrong[static BENCH_TEXT_MAX])
{
        _cleanup_free_ char *copy = strdup(list);
        char *rest = copy, *name;
        int n = 0;

        while (rest && (name = strsep(&rest, ","))) {
                const int before = n;

                (void)snprintf(ret_wrong, BENCH_TEXT_MAX, "%s", name);
                for (size_t i = 0; i < bench_mixes_count; i++) {
                        if (!chooses(name, bench_mixes[i].name))
                                continue;
                        if (n == BENCH_MIXES_MAX)
                                return -E2BIG;
                        ret[n++] = &bench_mixes[i];
                }
                if (n == before)
                        return -EINVAL;
        }
        return n;
}

unsigned bench_role_programs(const struct bench_role *role, unsigned jobs)
{
        return !role->name ? 0 : role->many ? jobs : 1;
}

uint64_t bench_role_bytes(const struct bench_role *role, uint64_t capacity)
{
        return capacity / 100 * USABLE_PERCENT / 1000 * role->permille & ~(SIZE_STEP - 1);
}

uint64_t bench_mix_bytes(const struct bench_mix *mix, uint64_t capacity, unsigned jobs)
{
        uint64_t bytes = 0;

        for (unsigned i = 0; i < BENCH_ROLES; i++)
                bytes += bench_role_programs(&mix->roles[i], jobs) *
                         bench_role_bytes(&mix->roles[i], capacity);
        return bytes;
}

bool bench_mix_fits(const struct bench_mix *mix, uint64_t capacity, unsigned jobs)
{
        return bench_mix_bytes(mix, capacity, jobs) <= capacity / 100 * USABLE_PERCENT;
}

uint64_t bench_capacity(const struct bench_mix *const *mixes, size_t n, unsigned jobs,
                        const struct bench_room *room)
{
        /* Needs grow in proportion to the card. They are computed for a huge card, where rounding
         * does not matter. */
        const uint64_t whole = 1000 * GIB, usable = whole / 100 * USABLE_PERCENT;
        uint64_t capacity = room->card_bytes;

        for (size_t i = 0; i < n; i++) {
                const uint64_t over = sub_sat(bench_mix_bytes(mixes[i], whole, jobs), usable);
                uint64_t pinned = 0;

                for (unsigned k = 0; k < BENCH_ROLES; k++)
                        pinned += bench_role_programs(&mixes[i]->roles[k], jobs) *
                                  MIN(over, bench_role_bytes(&mixes[i]->roles[k], whole));
                if (!over)
                        continue;
                capacity = MIN(capacity, room->promised_bytes / (over / MIB) * (whole / MIB));
                capacity = MIN(capacity, room->pinned_bytes / (pinned / MIB) * (whole / MIB));
        }
        return capacity & ~(MIB - 1);
}

double bench_median(const double *values, unsigned n)
{
        _cleanup_free_ double *sorted = n ? malloc(n * sizeof(*sorted)) : NULL;

        if (!sorted)
                return 0;
        memcpy(sorted, values, n * sizeof(*sorted));
        sort_doubles(sorted, n);
        return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double bench_longest(const double *values, unsigned n)
{
        double longest = 0;

        for (unsigned i = 0; i < n; i++)
                longest = MAX(longest, values[i]);
        return longest;
}

uint64_t bench_median_count(const uint64_t *counts, unsigned n)
{
        double values[BENCH_REPEATS_MAX];

        for (unsigned i = 0; i < n; i++) {
                if (counts[i] == BENCH_UNKNOWN)
                        return BENCH_UNKNOWN;
                values[i] = (double)counts[i];
        }
        return n ? (uint64_t)bench_median(values, n) : BENCH_UNKNOWN;
}

void bench_row_add(struct bench_row *row, const struct bench_measurement *m)
{
        const unsigned i = row->n++;

        row->seconds[i] = m->seconds;
        row->first[i] = m->first;
        row->longest[i] = m->longest;
        row->waiting[i] = m->waiting;
        row->moved_out[i] = m->moved_out;
        row->moved_in[i] = m->moved_in;
        row->handoffs[i] = m->handoffs;
        row->verdict = MAX(row->verdict, m->verdict);
}

const char *bench_way_text(const struct bench_row *row, char buf[static BENCH_TEXT_MAX])
{
        static const char *const texts[] = {
                [BENCH_ALONE] = "alone, plain driver",
                [BENCH_SERIAL] = "one after the other",
                [BENCH_ALONE_SUBLET] = "alone, sublet",
                [BENCH_PLAIN] = "together, time slicing",
                [BENCH_MANAGED] = "together, Unified Memory",
                [BENCH_SUBLET] = "together, sublet",
        };

        (void)snprintf(buf, BENCH_TEXT_MAX, "%s%s%s%s", texts[row->way], row->quantum ? " (" : "",
                       row->quantum ? row->quantum : "", row->quantum ? ")" : "");
        return buf;
}

const struct bench_row *bench_compared_with(const struct bench_row *rows, size_t n,
                                            const struct bench_row *row)
{
        const struct bench_row *alone = NULL;

        for (size_t i = 0; i < n; i++) {
                if (rows[i].mix != row->mix || rows[i].role != row->role || rows[i].n == 0)
                        continue;
                if (rows[i].way == BENCH_SERIAL)
                        return &rows[i];
                if (rows[i].way == BENCH_ALONE)
                        alone = &rows[i];
        }
        return alone;
}

bool bench_begins_group(const struct bench_row *rows, size_t i)
{
        return i == 0 || rows[i].mix != rows[i - 1].mix || rows[i].role != rows[i - 1].role;
}
