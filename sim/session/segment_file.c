/* segment_file.c: the file in /dev/shm behind a session: its name, who uses it, and its removal.
 * Must never remove the file of a session that a live process uses, whatever pid namespace that is
 * in. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/session/segment.h"

#define SEGMENTS "/dev/shm"
#define LAYOUT   6 /* part of the file's name: other layouts have other files */

bool segment_is_public(const char *name)
{
        return name[0] == '+';
}

uid_t segment_owner(const char *name)
{
        return segment_is_public(name) ? 0 : geteuid();
}

/* The end of the name of each file with the present layout. */
static void segment_suffix(char ret[static 32])
{
        (void)snprintf(ret, 32, "-%d.%zu", LAYOUT, sizeof(struct session_segment));
}

static void segment_path(const char *name, char path[static 128])
{
        char suffix[32];

        segment_suffix(suffix);
        (void)snprintf(path, 128, SEGMENTS "/simcuda-%u-%s%s", (unsigned)segment_owner(name), name,
                       suffix);
}

/* Creates the file. It gets its mode before its name, because another user may open it as soon as
 * it has a name. */
static int segment_create_file(const char *path, mode_t mode)
{
        _cleanup_close_ int fd = open(SEGMENTS, O_RDWR | O_CLOEXEC | O_TMPFILE, 0600);
        char own[64];

        if (fd < 0 || fchmod(fd, mode) < 0)
                return -errno;
        (void)snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
        if (linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0)
                return -errno;
        return TAKE_FD(fd);
}

/* Opens or creates the file, without O_CREAT: in a directory like /dev/shm the kernel refuses
 * O_CREAT for an existing file of another user (fs.protected_regular). */
static int segment_open_file(const char *name, bool create, mode_t mode)
{
        char path[128];
        int fd;

        segment_path(name, path);
        do {
                fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
                if (fd >= 0 || errno != ENOENT || !create)
                        return fd < 0 ? -errno : fd;
                fd = segment_create_file(path, mode);
        } while (fd == -EEXIST);
        return fd;
}

int segment_open(const char *name, bool create, int *ret_fd)
{
        mode_t mode = segment_is_public(name) ? 0666 : 0600;

        for (;;) {
                _cleanup_close_ int fd = segment_open_file(name, create, mode);
                struct stat st;

                if (fd < 0)
                        return fd;
                while (flock(fd, LOCK_EX) < 0)
                        if (errno != EINTR)
                                return -errno;
                if (fstat(fd, &st) < 0)
                        return -errno;
                if (!S_ISREG(st.st_mode) || (st.st_mode & 077 & ~mode) ||
                    (!segment_is_public(name) && st.st_uid != geteuid()))
                        return -EPERM;
                if (st.st_nlink == 0)
                        continue; /* the file was removed between open() and flock() */
                if (create && st.st_size == 0 &&
                    ftruncate(fd, (off_t)sizeof(struct session_segment)) < 0)
                        return -errno;
                *ret_fd = TAKE_FD(fd);
                return 0;
        }
}

void segment_opened(int fd)
{
        (void)flock(fd, LOCK_UN);
}

int segment_map(int fd, struct session_segment **ret_segment)
{
        struct session_segment *g;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if ((size_t)st.st_size < sizeof(*g))
                return -ENOENT; /* the file's creator died before it set the size */
        g = mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (g == MAP_FAILED)
                return -errno;
        *ret_segment = g;
        return 0;
}

/* ---- who uses the file ---- */

/* The mark of use is a read lock of an open file description. A mapping keeps the description open,
 * so the process needs no descriptor, and the kernel ends the lock when the process ends. */
int segment_use(int fd, void **ret_use)
{
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        _cleanup_close_ int second = -EBADF;
        char own[64];
        void *use;

        (void)snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
        second = open(own, O_RDWR | O_CLOEXEC);
        if (second < 0 || fcntl(second, F_OFD_SETLK, &lock) < 0)
                return -errno;
        use = mmap(NULL, 1, PROT_NONE, MAP_SHARED, second, 0);
        if (use == MAP_FAILED)
                return -errno;
        (void)madvise(use, 1, MADV_DONTFORK); /* a child of fork() cannot use the session */
        *ret_use = use;
        return 0;
}

void segment_unuse(void *use)
{
        (void)munmap(use, 1);
}

/* Needs the lock of segment_open(). */
static bool segment_in_use(int fd)
{
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* ---- its removal ---- */

/* True if the file may go: no process uses it, and none has asked to keep it (SIMCUDA_KEEP). */
static bool segment_is_left(int fd)
{
        bool keep = false; /* a file without size has no segment yet */

        return !segment_in_use(fd) &&
               pread(fd, &keep, sizeof(keep), offsetof(struct session_segment, keep)) >= 0 && !keep;
}

void segment_leave(const char *name, void *use)
{
        _cleanup_close_ int fd = -EBADF;
        char path[128];

        /* With the file locked, the last of several processes that leave sees no other. */
        if (segment_open(name, false, &fd) < 0) {
                segment_unuse(use);
                return;
        }
        segment_unuse(use);
        segment_path(name, path);
        if (segment_is_left(fd))
                (void)unlink(path);
}

int session_remove(const char *name, bool force)
{
        _cleanup_close_ int fd = -EBADF;
        char path[128];
        int r;

        r = segment_open(name, false, &fd);
        if (r < 0)
                return r;
        if (!force && segment_in_use(fd))
                return -EBUSY;
        segment_path(name, path);
        return unlink(path) < 0 ? -errno : 0;
}

/* Removes this file of SEGMENTS if it is a session of this user that killed processes have left. */
static void remove_left(int folder, const char *file)
{
        _cleanup_close_ int fd = openat(folder, file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        struct stat st;

        /* A process that has the lock is about to use the file, or to remove it. */
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
                return;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
            st.st_nlink == 0)
                return;
        if (segment_is_left(fd))
                (void)unlinkat(folder, file, 0);
}

void segments_remove_left(void)
{
        DIR *folder = opendir(SEGMENTS);
        char suffix[32];

        if (!folder)
                return;
        segment_suffix(suffix);
        for (struct dirent *e; (e = readdir(folder));) {
                size_t bytes = strlen(e->d_name);

                if (strncmp(e->d_name, "simcuda-", 8) == 0 && bytes > strlen(suffix) &&
                    strcmp(e->d_name + bytes - strlen(suffix), suffix) == 0)
                        remove_left(dirfd(folder), e->d_name);
        }
        (void)closedir(folder);
}
