/* sources.c: owns which files a daemon reads, and in which order. Must never read, for a daemon of
 * many users, a file that one of them may have written; nor any such file in a directory that may
 * be anybody's. */
#include "daemon/setup/sources.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/paths.h"
#include "daemon/setup/resource_file.h"

#define SUFFIX       ".conf"
#define USER_FILE    "sublet/subletd.conf"
#define DROP_INS     ".d"
#define PATH_MAX_TMP (CONFIG_PATH_MAX + sizeof(DROP_INS) + 257) /* a slash and a file name */

/* ---- the choice of the file ---- */

/* Finds the user's folder of configurations. After `su` the variables may name another user's:
 * then there is none. */
static int user_folder(char ret[static CONFIG_PATH_MAX])
{
        const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        struct stat st;
        int n;

        if (config && config[0] == '/') {
                n = snprintf(ret, CONFIG_PATH_MAX, "%s", config);
        } else {
                if (!home || home[0] != '/')
                        return -ENOENT;
                n = snprintf(ret, CONFIG_PATH_MAX, "%s/.config", home);
        }
        if (n >= CONFIG_PATH_MAX)
                return -ENAMETOOLONG;
        return stat(ret, &st) == 0 && st.st_uid == geteuid() ? 0 : -ENOENT;
}

int sources_absolute(const char *name, char ret[static CONFIG_PATH_MAX])
{
        _cleanup_free_ char *here = name[0] == '/' || !name[0] ? NULL : getcwd(NULL, 0);
        int n = here ? snprintf(ret, CONFIG_PATH_MAX, "%s/%s", here, name)
                     : snprintf(ret, CONFIG_PATH_MAX, "%s", name);

        return n < CONFIG_PATH_MAX ? 0 : -ENAMETOOLONG;
}

int sources_choose(struct sources *s, const char *named, enum sources_of whose,
                   char error[static CONFIG_ERROR_MAX])
{
        char folder[CONFIG_PATH_MAX];
        int r = 0;

        s->file[0] = '\0';
        s->named = named != NULL;
        if (named)
                r = sources_absolute(named, s->file);
        else if (whose == SOURCES_SYSTEM)
                (void)strcpy(s->file, SOURCES_SYSTEM_FILE);
        else if (whose == SOURCES_USER && user_folder(folder) == 0)
                r = snprintf(s->file, sizeof(s->file), "%s/%s", folder, USER_FILE) <
                                    (int)sizeof(s->file)
                            ? 0
                            : -ENAMETOOLONG;
        if (r < 0)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: the name is too long",
                               named ? named : folder);
        return r;
}

int sources_in(struct sources *s, const char *dir)
{
        return sources_absolute(dir, s->dir);
}

int sources_override(struct sources *s, const char *key, const char *value,
                     char error[static CONFIG_ERROR_MAX])
{
        struct source_override *bigger;
        struct config scratch;
        int r;

        config_default(&scratch);
        r = config_set(&scratch, key, value, error);
        config_free(&scratch);
        if (r < 0)
                return r;
        bigger = realloc(s->overrides, (s->n_overrides + 1) * sizeof(*bigger));
        if (!bigger)
                return -ENOMEM;
        s->overrides = bigger;
        s->overrides[s->n_overrides++] = (struct source_override){key, value};
        return 0;
}

/* ---- reading ---- */

static int fail(const char *path, int r, const char *why, char error[static CONFIG_ERROR_MAX])
{
        (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: %s", *path ? path : "''",
                       why ? why : strerror(-r));
        return r;
}

/* Opens a file. 0; -ENOENT; -EISDIR: it is no regular file; another -errno; all with a sentence.
 * guarded: no user may have written it. */
static int open_file(const char *path, bool guarded, FILE **ret,
                     char error[static CONFIG_ERROR_MAX])
{
        /* O_NONBLOCK: opening a FIFO must not wait. */
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return fail(path, -errno, NULL, error);
        if (!S_ISREG(st.st_mode))
                return fail(path, -EISDIR,
                            S_ISDIR(st.st_mode) ? "a directory, where a file is expected"
                                                : "not a regular file",
                            error);
        if (guarded && st.st_uid != 0 && st.st_uid != geteuid())
                return fail(path, -EPERM,
                            "another user owns it: give it to root (chown root) for a shared "
                            "daemon",
                            error);
        if (guarded && (st.st_mode & S_IWOTH))
                return fail(path, -EPERM,
                            "every user may write it: forbid that (chmod o-w) for a shared daemon",
                            error);
        *ret = fdopen(fd, "r");
        if (!*ret)
                return fail(path, -errno, NULL, error);
        (void)TAKE_FD(fd);
        return 0;
}

static int read_config(const char *path, bool guarded, struct config *c,
                       char error[static CONFIG_ERROR_MAX])
{
        _cleanup_fclose_ FILE *file = NULL;
        int r = open_file(path, guarded, &file, error);

        return r < 0 ? r : config_read(c, file, path, error);
}

static int is_drop_in(const struct dirent *e)
{
        size_t n = strlen(e->d_name);

        return e->d_name[0] != '.' && n > strlen(SUFFIX) &&
               strcmp(e->d_name + n - strlen(SUFFIX), SUFFIX) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_folder(const char *folder, bool guarded, struct config *c,
                       char error[static CONFIG_ERROR_MAX])
{
        char path[PATH_MAX_TMP];
        struct dirent **found = NULL;
        int n, r = 0;

        n = scandir(folder, &found, is_drop_in, by_name);
        if (n < 0)
                return errno == ENOENT ? 0 : fail(folder, -errno, NULL, error);
        for (int i = 0; i < n; i++) {
                if (r == 0) {
                        (void)snprintf(path, sizeof(path), "%s/%s", folder, found[i]->d_name);
                        r = read_config(path, guarded, c, error);
                        if (r == -EISDIR) /* a folder, or a link to /dev/null */
                                r = 0;
                }
                free(found[i]);
        }
        free(found);
        return r;
}

static int read_drop_ins(const struct sources *s, struct config *c,
                         char error[static CONFIG_ERROR_MAX])
{
        char folder[CONFIG_PATH_MAX + sizeof(DROP_INS)];

        (void)snprintf(folder, sizeof(folder), "%s%s", s->file, DROP_INS);
        return read_folder(folder, s->shared, c, error);
}

/* The directory of a private daemon may be one in /tmp that another user has made before. So its
 * owner is checked in any case. */
static int read_own(const struct sources *s, struct config *c, char error[static CONFIG_ERROR_MAX])
{
        char folder[CONFIG_PATH_MAX + sizeof("/" PATHS_CONFIG)];
        struct stat st;

        (void)snprintf(folder, sizeof(folder), "%s/" PATHS_CONFIG, s->dir);
        if (lstat(folder, &st) < 0)
                return errno == ENOENT || errno == ENOTDIR ? 0 : fail(folder, -errno, NULL, error);
        if (!S_ISDIR(st.st_mode))
                return fail(folder, -ENOTDIR, NULL, error);
        if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
                return fail(folder, -EPERM,
                            "other users may write it: only root's and the daemon's own user's "
                            "folder counts (chown root, chmod go-w)",
                            error);
        return read_folder(folder, true, c, error);
}

/* Programs read `require` themselves, in the machine's file alone, and obey it only if nobody but
 * root may write that file. A key that they do not obey is an error. */
static int check_require(const struct sources *s, bool of_file, const struct config *c,
                         char error[static CONFIG_ERROR_MAX])
{
        struct stat st;

        if (c->require != of_file || (c->require && strcmp(s->file, SOURCES_SYSTEM_FILE) != 0))
                return fail("require", -EINVAL,
                            "programs read this key in " SOURCES_SYSTEM_FILE
                            " alone, so it must stand there",
                            error);
        if (!c->require)
                return 0;
        if (stat(s->file, &st) < 0)
                return fail(s->file, -errno, NULL, error);
        if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH | S_IROTH)) != S_IROTH)
                return fail(s->file, -EPERM,
                            "programs obey the key require only if they can read the file, and "
                            "only root may write it (chown root, chmod go-w,go+r)",
                            error);
        return 0;
}

static int read_all(const struct sources *s, bool own, struct config *c,
                    char error[static CONFIG_ERROR_MAX])
{
        bool require = false;
        const char *last;
        int r = 0;

        if (s->file[0] || s->named) {
                r = read_config(s->file, s->shared, c, error);
                if (r == -ENOENT && !s->named)
                        r = 0;
                require = c->require;
                if (r == 0)
                        r = read_drop_ins(s, c, error);
        }
        if (r == 0 && own && s->dir[0])
                r = read_own(s, c, error);
        for (size_t i = 0; i < s->n_overrides && r == 0; i++)
                r = config_set(c, s->overrides[i].key, s->overrides[i].value, error);
        if (r == 0)
                r = check_require(s, require, c, error);
        last = c->classes.n_files ? c->classes.files[c->classes.n_files - 1] : "the command line";
        if (r == 0 && c->resource_config[0]) {
                _cleanup_fclose_ FILE *file = NULL;

                r = open_file(c->resource_config, s->shared, &file, error);
                if (r == 0)
                        r = resource_file_read(&c->classes, file, c->resource_config, error);
        }
        return r < 0 ? r : config_check(c, s->shared, last, error);
}

static int read_into(const struct sources *s, bool own, struct config *ret,
                     char error[static CONFIG_ERROR_MAX])
{
        struct config c;
        int r;

        config_default(&c);
        r = read_all(s, own, &c, error);
        if (r < 0)
                config_free(&c);
        else
                *ret = c;
        return r;
}

int sources_read(const struct sources *s, struct config *ret, char error[static CONFIG_ERROR_MAX])
{
        return read_into(s, true, ret, error);
}

int sources_read_first(const struct sources *s, struct config *ret,
                       char error[static CONFIG_ERROR_MAX])
{
        char again[CONFIG_ERROR_MAX];
        int r = read_into(s, true, ret, error);

        if (r == 0 || !s->dir[0])
                return r;
        return read_into(s, false, ret, again) == 0 ? 1 : r;
}
