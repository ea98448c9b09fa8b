/* texts.c: owns how configuration files are opened, and how their contents are kept together. Must
 * never accept, for a daemon of many users, a file that one of them may have written. */
#include "daemon/setup/texts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"

#define NAME_MAX_HERE 4096

void texts_free(struct texts *t)
{
        for (size_t i = 0; i < t->n; i++) {
                free(t->list[i].name);
                free(t->list[i].bytes);
        }
        free(t->list);
        *t = (struct texts){0};
}

/* Takes the bytes over, even if it fails. 0, -ENOMEM. */
static int add(struct texts *t, enum text_form form, const char *name, size_t name_n, char *bytes,
               size_t n)
{
        struct text *bigger = realloc(t->list, (t->n + 1) * sizeof(*bigger));
        char *copy = strndup(name, name_n);

        if (bigger)
                t->list = bigger;
        if (!bigger || !copy) {
                free(copy);
                free(bytes);
                return -ENOMEM;
        }
        t->list[t->n++] = (struct text){form, copy, bytes, n};
        return 0;
}

static int check(const char *path, const struct stat *st, bool guarded,
                 char error[static CONFIG_ERROR_MAX])
{
        if (!S_ISREG(st->st_mode))
                return texts_refuse(path, -EISDIR,
                                    S_ISDIR(st->st_mode) ? "a directory, where a file is expected"
                                                         : "not a regular file",
                                    error);
        if (guarded && st->st_uid != 0 && st->st_uid != geteuid())
                return texts_refuse(
                        path, -EPERM,
                        "another user owns it: give it to root (chown root) for a shared "
                        "daemon",
                        error);
        if (guarded && (st->st_mode & S_IWOTH))
                return texts_refuse(
                        path, -EPERM,
                        "every user may write it: forbid that (chmod o-w) for a shared daemon",
                        error);
        return 0;
}

/* Reads until the end. 0, -EFBIG, -ENOMEM, -errno. */
static int read_whole(int fd, char **ret_bytes, size_t *ret_n)
{
        _cleanup_free_ char *bytes = NULL;
        size_t room = 0, n = 0;
        ssize_t got;

        do {
                if (n == room) {
                        char *bigger = realloc(bytes, room = MAX(2 * room, (size_t)4096));

                        if (!bigger)
                                return -ENOMEM;
                        bytes = bigger;
                }
                got = read(fd, bytes + n, room - n);
                if (got < 0 && errno != EINTR)
                        return -errno;
                n += got > 0 ? (size_t)got : 0;
                if (n > TEXTS_FILE_MAX)
                        return -EFBIG;
        } while (got != 0);
        *ret_bytes = TAKE_PTR(bytes);
        *ret_n = n;
        return 0;
}

int texts_read(struct texts *t, enum text_form form, const char *path, bool guarded,
               char error[static CONFIG_ERROR_MAX])
{
        /* O_NONBLOCK: opening a FIFO must not wait. */
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        char *bytes = NULL;
        struct stat st;
        size_t n = 0;
        int r;

        if (fd < 0 || fstat(fd, &st) < 0)
                return texts_refuse(path, -errno, NULL, error);
        r = check(path, &st, guarded, error);
        if (r < 0)
                return r;
        r = read_whole(fd, &bytes, &n);
        if (r == 0)
                r = add(t, form, path, strlen(path), bytes, n);
        return r < 0 ? texts_refuse(path, r, NULL, error) : 0;
}

const struct text *texts_find(const struct texts *t, enum text_form form, const char *name)
{
        for (size_t i = 0; i < t->n; i++)
                if (t->list[i].form == form && strcmp(t->list[i].name, name) == 0)
                        return &t->list[i];
        return NULL;
}

/* ---- all in one ---- */

/* A line "FORM BYTES-OF-THE-NAME BYTES" stands before each name and its text, and END behind the
 * last, so that a file that was cut short is seen. */
#define HEAD "%d %zu %zu\n"
#define END  "end\n"

char *texts_pack(const struct texts *t, size_t *ret_n)
{
        char *bytes = NULL;
        FILE *out = open_memstream(&bytes, ret_n);
        bool bad;

        if (!out)
                return NULL;
        for (size_t i = 0; i < t->n; i++) {
                const struct text *x = &t->list[i];

                (void)fprintf(out, HEAD "%s\n", (int)x->form, strlen(x->name), x->n, x->name);
                (void)fwrite(x->bytes, 1, x->n, out);
                (void)fputc('\n', out);
        }
        (void)fputs(END, out);
        bad = ferror(out);
        if (fclose(out) != 0 || bad) {
                free(bytes);
                return NULL;
        }
        return bytes;
}

/* Reads one text. Returns the bytes that it takes; -EBADMSG, -ENOMEM. */
static ssize_t unpack_one(const char *bytes, size_t n, struct texts *t)
{
        const char *stop = memchr(bytes, '\n', MIN(n, (size_t)64));
        size_t name_n, text_n, head;
        char line[64], *copy;
        int form, end = 0;

        if (!stop)
                return -EBADMSG;
        head = (size_t)(stop - bytes) + 1;
        (void)snprintf(line, sizeof(line), "%.*s", (int)(head - 1), bytes);
        if (sscanf(line, "%d %zu %zu%n", &form, &name_n, &text_n, &end) != 3 || line[end] ||
            (form != TEXT_SETTINGS && form != TEXT_RESOURCES) || name_n > NAME_MAX_HERE ||
            text_n > TEXTS_FILE_MAX || n - head < name_n + text_n + 2)
                return -EBADMSG;
        copy = malloc(text_n + 1);
        if (!copy)
                return -ENOMEM;
        memcpy(copy, bytes + head + name_n + 1, text_n);
        if (add(t, (enum text_form)form, bytes + head, name_n, copy, text_n) < 0)
                return -ENOMEM;
        return (ssize_t)(head + name_n + text_n + 2);
}

int texts_unpack(const char *bytes, size_t n, struct texts *ret)
{
        _cleanup_texts_ struct texts t = {0};

        while (n != strlen(END) || memcmp(bytes, END, n) != 0) {
                ssize_t used = unpack_one(bytes, n, &t);

                if (used < 0)
                        return (int)used;
                bytes += used;
                n -= (size_t)used;
        }
        *ret = t;
        t = (struct texts){0};
        return 0;
}
