/* last_good.c: owns the file with the last good configuration. Must never use a file that another
 * user may have written, and never leave a half-written one in its place. */
#include "daemon/setup/last_good.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/xdg.h"

#define FORM "sublet configuration 1\n" /* the first line; the second names the daemon */

/* ---- the place ---- */

static bool is_mine(const char *folder)
{
        struct stat st;

        return stat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* Finds $XDG_STATE_HOME, or ~/.local/state. After `su` the variables may name another user's
 * folder: then none is found. */
static bool state_home(char ret[static CONFIG_PATH_MAX])
{
        const int r = xdg_folder(XDG_STATE, ret, CONFIG_PATH_MAX - 16);

        return r == 0 || (r > 0 && is_mine(getenv("HOME")));
}

/* Makes the folder, and missing ones above it, each only in a folder of our own. 0, -errno. */
static int make_folder(const char *path)
{
        char above[CONFIG_PATH_MAX], *slash;
        int r;

        if (mkdir(path, 0700) == 0 || errno == EEXIST)
                return 0;
        if (errno != ENOENT)
                return -errno;
        (void)snprintf(above, sizeof(above), "%s", path);
        slash = strrchr(above, '/');
        if (!slash || slash == above)
                return -ENOENT;
        *slash = '\0';
        r = make_folder(above);
        if (r < 0)
                return r;
        if (!is_mine(above))
                return -EPERM;
        return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

void last_good_open(struct kept *k, const char *dir, const char *config_file, bool system)
{
        memset(k, 0, sizeof(*k));
        (void)snprintf(k->of, sizeof(k->of), "%s: %s\n", dir, config_file);
        if (system) {
                (void)strcpy(k->folder, KEPT_SYSTEM_FOLDER);
                (void)snprintf(k->path, sizeof(k->path), "%s/last-good", k->folder);
        } else if (state_home(k->folder)) {
                /* If two daemons have one hash, the second line of the file tells them apart. */
                (void)strcat(k->folder, "/sublet");
                (void)snprintf(k->path, sizeof(k->path), "%s/last-good-%016llx", k->folder,
                               (unsigned long long)hash_add(HASH_BASIS, dir, strlen(dir)));
        } else {
                k->folder[0] = '\0';
        }
}

/* ---- reading ---- */

static int check_owner(const char *path, const struct stat *st, char error[static CONFIG_ERROR_MAX])
{
        if (st->st_uid != geteuid())
                return texts_refuse(path, -EPERM, "another user owns it", error);
        if (st->st_mode & (S_IWGRP | S_IWOTH))
                return texts_refuse(path, -EPERM, "other users may write it (chmod go-w)", error);
        return 0;
}

/* Opens the file, if nobody else may have written it or put it there. */
static int open_own(const struct kept *k, int *ret_fd, char error[static CONFIG_ERROR_MAX])
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int r;

        if (!k->folder[0] || lstat(k->folder, &st) < 0)
                return texts_refuse(k->path, -ENOENT, "there is none", error);
        if (!S_ISDIR(st.st_mode))
                return texts_refuse(k->folder, -ENOTDIR, "not a directory", error);
        r = check_owner(k->folder, &st, error);
        if (r < 0)
                return r;
        fd = open(k->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) < 0)
                return texts_refuse(k->path, -errno, NULL, error);
        if (!S_ISREG(st.st_mode))
                return texts_refuse(k->path, -EISDIR, "not a regular file", error);
        r = check_owner(k->path, &st, error);
        if (r == 0)
                *ret_fd = TAKE_FD(fd);
        return r;
}

static int read_own(const struct kept *k, char **ret_bytes, size_t *ret_n,
                    char error[static CONFIG_ERROR_MAX])
{
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *bytes = NULL;
        struct stat st;
        int r = open_own(k, &fd, error);

        if (r < 0)
                return r;
        bytes = fstat(fd, &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
        if (!bytes)
                return texts_refuse(k->path, -ENOMEM, "no memory for it", error);
        if (read(fd, bytes, (size_t)st.st_size) != st.st_size)
                return texts_refuse(k->path, -EIO, "cannot be read", error);
        *ret_bytes = TAKE_PTR(bytes);
        *ret_n = (size_t)st.st_size;
        return 0;
}

int last_good_read(const struct kept *k, struct texts *ret, char error[static CONFIG_ERROR_MAX])
{
        const size_t form = strlen(FORM), of = strlen(k->of);
        _cleanup_free_ char *bytes = NULL;
        size_t n;
        int r = read_own(k, &bytes, &n, error);

        if (r < 0)
                return r;
        if (n < form || memcmp(bytes, FORM, form) != 0)
                return texts_refuse(k->path, -EBADMSG, "another release wrote it", error);
        if (n < form + of || memcmp(bytes + form, k->of, of) != 0)
                return texts_refuse(k->path, -EBADMSG,
                                    "it is of another daemon or configuration file", error);
        r = texts_unpack(bytes + form + of, n - form - of, ret);
        if (r < 0)
                return texts_refuse(k->path, r, r == -ENOMEM ? "no memory for it" : "it is damaged",
                                    error);
        return 0;
}

/* ---- writing ---- */

static bool is_kept(const struct kept *k, const char *head, const char *bytes, size_t n)
{
        char error[CONFIG_ERROR_MAX];
        _cleanup_free_ char *old = NULL;
        const size_t h = strlen(head);
        size_t old_n;

        return read_own(k, &old, &old_n, error) == 0 && old_n == h + n &&
               memcmp(old, head, h) == 0 && memcmp(old + h, bytes, n) == 0;
}

/* Writes beside the file and renames, so that the file is always whole. 0, -errno. */
static int replace(const struct kept *k, const char *head, const char *bytes, size_t n)
{
        char path[sizeof(k->path) + 16];
        _cleanup_close_ int fd = -EBADF;
        const ssize_t h = (ssize_t)strlen(head);
        int r = make_folder(k->folder);

        if (r < 0)
                return r;
        (void)snprintf(path, sizeof(path), "%s.%d", k->path, (int)getpid());
        (void)unlink(path);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        errno = ENOSPC; /* write() sets no errno if it writes too little */
        if (write(fd, head, (size_t)h) != h || write(fd, bytes, n) != (ssize_t)n || fsync(fd) < 0 ||
            rename(path, k->path) < 0) {
                r = -errno;
                (void)unlink(path);
        }
        return r;
}

void last_good_write(struct kept *k, const struct texts *t)
{
        char head[sizeof(FORM) + sizeof(k->of)];
        _cleanup_free_ char *bytes = NULL;
        size_t n;
        int r = 0;

        if (t->n == 0) {
                if (k->folder[0])
                        (void)unlink(k->path);
                return;
        }
        (void)snprintf(head, sizeof(head), FORM "%s", k->of);
        bytes = texts_pack(t, &n);
        if (!k->folder[0])
                r = -ENOENT;
        else if (!bytes)
                r = -ENOMEM;
        else if (!is_kept(k, head, bytes, n))
                r = replace(k, head, bytes, n);
        if (r == 0)
                k->told = false;
        if (r == 0 || k->told)
                return;
        k->told = true;
        log_warning("cannot keep the configuration in %s (%s): if the daemon starts again with a "
                    "wrong file, it will give no program a turn",
                    k->folder[0] ? k->folder : "$XDG_STATE_HOME or ~/.local/state", strerror(-r));
}
