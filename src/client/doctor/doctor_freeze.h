/* doctor_freeze.h: can programs be frozen here? A process with libsublet.so tests it; that process
 * joins no daemon and starts none. */
#pragma once

#include "base/freeze_known.h"
#include "client/driver/driver_ask.h"

enum freeze_stage {
        FREEZE_NOT_ASKED,  /* the process ended before this test, or the GPU was not in the set */
        FREEZE_TRYING,     /* the process ended during the test */
        FREEZE_NO_CONTEXT, /* no context could be made: result is the driver's error */
        FREEZE_ANSWERED,   /* the library answered: result is 0 or -errno */
};

struct freeze_tried {
        enum freeze_stage stage;
        int result;
        char name[64]; /* name of the driver's error */
        struct freeze_answer answer;
};

struct freeze_report {
        int hung;   /* true if the process was killed after the time limit */
        int signal; /* the signal that ended the process; 0: none */
        struct freeze_tried gpus[DRIVER_GPUS_MAX];
};

/* Tests the GPUs of a set, which has a bit 1 << ordinal for each. library: path of libsublet.so;
 * folder: where the driver's libraries are; NULL: the usual search. 0 or -errno. */
int freeze_ask(const char *library, const char *folder, unsigned gpus, struct freeze_report *ret);

/* Runs the testing process, `sublet doctor --try-freezing DESCRIPTOR GPUS`. Returns -1 for other
 * arguments; otherwise it does not return. */
int freeze_try(int argc, char **argv);
