/* facts.h: what programs that ask a driver questions share: one answer on each line, and groups of
 * questions. Each group runs in its own process, because some leave their context broken. */
#pragma once

#include "answers.h"

extern CUcontext context; /* the primary context, set by begin() */

/* Both take a pointer p. store: *p = 1. wait_flag: spins until *p != 0. */
extern CUfunction store, wait_flag;
extern const char facts_ptx[];

/* Makes the context and loads both functions. */
void begin(void);
CUresult run(CUfunction f, CUdeviceptr p, CUstream s);

/* A list ends with a NULL name. */
struct facts {
        const char *name;
        void (*ask)(void);
};

/* Runs all groups, or the one that is named. */
int facts_main(int argc, char *argv[], const struct facts *const lists[]);
