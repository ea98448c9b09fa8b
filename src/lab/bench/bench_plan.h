/* bench_plan.h: what sublet bench runs: the mixes, their sizes, the ways to run them, and the rows
 * of its result. Pure: no processes, no files, no clock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_COPIES_MAX  8
#define BENCH_JOBS_MAX    (BENCH_COPIES_MAX + 1)
#define BENCH_REPEATS_MAX 9
#define BENCH_QUANTA_MAX  16
#define BENCH_MIXES_MAX   16
#define BENCH_ROLES       2 /* kinds of programs in one mix */
#define BENCH_TEXT_MAX    96

/* ---- mixes ---- */

enum bench_figure {
        BENCH_NONE,  /* the role is there for the sake of the other one */
        BENCH_TIME,  /* time until the last program of the role has ended */
        BENCH_DELAY, /* delay of each phase on the GPU: the median, the first and the longest */
};

/* One kind of program in a mix. Times are fractions of the duration. */
struct bench_role {
        const char *name;
        enum bench_figure figure;
        unsigned permille;      /* working set, in permille of what a program may use of the card */
        double cpu, pause, gpu; /* gpu 0: a phase is one round */
        unsigned phases;        /* 0: until the mix's other role has ended */
        bool many;              /* as many programs as --jobs says; otherwise one */
        bool server;            /* with --program torch: a large language model */
        int priority;
};

struct bench_mix {
        const char *name, *help;
        bool meet; /* the clock starts when all programs have filled their memory */
        struct bench_role roles[BENCH_ROLES];
};

extern const struct bench_mix bench_mixes[];
extern const size_t bench_mixes_count;

/* Puts the mixes that a list of names chooses into ret, in the list's order. A name chooses the mix
 * of that name, or those that begin with it and '_'. Returns their number; -E2BIG: too many;
 * -EINVAL: a name chooses none, and ret_wrong, of BENCH_TEXT_MAX bytes, gets it. */
int bench_choose_mixes(const char *list, const struct bench_mix *ret[static BENCH_MIXES_MAX],
                       char ret_wrong[static BENCH_TEXT_MAX]);

unsigned bench_role_programs(const struct bench_role *role, unsigned jobs);

/* ---- sizes ---- */

/* Returns the size of a program's working set on a card of this capacity. */
uint64_t bench_role_bytes(const struct bench_role *role, uint64_t capacity);
/* Returns what all programs of a mix need together. */
uint64_t bench_mix_bytes(const struct bench_mix *mix, uint64_t capacity, unsigned jobs);
/* Tells whether all programs of a mix fit the card together. */
bool bench_mix_fits(const struct bench_mix *mix, uint64_t capacity, unsigned jobs);

/* The memory that the programs of a mix may use. */
struct bench_room {
        uint64_t card_bytes;
        uint64_t promised_bytes; /* host memory for what does not fit the card */
        uint64_t pinned_bytes;   /* host memory that all programs may keep: each keeps the most that
                                    it has moved out at a time */
};

/* Returns how much of the card to use, a multiple of 1 MiB: all of it, or what host memory allows
 * for the largest mix. */
uint64_t bench_capacity(const struct bench_mix *const *mixes, size_t n, unsigned jobs,
                        const struct bench_room *room);

/* ---- ways ---- */

enum bench_way {
        BENCH_ALONE,        /* one program, plain driver */
        BENCH_SERIAL,       /* one after the other, plain driver */
        BENCH_ALONE_SUBLET, /* one program under sublet */
        BENCH_PLAIN,        /* together, time slicing of the plain driver */
        BENCH_MANAGED,      /* together, Unified Memory */
        BENCH_SUBLET,       /* together, sublet */
};

/* ---- results ---- */

enum bench_state { BENCH_MEASURED, BENCH_LEFT_OUT, BENCH_FAILED };
enum bench_verdict { BENCH_REFERENCE, BENCH_EQUAL, BENCH_CHECKED, BENCH_DIFFERENT };

#define BENCH_UNKNOWN UINT64_MAX

/* One way to run one mix, and what it gave for one role of the mix. */
struct bench_row {
        const struct bench_mix *mix;
        const struct bench_role *role;
        enum bench_way way;
        const char *quantum; /* the quantum of BENCH_SUBLET; otherwise NULL */
        enum bench_state state;
        char note[BENCH_TEXT_MAX]; /* why there is no figure */
        unsigned n;                /* measurements in each of the arrays */
        double seconds[BENCH_REPEATS_MAX];
        double first[BENCH_REPEATS_MAX], longest[BENCH_REPEATS_MAX]; /* delays of BENCH_DELAY */
        double waiting[BENCH_REPEATS_MAX]; /* part of the programs' time; below 0: unknown */
        uint64_t moved_out[BENCH_REPEATS_MAX], moved_in[BENCH_REPEATS_MAX],
                handoffs[BENCH_REPEATS_MAX]; /* BENCH_UNKNOWN: nobody counted */
        enum bench_verdict verdict;          /* the worst one */
};

/* What one measurement gave for one row. */
struct bench_measurement {
        double seconds, first, longest, waiting;
        uint64_t moved_out, moved_in, handoffs;
        enum bench_verdict verdict;
};

/* Adds a measurement to a row that has fewer than BENCH_REPEATS_MAX. */
void bench_row_add(struct bench_row *row, const struct bench_measurement *m);

/* What is true of all rows. */
struct bench_setting {
        bool simulated, torch;
        char card[96], driver[48], decoder[48];
        char machine[128];
        uint64_t card_bytes, capacity, host_bytes;
        unsigned jobs, repeat, n_quanta;
        const char *quanta[BENCH_QUANTA_MAX];
        double duration; /* seconds */
        uint64_t seed;
        char time[32]; /* when it began, in UTC */
};

double bench_median(const double *values, unsigned n);
double bench_longest(const double *values, unsigned n);
/* BENCH_UNKNOWN if there are no counts, or one of them is unknown. */
uint64_t bench_median_count(const uint64_t *counts, unsigned n);

/* Writes how the row's programs ran: "together, sublet, quantum 2s". Returns buf. */
const char *bench_way_text(const struct bench_row *row, char buf[static BENCH_TEXT_MAX]);
/* Returns the row to compare a row with: one after the other, or alone where there is no such row.
 * NULL: there is none. */
const struct bench_row *bench_compared_with(const struct bench_row *rows, size_t n,
                                            const struct bench_row *row);
/* Tells whether row i is the first of its role. */
bool bench_begins_group(const struct bench_row *rows, size_t i);
