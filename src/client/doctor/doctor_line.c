/* doctor_line.c: owns how doctor asks other programs. Must never leave a child behind. */
#include "client/doctor/doctor_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/common/cli.h"

int line_of(const char *const argv[], const char *preload, char *ret, size_t n)
{
        int ends[2], status = 0;
        ssize_t got = 0, more;
        pid_t child;

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        child = fork();
        if (child == 0) {
                (void)dup2(ends[1], STDOUT_FILENO);
                (void)dup2(ends[1], STDERR_FILENO);
                if (preload)
                        (void)setenv("LD_PRELOAD", preload, 1);
                (void)execv(argv[0], (char *const *)argv);
                _exit(CLI_NO_EXECUTE);
        }
        (void)close(ends[1]);
        while (child > 0 && (size_t)got + 1 < n &&
               (more = read(ends[0], ret + got, n - 1 - (size_t)got)) > 0)
                got += more;
        (void)close(ends[0]);
        if (child < 0)
                return -EAGAIN;
        (void)waitpid(child, &status, 0);
        ret[got] = 0;
        ret[strcspn(ret, "\n")] = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}
