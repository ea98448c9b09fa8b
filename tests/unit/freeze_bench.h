/* freeze_bench.h: a freezer for the tests of the agent. Whatever the agent does, it looks that a
 * program whose memory is away is not let go, and that one that is paused or stands passes no gate.
 */
#pragma once

#include "agent_bench.h"
#include "preload/freeze/freeze.h"
#include "preload/rm/rm.h"

extern struct freezer {
        enum wire_freeze mode;
        enum wire_freeze allowed; /* by the daemon, as far as it has said */
        bool ready;               /* it has been tested */
        bool begins, confirms;    /* what these answer */
        bool stands;
        bool sure;                  /* ... and calls of the mover's have been seen to end */
        enum channels_owner making; /* whose channels the agent makes now */
        bool again;                 /* the test has to be tried again */
        bool no_mover;              /* none can be made */
        const char *off;
        struct freeze_figures figures;
        unsigned begun, confirmed, ended; /* how often; ended: those that stood */
        unsigned prepared, needed;        /* how often asked for, and for a pause */
        unsigned movers, movers_freed;
        unsigned watched; /* times that the watchdog was set, by the agent */
        void (*while_it_begins)(void), (*while_it_confirms)(void); /* core_lock is not held */
} freezer;

extern struct context context; /* of the program's, on its GPU */

/* As it is before the first context, with all that may be done to it. */
void begin_freezer(enum wire_freeze mode);
/* The program has its turn, a context, and where memory is to be moved, a mover. */
void begin_frozen(enum wire_freeze mode);
/* Some of its memory is away or on its way. */
bool some_is_away(void);
void pause_program(bool paused);
