/* freeze_bench.h: a freezer for the tests of the agent. It checks that the agent never thaws a
 * program whose memory is away, and that no paused or frozen program passes the gate. */
#pragma once

#include "agent_bench.h"
#include "preload/freeze/freeze.h"
#include "preload/rm/rm.h"

extern struct freezer {
        enum wire_freeze mode;
        enum wire_freeze allowed; /* by the daemon's last order */
        bool ready;               /* it has been tested */
        bool begins, confirms;    /* what these answer */
        bool stands;
        bool sure;                  /* ... and calls of the mover's were seen to end */
        enum channels_owner making; /* whose channels the agent makes now */
        bool again;                 /* the self-test has to be repeated */
        bool no_mover;              /* none can be made */
        const char *off;
        struct freeze_figures figures;
        unsigned begun, confirmed, ended; /* how often; ended: only those in which it was frozen */
        unsigned prepared, needed;        /* how often asked for, and how often for a pause */
        unsigned movers, movers_freed;
        unsigned watched; /* how often the agent set the watchdog */
        void (*while_it_begins)(void), (*while_it_confirms)(void); /* core_lock is not held */
} freezer;

extern struct context context; /* the program's work on its GPU */

/* The state before the first context, with freezing fully allowed. */
void begin_freezer(enum wire_freeze mode);
/* The program has its turn, a context, and, if memory is to be moved, a mover. */
void begin_frozen(enum wire_freeze mode);
/* Some of its memory is away or on its way. */
bool some_is_away(void);
void pause_program(bool paused);
