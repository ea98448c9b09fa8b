/* freeze.h: what the fake freezer answers, and what it was asked. */
#pragma once

#include "preload/freeze/freeze.h"
#include "preload/rm/rm.h"

extern struct freezer {
        enum wire_freeze mode;
        enum wire_freeze allowed; /* the daemon's last limit on freezing */
        bool ready;               /* the self-test has passed */
        bool shared;              /* and RM counts */
        bool hand_ready;          /* the hand may act */
        int offered[2];           /* the page and socket of the hand */
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

/* Calls of rm_thaw(). */
extern _Atomic unsigned rm_thaws;
/* Defined by tests with heaps: true if some memory of the program is evicted or moving, so that
 * the program must not be thawed. */
bool some_is_away(void);
