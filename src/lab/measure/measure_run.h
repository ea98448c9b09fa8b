/* measure_run.h: one run of the program that `sublet measure` describes: its process, and the
 * measured time.
 *
 * Functions that wait return when the time is over, or when the program has ended. SIGINT, SIGTERM
 * and SIGHUP reach the program. One thread, one run at a time. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/launch/launch.h"
#include "lab/measure/card.h"
#include "job/pages.h"
#include "lab/measure/report.h"

enum measure_stage {
        MEASURE_WAITS,  /* the program has launched nothing */
        MEASURE_WARMS,  /* the warm-up is not over */
        MEASURE_WINDOW, /* the measured time */
        MEASURE_OVER,   /* all was seen */
};

struct measure_run {
        /* The caller sets these members, up to gpu. */
        const struct launch *launch;
        char **command;
        uint64_t steps;      /* 0: only the time counts */
        uint64_t seconds_ns; /* 0: only the steps count */
        uint64_t warm_up_ns;
        uint64_t patience_ns; /* how long to wait for the first kernel; 0: as long as it takes */
        struct card *card;    /* NULL: no card is watched; measure_run_clear() closes it */
        const char *mps; /* the directory of a control daemon, whose server gives the program half
                            of the SMs; NULL: no MPS */
        const char *gpu; /* with mps: its GPU's UUID */

        char folder[64]; /* folder of the library's files */
        pid_t pid;
        int status;
        bool ended;  /* the program, as waitpid() says */
        bool lasted; /* the figures are of all it did, because it ended before it was warm */
        int signal;  /* the last signal that came; 0: none */
        uint64_t started_ns;
        bool card_chosen, crowd_said;
        enum measure_stage stage;
        struct pages first, begin, end; /* first: before anything was seen */
        uint64_t begin_ns, end_ns;
        double cpu_begin, cpu_now; /* processor time, in s, of the process that submits most; NAN:
                                      not known */
        unsigned restarts, ticks;
};

/* Starts the program. CLI_OK, or an exit status after a message. */
int measure_run_start(struct measure_run *r);
/* Waits until the measured time is over. A run under MPS also ends when a signal comes. */
void measure_run_watch(struct measure_run *r);
/* Begins the measured time again, and waits until it is over. The program must run. */
void measure_run_again(struct measure_run *r);
/* If a program ended early and the measured time was too short, makes the figures cover all that
 * was seen, and says so. Something must have been seen. */
void measure_run_widen(struct measure_run *r);
/* Returns what was seen in the measured time; 0 s: too little to say anything. */
struct report_seen measure_run_seen(const struct measure_run *r);
/* Waits until the program has ended by itself. */
void measure_run_wait(struct measure_run *r);
/* Ends the program, at last by SIGKILL. */
void measure_run_end(struct measure_run *r);
/* Returns the exit status of the ended program, as a shell shows it. */
int measure_run_status(const struct measure_run *r);
/* Returns when the first kernel was launched; UINT64_MAX: none was. */
uint64_t measure_run_first_ns(const struct measure_run *r);
/* Returns the signal that no run has seen yet; 0: there is none. */
int measure_run_signalled(void);
void measure_run_clear(struct measure_run *r);
