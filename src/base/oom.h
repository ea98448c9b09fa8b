/* oom.h: for a process that the kernel spares when memory runs out. Before it executes another
 * program, it gives this privilege up, because the other program must not be spared. */
#pragma once

#include <fcntl.h>
#include <unistd.h>

/* Never makes it less likely that the kernel ends this process. */
static inline void oom_spare_no_more(void)
{
        const int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
        char first = '\0';

        if (fd < 0)
                return;
        if (read(fd, &first, 1) == 1 && first == '-')
                (void)!pwrite(fd, "0", 1, 0);
        (void)close(fd);
}
