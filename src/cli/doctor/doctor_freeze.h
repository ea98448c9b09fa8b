/* doctor_freeze.h: can programs be frozen here? A process of its own tests that with libsublet.so
 * in it; it joins no daemon and starts none. */
#pragma once

#include "base/freeze_known.h"
#include "cli/doctor/doctor_driver.h"

enum freeze_stage {
        FREEZE_NOT_ASKED,  /* the process ended before, or the GPU was not in the set */
        FREEZE_TRYING,     /* it ended meanwhile */
        FREEZE_NO_CONTEXT, /* no context: result is the driver's error */
        FREEZE_ANSWERED,   /* result is the library's, 0 or -errno */
};

struct freeze_tried {
        enum freeze_stage stage;
        int result;
        char name[64]; /* name of the driver's error */
        struct freeze_answer answer;
};

struct freeze_report {
        int hung, signal; /* the process was killed after the time limit; it died of this signal */
        struct freeze_tried gpus[DRIVER_GPUS_MAX];
};

/* Test the GPUs of the set, 1 << ordinal. library: libsublet.so; folder: of the driver's libraries,
 * NULL for the usual search. 0 or -errno. */
int freeze_ask(const char *library, const char *folder, unsigned gpus, struct freeze_report *ret);

/* The entry of that process, `sublet doctor --try-freezing DESCRIPTOR GPUS`. -1: other arguments;
 * otherwise it does not return. */
int freeze_try(int argc, char **argv);
