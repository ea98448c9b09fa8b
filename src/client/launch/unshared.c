/* unshared.c: owns the look at a program's file before the program runs. Must never keep the
 * program from running, nor print anything if the file gives no reason to.
 * Why: docs/decisions.md, "The library does not watch what a shell starts". */
#include "client/launch/unshared.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/preload_list.h"
#include "base/settings.h"
#include "client/common/cli.h"

#define SCRIPTS_MAX 5 /* limit on scripts that run scripts, as in the kernel */
#define HEADERS_MAX 128

static bool is_program(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Finds the file of a command as execvp() does. False: not found. */
static bool find_program(const char *command, char ret[static PATH_MAX])
{
        _cleanup_free_ char *copy = NULL;
        const char *path = getenv("PATH");
        char *rest, *folder;

        if (strchr(command, '/'))
                return snprintf(ret, PATH_MAX, "%s", command) < PATH_MAX && is_program(ret);
        rest = copy = strdup(path ? path : "/bin:/usr/bin");
        while (copy && (folder = strsep(&rest, ":")))
                if (snprintf(ret, PATH_MAX, "%s/%s", *folder ? folder : ".", command) < PATH_MAX &&
                    is_program(ret))
                        return true;
        return false;
}

/* True if the program gets other privileges: the loader ignores LD_PRELOAD for such a program
 * (ld.so(8), "secure-execution mode"). A file's capabilities give root no other privileges. */
static bool changes_privileges(int fd)
{
        struct stat st;
        struct statvfs fs;

        if (fstat(fd, &st) < 0 || (fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_NOSUID)) ||
            prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
                return false;
        return ((st.st_mode & S_ISUID) && st.st_uid != getuid()) ||
               ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid()) ||
               (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

enum linking { LINKING_NOT_KNOWN, LINKING_STATIC, LINKING_MUSL, LINKING_GLIBC };

static enum linking linking_of(int fd, const char *path)
{
        Elf64_Ehdr e;
        Elf64_Phdr p;
        char loader[PATH_MAX] = "";

        if (pread(fd, &e, sizeof(e), 0) != sizeof(e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
            e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_phentsize != sizeof(p) ||
            e.e_phnum > HEADERS_MAX)
                return LINKING_NOT_KNOWN;
        for (unsigned i = 0; i < e.e_phnum; i++) {
                if (pread(fd, &p, sizeof(p), (off_t)(e.e_phoff + i * sizeof(p))) != sizeof(p))
                        return LINKING_NOT_KNOWN;
                if (p.p_type != PT_INTERP)
                        continue;
                if (p.p_filesz == 0 || p.p_filesz >= sizeof(loader) ||
                    pread(fd, loader, p.p_filesz, (off_t)p.p_offset) != (ssize_t)p.p_filesz)
                        return LINKING_NOT_KNOWN;
                return strncmp(base_name(loader), "ld-musl", 7) == 0 ? LINKING_MUSL : LINKING_GLIBC;
        }
        /* A file without an interpreter may be the dynamic loader, which preloads as usual. */
        return strncmp(base_name(path), "ld", 2) == 0 ? LINKING_NOT_KNOWN : LINKING_STATIC;
}

bool unshared_is_musl(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

        return fd >= 0 && linking_of(fd, path) == LINKING_MUSL;
}

/* Finds the interpreter of a script. False: the file is no script. */
static bool find_interpreter(int fd, char ret[static PATH_MAX])
{
        char line[257];
        ssize_t n = pread(fd, line, sizeof(line) - 1, 0);
        size_t begin, length;

        if (n < 3 || line[0] != '#' || line[1] != '!')
                return false;
        line[n] = '\0';
        line[strcspn(line, "\n")] = '\0';
        begin = 2 + strspn(line + 2, " \t");
        length = strcspn(line + begin, " \t");
        if (length == 0)
                return false;
        (void)snprintf(ret, PATH_MAX, "%.*s", (int)length, line + begin);
        return true;
}

/* Opens the file that the kernel executes for a command: for a script, its interpreter. -1: it
 * cannot be found out. */
static int open_program(const char *command, char path[static PATH_MAX])
{
        if (!find_program(command, path))
                return -1;
        for (int scripts = 0; scripts <= SCRIPTS_MAX; scripts++) {
                _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
                char next[PATH_MAX];

                if (fd < 0)
                        return -1;
                if (!find_interpreter(fd, next))
                        return TAKE_FD(fd);
                (void)strcpy(path, next);
        }
        return -1;
}

static void leave_library_out(void)
{
        _cleanup_free_ char *rest = preload_list(getenv("LD_PRELOAD"), NULL);

        if (!rest || (*rest ? setenv("LD_PRELOAD", rest, 1) : unsetenv("LD_PRELOAD")) < 0)
                (void)cli_fail(CLI_FAILED, "cannot set the environment: %m");
}

void unshared_tell(const char *command)
{
        const bool quiet = setting_is_on(SETTING_QUIET);
        char path[PATH_MAX];
        _cleanup_close_ int fd = open_program(command, path);

        switch (fd < 0 ? LINKING_NOT_KNOWN : linking_of(fd, path)) {
        case LINKING_STATIC:
                if (!quiet)
                        (void)cli_fail(CLI_OK,
                                       "%s is statically linked, so libsublet.so is not loaded and "
                                       "it runs without sharing; use a dynamically linked build",
                                       path);
                break;
        case LINKING_MUSL:
                if (!quiet)
                        (void)cli_fail(CLI_OK,
                                       "%s is built for the C library musl, so it starts without "
                                       "libsublet.so, and neither it nor what it starts shares the "
                                       "GPU; use a build for glibc",
                                       path);
                leave_library_out(); /* musl's loader would end the program over it */
                break;
        case LINKING_GLIBC:
                if (!quiet && changes_privileges(fd))
                        (void)cli_fail(CLI_OK,
                                       "%s gets privileges from its file, so libsublet.so is not "
                                       "loaded and it runs without sharing; start sublet from "
                                       "within, as in 'sudo sublet run'",
                                       path);
                break;
        case LINKING_NOT_KNOWN:
                break;
        }
}
