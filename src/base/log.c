/* log.c: owns the level and the tag. Must never allocate: the preload library logs from anywhere.
 * Must never wait for the reader: a daemon whose log is full goes on without a log. */
#include "base/log.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const char *const log_kind_names[] = {"error", "warning", "notice", "info", "debug"};

static const char *log_tag = "sublet";

/* People who start programs see these lines, so only warnings and errors name their level. */
static int begin_with_tag(char *line, size_t n, enum log_kind kind)
{
        const bool trouble = kind <= LOG_KIND_WARNING;

        return snprintf(line, n, "%s[%d]: %s%s", log_tag, (int)getpid(),
                        trouble ? log_kind_names[kind] : "", trouble ? ": " : "");
}

static int (*begin_line)(char *line, size_t n, enum log_kind kind) = begin_with_tag;
static _Atomic int log_level = LOG_LEVEL_WARNING;

void log_open(const char *tag, enum log_level default_level)
{
        const char *wanted = setting_text(SETTING_LOG);
        int level = wanted ? setting_place(SETTING_LOG, wanted) : -ENOENT;

        log_tag = tag;
        atomic_store_explicit(&log_level, level >= 0 ? level : (int)default_level,
                              memory_order_relaxed);
        if (wanted && level < 0)
                setting_refuse(SETTING_LOG, wanted);
}

void log_begin_lines(int (*before)(char *line, size_t n, enum log_kind kind))
{
        begin_line = before;
}

int log_enabled(enum log_level level)
{
        return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* ---- stderr ---- */

/* What stderr was when the library was loaded. */
static struct {
        bool known;
        bool open;
        struct stat file;
} loaded_with;

/* Makes a bare system call, because the C library may not be set up yet (cpus.c). */
static bool look(int fd, struct stat *ret)
{
        return syscall(SYS_fstat, fd, ret) == 0;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

void log_guard_stderr(void)
{
        loaded_with.open = look(STDERR_FILENO, &loaded_with.file);
        loaded_with.known = true;
}

/* True if lines may go to stderr. A program may have put another file there with dup2(). Lines go
 * to it only if the programs that it starts inherit it, and if it is a terminal, a pipe, a socket
 * or stdout's file: any other file may hold the program's data. */
bool log_has_stderr(void)
{
        struct stat now, out;
        struct winsize size;
        long flags;

        if (!loaded_with.known)
                return true;
        if (!look(STDERR_FILENO, &now))
                return false;
        if (loaded_with.open && is_same(&now, &loaded_with.file))
                return true;
        flags = syscall(SYS_fcntl, STDERR_FILENO, F_GETFD, 0);
        if (flags < 0 || flags & FD_CLOEXEC)
                return false;
        if (syscall(SYS_ioctl, STDERR_FILENO, TIOCGWINSZ, &size) == 0)
                return true;
        return loaded_with.open && (S_ISFIFO(now.st_mode) || S_ISSOCK(now.st_mode) ||
                                    (look(STDOUT_FILENO, &out) && is_same(&now, &out)));
}

/* True if a line can be written without waiting: a pipe is ready if it has 4096 free bytes, and a
 * line is shorter. */
static bool can_write(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        struct timespec now = {0};
        const long n = syscall(SYS_ppoll, &p, 1, &now, NULL, 0);
        fd_set set;

        if (n >= 0)
                return n == 1 && p.revents & POLLOUT;
        /* A sandbox may forbid ppoll(2); a warning about that must still come out. */
        FD_ZERO(&set);
        FD_SET(fd, &set);
        return syscall(SYS_pselect6, fd + 1, NULL, &set, NULL, &now, NULL) == 1;
}

static __attribute__((format(printf, 2, 0))) void write_line(enum log_kind kind, const char *format,
                                                             va_list args)
{
        char line[1024];
        int saved = errno, used, more;

        used = begin_line(line, sizeof(line), kind);
        more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
        if (more > 0)
                used += more;
        if (used > (int)sizeof(line) - 2)
                used = (int)sizeof(line) - 2;
        line[used++] = '\n';
        if (log_has_stderr() && can_write(STDERR_FILENO))
                /* Not write(), nor poll() above: both are cancellation points, and the caller may
                 * hold locks. */
                (void)syscall(SYS_write, STDERR_FILENO, line, (size_t)used);
        errno = saved;
}

void log_write(enum log_level level, const char *format, ...)
{
        static const enum log_kind kinds[] = {[LOG_LEVEL_ERROR] = LOG_KIND_ERROR,
                                              [LOG_LEVEL_WARNING] = LOG_KIND_WARNING,
                                              [LOG_LEVEL_INFO] = LOG_KIND_INFO,
                                              [LOG_LEVEL_DEBUG] = LOG_KIND_DEBUG};
        va_list args;

        if (!log_enabled(level))
                return;
        va_start(args, format);
        write_line(kinds[level], format, args);
        va_end(args);
}

void log_notice(const char *format, ...)
{
        va_list args;

        if (!log_enabled(LOG_LEVEL_WARNING))
                return;
        va_start(args, format);
        write_line(LOG_KIND_NOTICE, format, args);
        va_end(args);
}
