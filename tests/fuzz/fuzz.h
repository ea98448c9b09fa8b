/* fuzz.h: libFuzzer's entry point, and a check that also works with NDEBUG. A broken check ends the
 * process by a signal, which both libFuzzer and ctest report. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Called with arbitrary bytes, many times in one process. Always returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                  \
        do {                                                                                   \
                if (!(condition)) {                                                            \
                        (void)fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, \
                                      #condition);                                             \
                        abort();                                                               \
                }                                                                              \
        } while (0)
