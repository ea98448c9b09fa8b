/* door_count.c: owns the list of doors that programs used, in the test build of the library. A
 * door is written to the file at its first use, because programs may be killed before their end. */
#include "preload/entry/door_count.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/settings.h"

void door_count(enum door_row row)
{
        static _Atomic bool seen[DOOR_COUNT];
        const char *path = setting_text(SETTING_DOOR_COUNT), *name = rows_symbol(row);
        char line[128];
        int n = snprintf(line, sizeof(line), "%s\n", name), fd;

        if (!path || n >= (int)sizeof(line) || atomic_exchange(&seen[row], true))
                return;
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd < 0)
                return;
        (void)!write(fd, line, (size_t)n);
        (void)close(fd);
}
