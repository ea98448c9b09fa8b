/* precondition.h: what a function requires of its callers, who are all ours. A breach is a bug of
 * ours, whatever a client or a user does.
 *
 * A build with tests ends there, so that a test shows it. Others log the first breach of each
 * place, and the function returns `result`, an error where it has one. The preload library does
 * not use it: a guest goes on. Thread-safe. */
#pragma once

#include <stdatomic.h>

#include "base/macros.h"

#define PRECONDITION(condition, result)                                                  \
        do {                                                                             \
                if (unlikely(!(condition))) {                                            \
                        static atomic_int told;                                          \
                                                                                         \
                        precondition_broken(#condition, __FILE_NAME__, __LINE__, &told); \
                        return result;                                                   \
                }                                                                        \
        } while (0)

void precondition_broken(const char *condition, const char *file, int line, atomic_int *told);
