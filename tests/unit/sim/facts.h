/* facts.h: what programs that ask a driver questions share: one line an answer, and groups of
 * questions that each run in a process of its own, because some leave their context broken. */
#pragma once

#include "answers.h"

extern CUcontext context; /* the primary one, from begin() on */

/* store: *p = 1. wait_flag: until *p != 0. They take a pointer. */
extern CUfunction store, wait_flag;
extern const char facts_ptx[];

/* A context and its two functions. */
void begin(void);
CUresult run(CUfunction f, CUdeviceptr p, CUstream s);

/* A list ends with a NULL name. */
struct facts {
        const char *name;
        void (*ask)(void);
};

/* All groups, or the one that is named. */
int facts_main(int argc, char *argv[], const struct facts *const lists[]);
