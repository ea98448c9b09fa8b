/* demo.h: the parts of the demonstration: the card, one row's two programs, what is shown of them.
 */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/paths.h"

#define DEMO_JOBS    2
#define DEMO_UNKNOWN UINT64_MAX /* a figure that is not known; shown as N/A */

/* ---- where it happens ---- */

struct demo_stage {
        int simulated;
        char card[96]; /* the card's own name */
        uint64_t card_bytes;
        uint64_t job_bytes;   /* size of each of the two programs that do not fit together */
        uint64_t small_bytes; /* size of each of the two that do */
        double seconds;       /* how long a program runs alone, roughly */
        const char *quantum;
        char folder[PATHS_DIR_MAX]; /* the daemons' directories lie in it; removed at the end */
        char sim_folder[PATH_MAX];
        char session[32];       /* of the simulated card */
        struct demo_nvml *nvml; /* NULL without */
};

/* The card's memory in use by anybody, as the driver's NVML says; DEMO_UNKNOWN. */
int demo_nvml_open(const char *folder, const char *pci_bus_id, struct demo_nvml **ret);
uint64_t demo_nvml_used(struct demo_nvml *nvml);
void demo_nvml_close(struct demo_nvml *nvml);

/* Bytes copied to and from the card since the session began, from the simulated driver's counters.
 * 0 or -errno. */
int demo_moved(const struct demo_stage *stage, uint64_t *ret_to_card, uint64_t *ret_to_host);

/* ---- one row ---- */

enum demo_outcome { DEMO_RUNNING, DEMO_COMPLETED, DEMO_NO_MEMORY, DEMO_FAILED };

struct demo_row {
        const char *title;
        uint64_t bytes;  /* of each program */
        uint64_t rounds; /* 0: as many as fit stage->seconds; the second program does the same
                            number */
        int one_after_the_other;
        int shared;      /* under sublet */
        int managed;     /* their memory is Unified Memory */
        int meet;        /* rounds begin when both have filled their memory or ended */
        int left_out;    /* not for this card: neither run nor shown */
        int kill_daemon; /* kill -9 the daemon's worker half-way */
};

struct demo_job {
        pid_t pid;
        int fd;    /* its output; -EBADF after its end */
        int begin; /* closing this pipe starts the rounds */
        int filled;
        char line[256];
        size_t line_used;
        enum demo_outcome outcome;
        uint64_t allocated, round, rounds, mismatches;
        char digest[24], trouble[96];
        /* The last status's figures; DEMO_UNKNOWN. */
        char state[24];
        uint64_t backed, evicted, moved_out, moved_in;
};

struct demo_result {
        struct demo_job jobs[DEMO_JOBS];
        double seconds;
        uint64_t to_card, to_host; /* DEMO_UNKNOWN */
        int counted_by_clients;    /* moved by sublet, not by the driver: at least so much */
        uint64_t handoffs;
        int daemon_killed; /* killed half-way, and the next worker has answered */
};

/* Runs the two programs to their end. CLI_OK, or an exit status after a message. */
int demo_run(const struct demo_stage *stage, const struct demo_row *row, struct demo_result *ret);
/* Ctrl-C was pressed: demo_run has ended its programs. */
int demo_interrupted(void);
void demo_catch_interrupt(void);

/* ---- what is shown ---- */

struct demo_screen {
        int terminal; /* printed lines may be overwritten */
        int drawn;    /* so many printed lines are above the cursor */
        double said;  /* when the last line was printed; without a terminal */
        const char *title;
};

void demo_screen_begin(struct demo_screen *screen, const struct demo_row *row,
                       const struct demo_stage *stage);
void demo_screen_draw(struct demo_screen *screen, const struct demo_stage *stage,
                      const struct demo_row *row, const struct demo_result *now, uint64_t card_used,
                      double seconds);
void demo_screen_end(struct demo_screen *screen, const struct demo_result *result);

/* Print the table at the end. references[i]: the row whose results row i must equal, or -1. */
void demo_print_table(const struct demo_stage *stage, const struct demo_row *rows,
                      const struct demo_result *results, const int *references, unsigned n);
/* Whether the results of two rows are bit-identical for every program that completed. */
int demo_same_results(const struct demo_result *a, const struct demo_result *b);
