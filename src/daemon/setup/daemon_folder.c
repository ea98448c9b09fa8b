/* daemon_folder.c: owns the daemon's directory and everything in it. Must never use a directory
 * that other users can write to, and never remove a file unless it holds the directory's lock.
 * Why: docs/decisions.md, "systemd holds the sockets of the machine's daemon". */
#include "daemon/setup/daemon_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/cleanup.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/people/peer.h"

#define LOCK_FILE     "lock"
#define MARKER_FILE   "running"
#define SETTINGS_FILE "settings"
#define UNFINISHED    ".new" /* replaces ".sock" while the socket is not ready */
#define PATH_MAX_HERE (PATHS_DIR_MAX + 32)

static void path_in(const char *dir, const char *name, char ret[static PATH_MAX_HERE])
{
        (void)paths_join(dir, name, ret,
                         PATH_MAX_HERE); /* fits, because the directory's length was checked */
}

/* ---- the directory ---- */

static int check_shared(const struct place_options *o)
{
        struct stat st;

        if (lstat(o->dir, &st) < 0)
                return -errno;
        if (!S_ISDIR(st.st_mode))
                return -ENOTDIR;
        if (st.st_uid != geteuid())
                return -EPERM;
        return st.st_mode & 022 ? -EACCES : 0;
}

static int make_shared(const struct place_options *o)
{
        if (mkdir(o->dir, 0755) < 0) {
                if (errno != EEXIST)
                        return -errno;
        } else if (chmod(o->dir, 0755) < 0) { /* mkdir() is subject to the umask */
                return -errno;
        }
        return check_shared(o);
}

static int make_dir(const struct place_options *o, char error[static PLACE_ERROR_MAX])
{
        int r = o->shared ? make_shared(o) : paths_make_private(o->dir, geteuid());

        switch (r) {
        case 0:
                if (access(o->dir, W_OK | X_OK) == 0)
                        return 0;
                r = -errno;
                (void)snprintf(error, PLACE_ERROR_MAX, "cannot write to directory %s: %s", o->dir,
                               strerror(-r));
                break;
        case -ENOTDIR:
                (void)snprintf(error, PLACE_ERROR_MAX, "%s is not a directory", o->dir);
                break;
        case -EPERM:
                (void)snprintf(error, PLACE_ERROR_MAX, "directory %s belongs to another user",
                               o->dir);
                break;
        case -EACCES:
                if (access(o->dir, F_OK) == 0)
                        (void)snprintf(error, PLACE_ERROR_MAX,
                                       "directory %s is open to other users: chmod %s it", o->dir,
                                       o->shared ? "go-w" : "700");
                else
                        (void)snprintf(error, PLACE_ERROR_MAX,
                                       "no permission to create directory %s", o->dir);
                break;
        default:
                (void)snprintf(error, PLACE_ERROR_MAX, "cannot create directory %s: %s", o->dir,
                               strerror(-r));
        }
        return r;
}

/* ---- the lock ---- */

static int take_lock(const char *dir, int *ret_fd, char error[static PLACE_ERROR_MAX])
{
        char path[PATH_MAX_HERE], holder[LOCK_HOLDER_MAX];
        int r;

        path_in(dir, LOCK_FILE, path);
        r = lock_take(path, ret_fd, holder);
        if (r == -EALREADY)
                (void)snprintf(error, PLACE_ERROR_MAX, "another subletd (pid %s) serves %s", holder,
                               dir);
        else if (r < 0)
                (void)snprintf(error, PLACE_ERROR_MAX, "cannot lock %s: %s", path, strerror(-r));
        return r;
}

void place_sign(const struct place *p)
{
        const int r = lock_sign(p->lock_fd);

        if (r < 0)
                log_warning("cannot write the pid to %s/" LOCK_FILE ": %s", p->dir, strerror(-r));
}

/* ---- the sockets ---- */

static int address_of(const char *dir, const char *name, struct sockaddr_un *ret)
{
        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        return paths_join(dir, name, ret->sun_path, sizeof(ret->sun_path));
}

/* Removes an old socket. We hold the lock, so an existing socket is stale. */
static int clear_way(const char *path, char error[static PLACE_ERROR_MAX])
{
        struct stat st;

        if (lstat(path, &st) < 0)
                return 0;
        if (!S_ISSOCK(st.st_mode)) {
                (void)snprintf(error, PLACE_ERROR_MAX, "%s is in the way: it is not a socket",
                               path);
                return -EEXIST;
        }
        (void)unlink(path);
        return 0;
}

/* A client that finds the last of these names finds the others. */
static const struct {
        const char *name, *public; /* NULL: not for everybody */
        int type;
} kinds[PLACE_SOCKETS] = {
        [PLACE_CONTROL] = {PATHS_CONTROL_SOCKET, NULL, SOCK_STREAM},
        [PLACE_STATUS] = {PATHS_STATUS_SOCKET, PATHS_PUBLIC "/" PATHS_STATUS_SOCKET, SOCK_STREAM},
        [PLACE_CLIENT] = {PATHS_CLIENT_SOCKET, PATHS_PUBLIC "/" PATHS_CLIENT_SOCKET,
                          SOCK_SEQPACKET},
};

static void make_public_folder(const char *dir)
{
        char path[PATH_MAX_HERE];

        path_in(dir, PATHS_PUBLIC, path);
        if (mkdir(path, 0755) == 0 ? chmod(path, 0755) < 0 : errno != EEXIST)
                log_warning("cannot make %s: %s", path, strerror(errno));
}

/* Makes a hard link, because what a symbolic link names is not in the container. */
static void publish(const char *dir, const char *socket, int kind)
{
        char path[PATH_MAX_HERE];

        if (!kinds[kind].public)
                return;
        path_in(dir, kinds[kind].public, path);
        (void)unlink(path); /* the link of an earlier daemon */
        if (link(socket, path) < 0)
                log_warning("cannot make %s: %s", path, strerror(errno));
}

/* Makes a listening socket. It gets its name last, so that a client that finds the name finds a
 * listening daemon, and the name for containers. */
static int listen_at(const char *dir, int kind, bool public, mode_t mode, gid_t group, int *ret_fd,
                     char error[static PLACE_ERROR_MAX])
{
        const char *name = kinds[kind].name;
        _cleanup_close_ int fd = -EBADF;
        struct sockaddr_un sa, unfinished;
        mode_t mask;
        int r = address_of(dir, name, &sa);

        if (r < 0)
                goto say;
        unfinished = sa;
        strcpy(strrchr(unfinished.sun_path, '.'),
               UNFINISHED); /* shorter than the name that it replaces */
        if (clear_way(sa.sun_path, error) < 0 || clear_way(unfinished.sun_path, error) < 0)
                return -EEXIST;
        fd = socket(AF_UNIX, kinds[kind].type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
                r = -errno;
                goto say;
        }
        peer_pass_descriptors(fd, false);
        mask = umask(0177);
        r = bind(fd, (struct sockaddr *)&unfinished, sizeof(unfinished)) < 0 ? -errno : 0;
        (void)umask(mask);
        if (r < 0)
                goto say;
        if ((group != (gid_t)-1 && chown(unfinished.sun_path, (uid_t)-1, group) < 0) ||
            chmod(unfinished.sun_path, mode) < 0 || listen(fd, SOMAXCONN) < 0) {
                r = -errno;
                goto unlink_unfinished;
        }
        if (public)
                publish(dir, unfinished.sun_path, kind);
        if (rename(unfinished.sun_path, sa.sun_path) < 0) {
                r = -errno;
                goto unlink_unfinished;
        }
        *ret_fd = TAKE_FD(fd);
        return 0;

unlink_unfinished:
        (void)unlink(unfinished.sun_path);
say:
        (void)snprintf(error, PLACE_ERROR_MAX, "cannot listen at %s/%s: %s", dir, name,
                       strerror(-r));
        return r;
}

/* Takes sockets from the service manager. Their paths say what they are for. */
static void take_given(struct place *p)
{
        int n = sd_listen_fds(1);

        for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++)
                for (int k = 0; k < PLACE_SOCKETS; k++) {
                        struct sockaddr_un sa;

                        if (p->given[k] || address_of(p->dir, kinds[k].name, &sa) < 0 ||
                            sd_is_socket_unix(fd, kinds[k].type, 1, sa.sun_path, 0) <= 0)
                                continue;
                        p->listening[k] = fd;
                        p->given[k] = true;
                        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
                        peer_pass_descriptors(fd, false);
                }
}

/* Makes conf.d, where root's programs write what tenants get. It stays for the next daemon. It is
 * closed to other users: one who may open it could lock it, and so hold up those programs. */
static void make_config_folder(const char *dir)
{
        char path[PATH_MAX_HERE];

        path_in(dir, PATHS_CONFIG, path);
        if ((mkdir(path, 0700) < 0 && errno != EEXIST) || chmod(path, 0700) < 0)
                log_warning("cannot make %s: %s", path, strerror(errno));
}

int place_open(const struct place_options *o, struct place *ret, char error[static PLACE_ERROR_MAX])
{
        struct place p = PLACE_INIT;
        mode_t mode = !o->shared ? 0600 : o->group != (gid_t)-1 ? 0660 : 0666;
        int r;

        if (strlen(o->dir) >= PATHS_DIR_MAX) {
                (void)snprintf(error, PLACE_ERROR_MAX,
                               "socket path too long: %.200s has %zu characters, at most %d fit",
                               o->dir, strlen(o->dir), PATHS_DIR_MAX - 1);
                return -ENAMETOOLONG;
        }
        (void)snprintf(p.dir, sizeof(p.dir), "%s", o->dir);
        r = make_dir(o, error);
        if (r == 0)
                r = take_lock(p.dir, &p.lock_fd, error);
        if (r < 0)
                return r;
        place_sign(&p);
        make_config_folder(p.dir);
        take_given(&p);
        if (o->shared)
                make_public_folder(p.dir);
        for (int k = 0; k < PLACE_SOCKETS && r == 0; k++) {
                bool control = k == PLACE_CONTROL;
                char given[PATH_MAX_HERE];

                path_in(p.dir, kinds[k].name, given);
                if (p.given[k] && o->shared)
                        publish(p.dir, given, k);
                else if (!p.given[k] && (k != PLACE_STATUS || o->shared))
                        r = listen_at(p.dir, k, o->shared, control ? 0600 : mode,
                                      control || !o->shared ? (gid_t)-1 : o->group, &p.listening[k],
                                      error);
        }
        if (r < 0) {
                place_close(&p, true);
                return r;
        }
        *ret = p;
        return 0;
}

/* Removes what is left of the machine's daemon, because programs wait for one as long as its
 * directory exists. Sockets of the service manager, or a mount, mean that a next daemon comes: then
 * all stays. What programs for clusters have written stays in any case. */
static void leave_system(const struct place *p)
{
        static const char *const own[] = {PATHS_PUBLIC, PATHS_CONFIG, LOCK_FILE};
        char path[PATH_MAX_HERE];
        struct stat st, above;

        if (strcmp(p->dir, PATHS_SYSTEM_DIR) != 0)
                return;
        for (int k = 0; k < PLACE_SOCKETS; k++)
                if (p->given[k])
                        return;
        path_in(p->dir, MARKER_FILE, path);
        if (access(path, F_OK) == 0)
                return; /* programs hold memory, and the next daemon has to know it */
        path_in(p->dir, "..", path);
        if (stat(p->dir, &st) < 0 || stat(path, &above) < 0 || st.st_dev != above.st_dev)
                return;
        /* The lock goes last of all, and only if nothing else is left. */
        for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
                path_in(p->dir, own[i], path);
                if (remove(path) < 0 && errno != ENOENT)
                        return;
        }
        (void)rmdir(p->dir);
}

void place_close(struct place *p, bool remove_sockets)
{
        char path[PATH_MAX_HERE];

        /* The clients' socket first: a client that finds it finds the others. */
        for (int k = PLACE_SOCKETS - 1; k >= 0; k--) {
                if (!remove_sockets || p->given[k] || p->listening[k] < 0)
                        continue;
                path_in(p->dir, kinds[k].name, path);
                (void)unlink(path);
                if (!kinds[k].public)
                        continue;
                path_in(p->dir, kinds[k].public, path);
                (void)unlink(path);
        }
        for (int k = 0; k < PLACE_SOCKETS; k++)
                cleanup_close(&p->listening[k]);
        if (remove_sockets && p->lock_fd >= 0)
                leave_system(p);
        /* Last, so that the next holder of the lock finds nothing of ours. */
        cleanup_close(&p->lock_fd);
        *p = PLACE_INIT;
}

bool place_is_lost(const struct place *p)
{
        char path[PATH_MAX_HERE];

        path_in(p->dir, kinds[PLACE_CLIENT].name, path);
        return access(path, F_OK) < 0 && errno == ENOENT;
}

/* ---- files for the next daemon ---- */

/* Writes a file; text "": removes it. False: the file could not be written (errno). */
static bool put_text(const struct place *p, const char *name, const char *text,
                     char ret_path[static PATH_MAX_HERE])
{
        _cleanup_close_ int fd = -EBADF;
        ssize_t n = (ssize_t)strlen(text);

        path_in(p->dir, name, ret_path);
        if (n == 0) {
                (void)unlink(ret_path);
                return true;
        }
        fd = open(ret_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        return fd >= 0 && write(fd, text, (size_t)n) == n;
}

static int open_text(const struct place *p, const char *name, char ret_path[static PATH_MAX_HERE])
{
        path_in(p->dir, name, ret_path);
        return open(ret_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* ---- the marker ---- */

bool place_was_busy(const struct place *p, uint64_t *ret_promised_bytes)
{
        _cleanup_close_ int fd = -EBADF;
        char path[PATH_MAX_HERE], text[32] = "";

        fd = open_text(p, MARKER_FILE, path);
        *ret_promised_bytes = 0;
        if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
                *ret_promised_bytes = strtoull(text, NULL, 10);
        return access(path, F_OK) == 0;
}

void place_mark(struct place *p, bool busy)
{
        char path[PATH_MAX_HERE], text[32] = "";

        if (p->marked == busy)
                return;
        if (busy)
                (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)p->promised_bytes);
        /* Not tried again after a failure: the marker is needed only after a crash. */
        if (!put_text(p, MARKER_FILE, text, path))
                log_warning("cannot create %s: %s", path, strerror(errno));
        p->marked = busy;
}

/* ---- the settings ---- */

void place_keep(const struct place *p, const char *text)
{
        char path[PATH_MAX_HERE];

        if (!put_text(p, SETTINGS_FILE, text, path))
                log_warning("cannot keep what was set in %s: %s", path, strerror(errno));
}

FILE *place_kept(const struct place *p)
{
        _cleanup_close_ int fd = -EBADF;
        char path[PATH_MAX_HERE];
        FILE *file;

        fd = open_text(p, SETTINGS_FILE, path);
        file = fd < 0 ? NULL : fdopen(fd, "r");
        if (file)
                (void)TAKE_FD(fd);
        return file;
}

bool place_answers(const char *dir)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_un sa;

        return fd >= 0 && address_of(dir, PATHS_CLIENT_SOCKET, &sa) == 0 &&
               (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 || errno == EAGAIN);
}
