/* answers.h: programs that ask a driver questions print the answers with this, one on each line. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

#define MIB ((size_t)1 << 20)

/* Prints the result of a call on a line of its own. */
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

extern const char *group; /* name of the group of questions; each line begins with it */
