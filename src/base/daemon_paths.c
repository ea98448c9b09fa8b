/* daemon_paths.c: owns the choice of the daemon's directory. Must never allocate. In a place where
 * others can write, must check the owner of a directory before it uses the directory.
 * Why: docs/decisions.md, "A socket says that the machine has a daemon". */
#include "base/daemon_paths.h"
#include "base/macros.h"
#include "base/owner.h"
#include "base/places.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Replaces glibc's stat(): a program that was built with it on a current machine needs GLIBC_2.33,
 * which old containers lack. The kernel's struct stat is the same as glibc's on the 64-bit machines
 * that sublet runs on. */
int paths_stat(const char *path, int flags, struct stat *ret)
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

/* printed: the result of snprintf(), which wrote a directory's name. */
static int check_dir(int printed, size_t n)
{
        return printed >= PATHS_DIR_MAX ? -ENAMETOOLONG : check_printed(printed, n);
}

static int put_dir(char *ret, size_t n, const char *dir)
{
        return check_dir(snprintf(ret, n, "%s", dir), n);
}

int paths_join(const char *dir, const char *name, char *ret, size_t n)
{
        return check_printed(snprintf(ret, n, "%s/%s", dir, name), n);
}

int paths_check_private(const char *dir, uid_t uid)
{
        struct stat st;
        int r = paths_stat(dir, AT_SYMLINK_NOFOLLOW, &st);

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
static int check_own(const char *dir, uid_t uid)
{
        struct stat st;

        return paths_stat(dir, 0, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == uid ? 0
                                                                                       : -ENOENT;
}

int paths_private_name(const struct paths_input *in, enum paths_place place, const char *suffix,
                       char *ret, size_t n)
{
        const char *above = given(place == PATHS_AT_RUNTIME ? in->runtime : in->logins);
        const unsigned long uid = (unsigned long)in->uid;

        if (place == PATHS_AT_TMP)
                return check_dir(snprintf(ret, n, "/tmp/sublet%s-%lu", suffix, uid), n);
        if (!above || above[0] != '/')
                return -ENOENT;
        if (place == PATHS_AT_RUNTIME)
                return check_dir(snprintf(ret, n, "%s/sublet%s", above, suffix), n);
        return check_dir(snprintf(ret, n, "%s/%lu/sublet%s", above, uid, suffix), n);
}

int paths_private_at(const struct paths_input *in, enum paths_place place, const char *suffix,
                     char *ret, size_t n)
{
        char above[PATHS_DIR_MAX], *slash;
        int r = paths_private_name(in, place, suffix, ret, n);

        if (r < 0 || place == PATHS_AT_TMP)
                return r;
        (void)snprintf(above, sizeof(above), "%s", ret);
        slash = strrchr(above, '/');
        if (slash)
                *slash = '\0';
        return check_own(above, in->uid);
}

int paths_private_dir(const struct paths_input *in, const char *suffix, char *ret, size_t n)
{
        int r = -ENOENT;

        for (int place = 0; place < PATHS_PLACES && r < 0; place++)
                r = paths_private_at(in, (enum paths_place)place, suffix, ret, n);
        return r;
}

/* True if the machine's daemon uses the directory. A daemon that ends removes its sockets, so a
 * directory without sockets is left over. A mount counts without sockets: a container may see the
 * sockets come and go. */
static bool is_systems(const char *dir)
{
        static const char *const sockets[] = {PATHS_CLIENT_SOCKET, PATHS_STATUS_SOCKET,
                                              PATHS_CONTROL_SOCKET};
        char path[PATHS_DIR_MAX + 32];
        struct stat st, above;

        if (paths_stat(dir, 0, &st) < 0 || !S_ISDIR(st.st_mode))
                return false;
        for (size_t i = 0; i < ARRAY_SIZE(sockets); i++) {
                struct stat socket;

                if (paths_join(dir, sockets[i], path, sizeof(path)) < 0 ||
                    paths_stat(path, 0, &socket) != -ENOENT)
                        return true;
        }
        return paths_join(dir, "..", path, sizeof(path)) < 0 || paths_stat(path, 0, &above) < 0 ||
               above.st_dev != st.st_dev;
}

int paths_choose(const struct paths_input *in, char *ret, size_t n, enum paths_kind *ret_kind)
{
        enum paths_kind kind = PATHS_PRIVATE;
        int r;

        if (given(in->named)) {
                kind = PATHS_NAMED;
                r = put_dir(ret, n, in->named);
        } else if (given(in->system) && (in->required || is_systems(in->system))) {
                kind = PATHS_SYSTEM;
                r = put_dir(ret, n, in->system);
        } else {
                r = paths_private_dir(in, "", ret, n);
        }
        if (ret_kind)
                *ret_kind = kind;
        return r;
}

const char *paths_system_remedy(void)
{
        return owner_requires() == OWNER_SAYS_YES ? PATHS_SYSTEM_START
                       "; if there is to be none, take `require` out of " OWNER_FILE
                                                  : PATHS_SYSTEM_REMEDY;
}

struct paths_input paths_input_here(void)
{
        return (struct paths_input){
                .named = setting_text(SETTING_DIR),
                .system = PATHS_SYSTEM_DIR,
                .runtime = getenv("XDG_RUNTIME_DIR"),
                .logins = PATHS_LOGINS_DIR,
                .uid = getuid(),
        };
}

int paths_daemon_dir(const char *explicit_dir, char *ret, size_t n, enum paths_kind *ret_kind)
{
        struct paths_input in = paths_input_here();
        enum paths_kind kind;
        int r;

        if (given(explicit_dir))
                in.named = explicit_dir;
        in.required = !given(in.named) && owner_requires() == OWNER_SAYS_YES;
        r = paths_choose(&in, ret, n, &kind);
        if (r == 0 && kind == PATHS_PRIVATE)
                places_find(&in, ret, n);
        if (ret_kind)
                *ret_kind = kind;
        return r;
}

const char *paths_option(char ret[static PATHS_OPTION_MAX])
{
        const struct paths_input in = paths_input_here();
        const char *dir = given(in.named);
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
