/* file_lock.c: owns the files that say who serves a directory. Must never remove such a file: only
 * its holder may, when it leaves for good. */
#include "base/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Opens the file and locks it. -ESTALE: its last holder has removed it meanwhile. */
static int try_lock(const char *path, int *ret_fd)
{
        _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat st;
        int r = 0;

        if (fd < 0)
                return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                r = errno == EWOULDBLOCK ? -EALREADY : -errno;
        else if (fstat(fd, &st) == 0 && st.st_nlink == 0)
                return -ESTALE;
        if (r == 0 || r == -EALREADY)
                *ret_fd = TAKE_FD(fd);
        return r;
}

int lock_take(const char *path, int *ret_fd, char ret_holder[static LOCK_HOLDER_MAX])
{
        _cleanup_close_ int fd = -EBADF;
        ssize_t n;
        int r;

        do
                r = try_lock(path, &fd);
        while (r == -ESTALE);
        if (r == 0)
                *ret_fd = TAKE_FD(fd);
        if (r != -EALREADY)
                return r;
        n = pread(fd, ret_holder, LOCK_HOLDER_MAX - 1, 0);
        ret_holder[n > 0 ? n : 0] = '\0';
        ret_holder[strspn(ret_holder, "0123456789")] = '\0';
        if (!ret_holder[0])
                (void)strcpy(ret_holder, "unknown");
        return r;
}

int lock_sign(int fd)
{
        char text[LOCK_HOLDER_MAX];
        const int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

        return ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n ? -errno : 0;
}
