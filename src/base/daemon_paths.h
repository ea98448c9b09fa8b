/* daemon_paths.h: which directory names the daemon.
 *
 * A daemon is named by the directory of its sockets. The first of these kinds that applies is used:
 *   NAMED    --daemon DIR, or SUBLET_DIR
 *   SYSTEM   /run/sublet, if it is a directory with a socket, or a mount, or if the machine's owner
 *            requires sharing; a program whose connection is refused there waits and tries again
 *   PRIVATE  the place where a daemon of this user answers (places.h); if none answers, the first
 *            of $XDG_RUNTIME_DIR/sublet, /run/user/UID/sublet and /tmp/sublet-UID. The first two
 *            count only if this user owns the directory above.
 *
 * A daemon may be started on demand in a PRIVATE directory, and in a NAMED one if
 * paths_check_private() answers 0 or -ENOENT. It is never started in a directory that others can
 * reach. Nothing here allocates or keeps state, and no glibc symbol past 2.17 is used, because the
 * preload library calls these functions. Thread-safe as far as getenv is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PATHS_SYSTEM_DIR "/run/sublet"
#define PATHS_LOGINS_DIR "/run/user" /* has a folder for each user who is logged in */
/* What the library, the command line and doctor advise if the machine's daemon is gone. */
#define PATHS_SYSTEM_START "`sudo systemctl start subletd` starts the machine's daemon"
#define PATHS_SYSTEM_REMEDY \
        PATHS_SYSTEM_START "; if there is to be none, `sudo rm -r " PATHS_SYSTEM_DIR "`"

#define PATHS_CLIENT_SOCKET  "client.sock"
#define PATHS_CONTROL_SOCKET "control.sock"
#define PATHS_STATUS_SOCKET  "status.sock" /* only a shared daemon has it */
#define PATHS_PUBLIC         "public"      /* a folder of a shared daemon: see daemon_folder.h */
#define PATHS_CONFIG         "conf.d"      /* a folder: what programs tell the daemon of tenants */
#define PATHS_LOG            "subletd.log" /* only a private daemon has it */
/* One more than the length of the longest directory whose sockets fit sockaddr_un.sun_path, which
 * has 108 bytes with the NUL. */
#define PATHS_DIR_MAX    95
#define PATHS_OPTION_MAX (PATHS_DIR_MAX + 16)

enum paths_kind { PATHS_NAMED, PATHS_SYSTEM, PATHS_PRIVATE };

/* The input of the choice. Empty strings count as absent. */
struct paths_input {
        const char *named;   /* --daemon or SUBLET_DIR; NULL for none */
        const char *system;  /* PATHS_SYSTEM_DIR; NULL: the machine's daemon is not looked for */
        const char *runtime; /* XDG_RUNTIME_DIR; NULL for none */
        const char *logins;  /* PATHS_LOGINS_DIR; NULL: not looked at */
        uid_t uid;
        bool required; /* the machine's owner requires sharing (owner.h): no private daemon */
};

/* Chooses the daemon's directory for this process. explicit_dir (--daemon) overrides SUBLET_DIR;
 * NULL: the option was not given. 0, or -ENAMETOOLONG: the name is too long for the address of a
 * socket, or for ret, which has n bytes; then ret holds the beginning of the name, for a message.
 * ret_kind may be NULL. */
int paths_daemon_dir(const char *explicit_dir, char *ret, size_t n, enum paths_kind *ret_kind);

/* Returns advice for a person if the machine's daemon is gone. */
const char *paths_system_remedy(void);

/* Returns this process's input, with SUBLET_DIR as the name. */
struct paths_input paths_input_here(void);

/* Chooses as paths_daemon_dir() does, but from an explicit input. Reads the file system, but not
 * the environment, and asks no daemon: for PRIVATE it names the place where a daemon would be
 * started. */
int paths_choose(const struct paths_input *in, char *ret, size_t n, enum paths_kind *ret_kind);

/* The places of private directories, in the order in which they are looked at. */
enum paths_place { PATHS_AT_RUNTIME, PATHS_AT_LOGIN, PATHS_AT_TMP, PATHS_PLACES };

/* Builds the name of the directory "sublet" + suffix at a place; looks at no file. 0; -ENOENT: the
 * input has no such place; or -ENAMETOOLONG. */
int paths_private_name(const struct paths_input *in, enum paths_place place, const char *suffix,
                       char *ret, size_t n);
/* Does what paths_private_name() does, but returns -ENOENT also if the user does not own the
 * directory above (/tmp is not checked). The directory itself need not exist. */
int paths_private_at(const struct paths_input *in, enum paths_place place, const char *suffix,
                     char *ret, size_t n);

/* Builds the name of the private directory "sublet" + suffix at the first place that the user owns:
 * $XDG_RUNTIME_DIR/sublet-sim for "-sim", or /tmp/sublet-sim-UID. 0 or -ENAMETOOLONG. */
int paths_private_dir(const struct paths_input *in, const char *suffix, char *ret, size_t n);

/* Works as stat(2), with the flags of fstatat(2). 0 or -errno. */
struct stat;
int paths_stat(const char *path, int flags, struct stat *ret);

/* Writes the option with which `sublet status` in any terminal asks the daemon of this process: "",
 * " --sim" or " --daemon DIR". Returns ret. */
const char *paths_option(char ret[static PATHS_OPTION_MAX]);

/* Joins dir and name with a slash. 0, or -ENAMETOOLONG: the path does not fit ret. */
int paths_join(const char *dir, const char *name, char *ret, size_t n);

/* Checks who can enter a directory. 0: it is a directory (no link) of this user, and no other user
 * can enter. -ENOENT: it does not exist. -ENOTDIR: it is something else. -EPERM: another user owns
 * it. -EACCES: others may enter it. */
int paths_check_private(const char *dir, uid_t uid);

/* Creates dir with mode 0700, or accepts it if it exists. 0, an error of paths_check_private(), or
 * -errno of mkdir. */
int paths_make_private(const char *dir, uid_t uid);
