/* require.c: owns the reading of the owner's setting `require`. Must never obey a file that
 * somebody else than root may have written, nor take the file's name from the environment. */
#include "preload/process/require.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/units.h"

#define FILE_MOST (1 << 20)
#define BLANKS    " \t\r\v\f"
#define IS(text)  (text), sizeof(text) - 1

/* A piece of the file's text, without the blanks around it. */
struct piece {
        const char *at;
        size_t n;
};

static struct piece trim(const char *at, size_t n)
{
        while (n > 0 && strchr(BLANKS, at[0])) {
                at++;
                n--;
        }
        while (n > 0 && strchr(BLANKS, at[n - 1]))
                n--;
        return (struct piece){at, n};
}

static bool is(struct piece p, const char *word, size_t n)
{
        return p.n == n && memcmp(p.at, word, n) == 0;
}

static bool begins(struct piece p, const char *word, size_t n)
{
        return p.n >= n && memcmp(p.at, word, n) == 0;
}

/* The daemon reads the same file with libinih, which this library must not need. */
bool require_says_yes(const char *text, size_t n)
{
        const char *const end = text + n;
        bool in_daemon = false, yes = false;

        if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* the byte order mark of an editor */
                text += 3;

        while (text < end) {
                const char *stop = memchr(text, '\n', (size_t)(end - text));
                const struct piece line = trim(text, (size_t)((stop ? stop : end) - text));
                size_t key = 0;

                if (line.n > 0 && line.at[0] == '[')
                        in_daemon = begins(line, IS("[daemon]"));
                while (key < line.n && line.at[key] != '=' && line.at[key] != ':')
                        key++;
                if (in_daemon && key < line.n && is(trim(line.at, key), IS("require")))
                        yes = is(trim(line.at + key + 1, line.n - key - 1), IS("yes"));
                text = stop ? stop + 1 : end;
        }
        return yes;
}

enum says { SAYS_NOT_KNOWN, SAYS_NO, SAYS_YES };

/* Bare system calls, because the C library's are cancellation points, and the caller may hold the
 * lock. */
static enum says read_file(void)
{
        const int fd = (int)syscall(SYS_openat, AT_FDCWD, REQUIRE_FILE,
                                    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        _cleanup_free_ char *text = NULL;
        size_t n = 0;
        struct stat st;
        long got = 0;

        if (fd < 0)
                return errno == EMFILE || errno == ENFILE ? SAYS_NOT_KNOWN : SAYS_NO;
        if (syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode))
                text = malloc(FILE_MOST);
        while (text && n < FILE_MOST && (got = syscall(SYS_read, fd, text + n, FILE_MOST - n)) > 0)
                n += (size_t)got;
        (void)syscall(SYS_close, fd);
        if (!text)
                return SAYS_NO;
        if (!require_says_yes(text, n))
                return SAYS_NO;
        if (st.st_uid == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH)))
                return SAYS_YES;
        log_warning("%s: `require` does not hold, because others than root may write the file: "
                    "chown root, chmod go-w",
                    REQUIRE_FILE);
        return SAYS_NO;
}

static bool owner_says(void)
{
        static _Atomic int known;
        int says = known;

        if (says == SAYS_NOT_KNOWN)
                known = says = (int)read_file();
        return says == SAYS_YES;
}

bool require_daemon(void)
{
        return setting_is_on(SETTING_REQUIRE) || owner_says();
}

const char *require_sharing(void)
{
        if (owner_says())
                return "the owner of this machine requires sharing (" REQUIRE_FILE ")";
        if (setting_is_on(SETTING_REQUIRE))
                return "SUBLET_REQUIRE=1 is set";
        if (setting_text(SETTING_MEMORY_CAP))
                return "a memory cap is set";
        return NULL;
}

int require_cap(uint64_t *ret_bytes)
{
        const char *text = setting_text(SETTING_MEMORY_CAP);
        uint64_t bytes = 0;

        if (text && (units_parse_size(text, &bytes) < 0 || bytes == 0))
                return -EINVAL;
        *ret_bytes = bytes;
        return 0;
}
