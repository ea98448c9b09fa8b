/* lock.c: owns the files that say who serves a directory. Must never remove one: that would race
 * with the next holder. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"

int lock_take(const char *path, int *ret_fd, char ret_holder[static LOCK_HOLDER_MAX])
{
        _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        ssize_t n;

        if (fd < 0)
                return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
                *ret_fd = TAKE_FD(fd);
                return 0;
        }
        if (errno != EWOULDBLOCK)
                return -errno;
        n = pread(fd, ret_holder, LOCK_HOLDER_MAX - 1, 0);
        ret_holder[n > 0 ? n : 0] = '\0';
        ret_holder[strspn(ret_holder, "0123456789")] = '\0';
        if (!ret_holder[0])
                (void)strcpy(ret_holder, "unknown");
        return -EALREADY;
}

int lock_sign(int fd)
{
        char text[LOCK_HOLDER_MAX];
        const int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

        return ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n ? -errno : 0;
}
