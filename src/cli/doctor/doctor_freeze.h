/* doctor_freeze.h: can programs be frozen here? Tried out in a process of its own with libsublet.so
 * in it, which joins no daemon and starts none. */
#pragma once

#include "base/freeze_known.h"
#include "cli/doctor/doctor_driver.h"

enum freeze_stage {
        FREEZE_NOT_ASKED,  /* the process ended before, or that GPU was not to be asked */
        FREEZE_TRYING,     /* it ended meanwhile */
        FREEZE_NO_CONTEXT, /* none could be made: result is the driver's */
        FREEZE_ANSWERED,   /* result is the library's, 0 or -errno */
};

struct freeze_tried {
        enum freeze_stage stage;
        int result;
        char name[64]; /* of the driver's result */
        struct freeze_answer answer;
};

struct freeze_report {
        int hung, signal; /* the process was killed after the time limit; it died of this signal */
        struct freeze_tried gpus[DRIVER_GPUS_MAX];
};

/* On the GPUs of the set, 1 << ordinal. library: libsublet.so; folder: where the driver is, NULL
 * for the usual search. 0 or -errno. */
int freeze_ask(const char *library, const char *folder, unsigned gpus, struct freeze_report *ret);

/* `sublet doctor --try-freezing DESCRIPTOR GPUS` is that process. -1: these are not its words;
 * otherwise it does not return. */
int freeze_try(int argc, char **argv);
