/* clock.h: CLOCK_MONOTONIC in nanoseconds, the clock of the whole product. */
#pragma once

#include <stdint.h>
#include <time.h>

#define NSEC_PER_USEC UINT64_C(1000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC  UINT64_C(1000000000)

static inline uint64_t clock_now_ns(void)
{
        struct timespec ts;

        (void)clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline double clock_since_s(uint64_t begun_ns)
{
        return (double)(clock_now_ns() - begun_ns) / (double)NSEC_PER_SEC;
}
