/* conf_folder.c: owns how a file comes into the daemon's folder conf.d. Must never let the daemon
 * read a part of a file, and never write through a link. */
#include "ask/conf_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

static int write_all(int fd, const char *text, size_t n)
{
        while (n > 0) {
                const ssize_t wrote = write(fd, text, n);

                if (wrote < 0 && errno != EINTR)
                        return -errno;
                text += wrote > 0 ? wrote : 0;
                n -= wrote > 0 ? (size_t)wrote : 0;
        }
        return 0;
}

int folder_put(int folder, const char *fresh, const char *name, const char *text, size_t n)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int r;

        (void)unlinkat(folder, fresh, 0); /* a killed program has left it */
        fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        r = write_all(fd, text, n);
        /* The file must belong to the daemon's user, who owns the folder and need not be root. */
        if (r == 0 && (fstat(folder, &st) < 0 ||
                       (st.st_uid != geteuid() && fchown(fd, st.st_uid, (gid_t)-1) < 0) ||
                       renameat(folder, fresh, folder, name) < 0))
                r = -errno;
        if (r < 0)
                (void)unlinkat(folder, fresh, 0);
        return r;
}
