/* session_time.h: CLOCK_MONOTONIC as the kernel tells it, the one clock of all processes of a
 * session.
 *
 * libfaketime gives the processes that it is loaded into another CLOCK_MONOTONIC: it replaces
 * functions of the C library. One such process would reserve the bus for a time that the others
 * reach in years. So times that processes share, and sleeps until them, are system calls. */
#pragma once

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

static inline uint64_t session_now_ns(void)
{
        struct timespec ts;

        (void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline void session_sleep_until(uint64_t ns)
{
        struct timespec ts = {.tv_sec = (time_t)(ns / NSEC_PER_SEC),
                              .tv_nsec = (long)(ns % NSEC_PER_SEC)};

        while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) < 0 &&
               errno == EINTR)
                ;
}
