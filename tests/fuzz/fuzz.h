/* fuzz.h: what every fuzz target includes: libFuzzer's entry point, and a check that survives
 * NDEBUG. A broken check ends the process by a signal: libFuzzer and ctest both call that a
 * finding. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Called with any bytes at all, many times in one process. Always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                  \
        do {                                                                                   \
                if (!(condition)) {                                                            \
                        (void)fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, \
                                      #condition);                                             \
                        abort();                                                               \
                }                                                                              \
        } while (0)
