/* standard.h: the descriptors of a program of ours: the standard ones, how many there may be, and
 * what is said on stderr. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed. Otherwise a file or socket
 * of ours, or of the program that we become, would get the number, and what is printed would go
 * there. Call it first in main(). */
static inline void standard_open(void)
{
        int fd;

        while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
                continue;
        if (fd >= 0)
                (void)close(fd);
}

/* Lets the process have so many descriptors, or as many as its hard limit allows. 0 or -errno. */
static inline int standard_allow(unsigned descriptors)
{
        struct rlimit rl;

        if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
                return -errno;
        if (rl.rlim_cur >= descriptors)
                return 0;
        rl.rlim_cur = rl.rlim_max < descriptors ? rl.rlim_max : descriptors;
        return setrlimit(RLIMIT_NOFILE, &rl) < 0 ? -errno : 0;
}

/* Prints "PROGRAM: " and one sentence to stderr, in one piece. */
static inline void standard_say(const char *program, const char *format, va_list args)
{
        char line[2048];

        (void)vsnprintf(line, sizeof(line), format, args);
        (void)fprintf(stderr, "%s: %s\n", program, line);
}
