/* name.c: owns the choice of the program's name in `sublet status`. Must never change the program's
 * own data, nor pass on control characters. */
#include "preload/process/name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/program_name.h"
#include "base/settings.h"

void name_of_program(char *ret, size_t n)
{
        const char *said = setting_text(SETTING_NAME);
        extern char *program_invocation_short_name;
        _cleanup_close_ int fd = -EBADF;
        char line[NAME_LINE_MAX];
        ssize_t length = 0;

        if (said) {
                name_choose("", 0, NULL, said, ret, n);
                return;
        }
        fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
                length = read(fd, line, sizeof(line));
        /* Jupyter's server sets JPY_SESSION_NAME for its kernels (get_kernel_env() of its session
         * manager). */
        name_choose(line, length > 0 ? (size_t)length : 0, getenv("JPY_SESSION_NAME"),
                    program_invocation_short_name, ret, n);
}
