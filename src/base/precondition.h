/* precondition.h: what a function requires of its callers, who are all ours. A breach is a bug of
 * ours, whatever a client or a user does.
 *
 * In a build with tests a breach ends the process, so that a test fails. Other builds log the first
 * breach at each place, and the function returns `result`, an error where it has one. The preload
 * library does not use this macro, because it must not end the program. Thread-safe. */
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
