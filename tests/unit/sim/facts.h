/* facts.h: what programs that ask a driver questions share: one line an answer, and groups of
 * questions that each run in a process of its own, because some leave their context broken. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"
#undef CU

#define MIB ((size_t)1 << 20)

/* The result of a call, on a line of its own. */
#define SAY(call)                                                  \
        do {                                                       \
                CUresult said = (call);                            \
                (void)printf("%s: %s = %d\n", group, #call, said); \
        } while (0)
#define NUMBER(what) ((void)printf("%s: %s = %lld\n", group, #what, (long long)(what)))
#define NEED(call)                                                                    \
        do {                                                                          \
                CUresult needed = (call);                                             \
                if (needed != CUDA_SUCCESS) {                                         \
                        (void)printf("%s: needs %s, got %d\n", group, #call, needed); \
                        exit(1);                                                      \
                }                                                                     \
        } while (0)

extern const char *group;
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
