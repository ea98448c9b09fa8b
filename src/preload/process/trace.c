/* trace.c: owns the trace file. Each line is one write(2), so that processes can share the file.
 * Makes bare system calls, because open() and write() are cancellation points, and the caller holds
 * locks. */
#include "preload/process/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"

static int trace_fd(void)
{
        static int fd = -2; /* -2: SUBLET_TRACE was not read yet */

        if (fd == -2) {
                const char *path = setting_text(SETTING_TRACE);

                fd = -1;
                if (path)
                        fd = (int)syscall(SYS_openat, AT_FDCWD, path,
                                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
                if (path && fd < 0)
                        log_warning("cannot write the trace %s: %s", path, strerror(errno));
        }
        return fd;
}

bool trace_is_on(void)
{
        return trace_fd() >= 0;
}

void trace_event(const char *event, unsigned gpu, uint64_t bytes)
{
        int fd = trace_fd();
        char line[160];
        int n;

        if (fd < 0)
                return;
        n = snprintf(line, sizeof(line),
                     "{\"t_ns\":%llu,\"pid\":%d,\"event\":\"%s\",\"gpu\":%u,\"bytes\":%llu}\n",
                     (unsigned long long)clock_now_ns(), (int)getpid(), event, gpu,
                     (unsigned long long)bytes);
        (void)syscall(SYS_write, fd, line, (size_t)n);
}
