/* freeze_bench.h: a fake freezer for the tests of the agent. It checks that the agent never thaws a
 * program with evicted memory, and never opens the gate of a paused or frozen program. */
#pragma once

#include "agent_bench.h"
#include "preload/freeze/freeze.h"
#include "preload/rm/rm.h"

extern struct freezer {
        enum wire_freeze mode;
        enum wire_freeze allowed; /* the daemon's last limit on freezing */
        bool ready;               /* the self-test has passed */
        bool begins, confirms;    /* results of freeze_begin() and freeze_confirm() */
        bool stands;
        bool sure;                  /* freeze_confirm() has succeeded since freeze_begin() */
        enum channels_owner making; /* owner of the channels that the agent makes now */
        bool again;                 /* the self-test has to be repeated */
        bool no_mover;              /* a mover cannot be made */
        const char *off;
        struct freeze_figures figures;
        unsigned begun, confirmed, ended; /* ended: thaws of a program that was frozen */
        unsigned prepared, needed;        /* calls of freeze_prepare(); those with needed set */
        unsigned movers, movers_freed;
        unsigned watched; /* times that the agent set the watchdog */
        void (*while_it_begins)(void), (*while_it_confirms)(void); /* called without core_lock */
} freezer;

extern struct context context; /* the program's context on the GPU */

/* Begins before the first context, with freezing fully allowed. */
void begin_freezer(enum wire_freeze mode);
/* Begins with a program that has its turn, a context, and, in mode MOVE, a mover. */
void begin_frozen(enum wire_freeze mode);
/* True if some memory of the program is evicted or moving. */
bool some_is_away(void);
void pause_program(bool paused);
