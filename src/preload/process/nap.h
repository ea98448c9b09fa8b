/* nap.h: waits for a time. nanosleep(3) is a cancellation point: a cancelled thread would end in
 * it. */
#pragma once

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Returns 0; or -1 if a signal ended the wait. */
static inline int nap(uint64_t ns)
{
        const struct timespec time = {.tv_sec = (time_t)(ns / NSEC_PER_SEC),
                                      .tv_nsec = (long)(ns % NSEC_PER_SEC)};

        return (int)syscall(SYS_nanosleep, &time, NULL);
}
