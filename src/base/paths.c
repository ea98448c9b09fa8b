/* paths.c: owns the choice of the daemon's directory. Must never allocate. In a place where
 * others can write, must check the owner of a directory before it uses the directory. */
#include "base/paths.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Replaces glibc's stat(): a program that was built with it on a current machine needs GLIBC_2.33,
 * which old containers lack. The kernel's struct stat is the same as glibc's on the 64-bit machines
 * that sublet runs on. */
static int stat_path(const char *path, int flags, struct stat *ret)
{
        return syscall(SYS_newfstatat, AT_FDCWD, path, ret, flags) < 0 ? -errno : 0;
}

static int check_printed(int printed, size_t n)
{
        return printed < 0 || (size_t)printed >= n ? -ENAMETOOLONG : 0;
}

static const char *given(const char *text)
{
        return text && text[0] ? text : NULL;
}

static int put_dir(char *ret, size_t n, const char *dir)
{
        int r = check_printed(snprintf(ret, n, "%s", dir), n);

        return r < 0 || strlen(dir) >= PATHS_DIR_MAX ? -ENAMETOOLONG : 0;
}

int paths_join(const char *dir, const char *name, char *ret, size_t n)
{
        return check_printed(snprintf(ret, n, "%s/%s", dir, name), n);
}

int paths_check_private(const char *dir, uid_t uid)
{
        struct stat st;
        int r = stat_path(dir, AT_SYMLINK_NOFOLLOW, &st);

        if (r < 0)
                return r;
        if (!S_ISDIR(st.st_mode))
                return -ENOTDIR;
        if (st.st_uid != uid)
                return -EPERM;
        return st.st_mode & 077 ? -EACCES : 0;
}

int paths_make_private(const char *dir, uid_t uid)
{
        if (mkdir(dir, 0700) < 0 && errno != EEXIST)
                return -errno;
        return paths_check_private(dir, uid);
}

/* A runtime directory left over from another user's session (su, sudo -E) must not be used. */
static int runtime_usable(const struct paths_input *in)
{
        struct stat st;

        return given(in->runtime) && in->runtime[0] == '/' && stat_path(in->runtime, 0, &st) == 0 &&
               S_ISDIR(st.st_mode) && st.st_uid == in->uid;
}

int paths_private_dir(const struct paths_input *in, const char *suffix, char *ret, size_t n)
{
        char dir[PATHS_DIR_MAX];
        int r;

        if (runtime_usable(in)) {
                r = check_printed(snprintf(dir, sizeof(dir), "%s/sublet%s", in->runtime, suffix),
                                  sizeof(dir));
                if (r == 0)
                        return put_dir(ret, n, dir);
        }
        r = check_printed(snprintf(ret, n, "/tmp/sublet%s-%lu", suffix, (unsigned long)in->uid), n);
        return r < 0 || strlen(ret) >= PATHS_DIR_MAX ? -ENAMETOOLONG : 0;
}

int paths_choose(const struct paths_input *in, char *ret, size_t n, enum paths_kind *ret_kind)
{
        enum paths_kind kind = PATHS_PRIVATE;
        struct stat st;
        int r;

        if (given(in->named)) {
                kind = PATHS_NAMED;
                r = put_dir(ret, n, in->named);
        } else if (given(in->system) && stat_path(in->system, 0, &st) == 0 && S_ISDIR(st.st_mode)) {
                kind = PATHS_SYSTEM;
                r = put_dir(ret, n, in->system);
        } else {
                r = paths_private_dir(in, "", ret, n);
        }
        if (ret_kind)
                *ret_kind = kind;
        return r;
}

int paths_daemon_dir(const char *explicit_dir, char *ret, size_t n, enum paths_kind *ret_kind)
{
        struct paths_input in = {
                .named = given(explicit_dir) ? explicit_dir : setting_text(SETTING_DIR),
                .system = "/run/sublet",
                .runtime = getenv("XDG_RUNTIME_DIR"),
                .uid = getuid(),
        };

        return paths_choose(&in, ret, n, ret_kind);
}

const char *paths_option(char ret[static PATHS_OPTION_MAX])
{
        struct paths_input in = {.runtime = getenv("XDG_RUNTIME_DIR"), .uid = getuid()};
        const char *dir = given(setting_text(SETTING_DIR));
        char simulated[PATHS_DIR_MAX];

        *ret = 0;
        if (!dir)
                return ret;
        if (paths_private_dir(&in, "-sim", simulated, sizeof(simulated)) == 0 &&
            strcmp(dir, simulated) == 0)
                return strcpy(ret, " --sim");
        (void)snprintf(ret, PATHS_OPTION_MAX, " --daemon %s", dir);
        return ret;
}
