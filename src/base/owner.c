/* owner.c: owns the reading of the owner's setting `require`. Must never obey a file that somebody
 * else than root may have written, nor take the file's name from the environment. */
#include "base/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

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

/* The daemon reads the same file with libinih, which libsublet.so must not need. */
bool owner_text_requires(const char *text, size_t n)
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

/* Makes bare system calls: those of the C library are cancellation points, and the caller may hold
 * a lock. */
enum owner_says owner_requires(void)
{
        const int fd = (int)syscall(SYS_openat, AT_FDCWD, OWNER_FILE,
                                    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        _cleanup_free_ char *text = NULL;
        size_t n = 0;
        struct stat st;
        long got = 0;

        if (fd < 0)
                return errno == EMFILE || errno == ENFILE ? OWNER_NOT_KNOWN : OWNER_SAYS_NO;
        if (syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode))
                text = malloc(FILE_MOST);
        while (text && n < FILE_MOST && (got = syscall(SYS_read, fd, text + n, FILE_MOST - n)) > 0)
                n += (size_t)got;
        (void)syscall(SYS_close, fd);
        if (!text || !owner_text_requires(text, n))
                return OWNER_SAYS_NO;
        if (st.st_uid == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH)))
                return OWNER_SAYS_YES;
        return OWNER_IN_DOUBT;
}
