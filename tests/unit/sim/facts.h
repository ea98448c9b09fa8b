/* facts.h: runs groups of questions to a driver, for the programs named *_facts. Each group runs in
 * a process of its own, because some groups leave their context broken. */
#pragma once

#include "answers.h"

extern CUcontext context; /* the primary context, set by begin() */

/* Kernels that take a pointer p: store sets *p to 1, wait_flag spins until *p != 0. */
extern CUfunction store, wait_flag;
extern const char facts_ptx[];

/* Makes the primary context current and loads both kernels. */
void begin(void);
CUresult run(CUfunction f, CUdeviceptr p, CUstream s);

/* One group of questions. A list of groups ends with a NULL name. */
struct facts {
        const char *name;
        void (*ask)(void);
};

/* Runs all groups, or the one that argv names. */
int facts_main(int argc, char *argv[], const struct facts *const lists[]);
