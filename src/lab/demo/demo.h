/* demo.h: the parts of the demonstration: the card, a row, and the display. A row is one run of two
 * programs, and a row of the table at the end. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/daemon_paths.h"
#include "lab/common/lab.h"
#include "lab/common/lab_card.h"

#define DEMO_JOBS    2
#define DEMO_UNKNOWN UINT64_MAX /* a figure that is not known; shown as N/A */

/* ---- the card ---- */

struct demo_stage {
        int simulated;
        char card[96]; /* name of the card */
        uint64_t card_bytes;
        uint64_t job_bytes; /* size of each of the two programs */
        unsigned phases;    /* times that a program pauses and computes */
        double seconds;     /* length of a pause; a program alone computes about half as long */
        char folder[PATHS_DIR_MAX]; /* contains the daemons' directories; removed at the end */
        char sim_folder[PATH_MAX];
        char session[LAB_SESSION_MAX]; /* names the simulated card */
        struct demo_nvml *nvml;        /* NULL: there is no NVML */
};

/* NVML's figure of the card's memory that all processes together use. demo_nvml_used() returns
 * DEMO_UNKNOWN if NVML gives no figure. */
int demo_nvml_open(const char *folder, const char *pci_bus_id, struct demo_nvml **ret);
uint64_t demo_nvml_used(struct demo_nvml *nvml);
void demo_nvml_close(struct demo_nvml *nvml);

/* Reads from the simulated driver's counters how many bytes were copied to and from the card since
 * the session began. A GPU's driver does not tell. 0; -ENOENT: session is ""; another -errno. */
int demo_moved(const char *session, uint64_t *ret_to_card, uint64_t *ret_to_host);

/* ---- one row ---- */

enum demo_outcome { DEMO_RUNNING, DEMO_COMPLETED, DEMO_NO_MEMORY, DEMO_FAILED };

struct demo_row {
        const char *title;
        uint64_t rounds; /* of each program in each phase; 0: the first program finds out how many
                            fit half of stage->seconds, and the second one repeats that number */
        int one_after_the_other;
        int shared;      /* the programs run under sublet */
        int kill_daemon; /* kill -9 the daemon's worker half-way */
};

struct demo_job {
        struct lab_program program;
        enum demo_outcome outcome;
        int pauses; /* the program is in a pause */
        uint64_t allocated, round, rounds, mismatches;
        char digest[24], trouble[96];
        /* Figures of the last status; DEMO_UNKNOWN: no status has shown them yet. */
        char state[24];
        uint64_t backed, evicted, moved_out, moved_in;
};

struct demo_result {
        struct demo_job jobs[DEMO_JOBS];
        double seconds;
        uint64_t to_card, to_host; /* copied bytes; DEMO_UNKNOWN: not known */
        int counted_by_clients;    /* the copied bytes are the clients' figures, not the driver's: a
                                      lower bound */
        uint64_t handoffs;
        int daemon_killed; /* the worker was killed half-way, and the next one has answered */
};

/* Runs the two programs of a row to their end, or until Ctrl-C. CLI_OK, or an exit status after a
 * message. */
int demo_run(const struct demo_stage *stage, const struct demo_row *row, struct demo_result *ret);

/* ---- the display ---- */

struct demo_screen {
        int terminal; /* printed lines may be overwritten */
        int drawn;    /* printed lines above the cursor that belong to the picture */
        double said;  /* time of the last line, for output that is no terminal */
};

void demo_screen_begin(struct demo_screen *screen, const struct demo_row *row);
void demo_screen_draw(struct demo_screen *screen, const struct demo_stage *stage,
                      const struct demo_row *row, const struct demo_result *now, uint64_t card_used,
                      double seconds);
void demo_screen_end(struct demo_screen *screen, const struct demo_result *result);

/* Prints the table at the end. The results of all rows must equal those of the first. */
void demo_print_table(const struct demo_row *rows, const struct demo_result *results, unsigned n);
/* True if the results of two rows are bit-identical for every program that completed in both. */
int demo_same_results(const struct demo_result *a, const struct demo_result *b);
