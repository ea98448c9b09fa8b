/* folders.c: owns the making of a path's folders. Must never change a folder that is there. */
#include "base/folders.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int folders_make(char *path, mode_t mode)
{
        for (char *slash = path;;) {
                slash = strchr(slash + 1, '/');
                if (slash)
                        *slash = 0;
                if (mkdir(path, mode) < 0 && errno != EEXIST)
                        return -errno;
                if (!slash)
                        return 0;
                *slash = '/';
        }
}
