/* node_library.c: owns the files that the plugin puts on the node. Must never write into a file
 * that a running container has. */
#include "kubernetes/plugin/node_library.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/folders.h"
#include "base/log.h"
#include "kubernetes/plugin/grant.h"

static int make_folder_of(const char *path)
{
        char folder[PATH_MAX];
        const char *slash = strrchr(path, '/');

        if (!slash || slash == path)
                return 0;
        if ((size_t)(slash - path) >= sizeof(folder))
                return -ENAMETOOLONG;
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        return folders_make(folder, 0755);
}

static int copy(int from, int to)
{
        ssize_t n;

        do
                n = sendfile(to, from, NULL, 1u << 30);
        while (n > 0 || (n < 0 && errno == EINTR));
        return n < 0 ? -errno : 0;
}

static int write_line(int fd, const char *line)
{
        return dprintf(fd, "%s\n", line) < 0 ? -errno : 0;
}

/* Replaces a file: with the contents of the file `from`, or, if that is NULL, with this line. */
static int replace(const char *path, const char *from, const char *line)
{
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        char fresh[PATH_MAX];
        int r;

        if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
                return -ENAMETOOLONG;
        in = from ? open(from, O_RDONLY | O_CLOEXEC) : -EBADF;
        if (from && in < 0)
                return -errno;
        (void)unlink(fresh);
        out = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (out < 0)
                return -errno;
        r = from ? copy(in, out) : write_line(out, line);
        if (r == 0 &&
            (fchmod(out, from ? 0755 : 0644) < 0 || fsync(out) < 0 || rename(fresh, path) < 0))
                r = -errno;
        if (r < 0)
                (void)unlink(fresh);
        return r;
}

int library_bring(const char *from, const char *library, const char *preload_file)
{
        int r = make_folder_of(library);

        if (r == 0)
                r = make_folder_of(preload_file);
        if (r == 0)
                r = replace(library, from, NULL);
        if (r == 0)
                r = replace(preload_file, NULL, GRANT_LIBRARY);
        if (r < 0)
                log_error("cannot copy %s to %s: %s", from, library, strerror(-r));
        else
                log_info("pods get %s", library);
        return r;
}
