/* standard.h: the standard descriptors of a program of ours. */
#pragma once

#include <fcntl.h>
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
