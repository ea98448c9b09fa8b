/* name.c: owns the choice of the program's name in `sublet status`. Must never change the program's
 * own data, nor pass on control characters. */
#include "preload/process/name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/settings.h"
#include "base/text.h"

#define LINE_MAX_BYTES 4096 /* bytes read of a command line; the script comes early */

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash && slash[1] ? slash + 1 : path;
}

/* Returns the word after `word`; NULL: that was the last one. */
static const char *next(const char *word, const char *end)
{
        word += strlen(word) + 1;
        return word < end ? word : NULL;
}

/* Returns the script or module in Python's command line; NULL: none (interactive, or code in the
 * command line). https://docs.python.org/3/using/cmdline.html */
static const char *python_script(const char *word, const char *end)
{
        while ((word = next(word, end))) {
                const char *letter = word + 1;

                if (word[0] != '-')
                        return base_name(word);
                if (strcmp(word, "--check-hash-based-pycs") == 0) {
                        word = next(word, end);
                } else if (word[1] != '-') {
                        letter += strcspn(letter, "cmWX");
                        if (*letter == 'c' || word[1] == '\0')
                                return NULL;
                        if (*letter == 'm')
                                return letter[1] ? letter + 1 : next(word, end);
                        if (*letter && !letter[1])
                                word = next(word, end);
                }
                if (!word)
                        return NULL;
        }
        return NULL;
}

void name_choose(const char *line, size_t length, const char *notebook, const char *fallback,
                 char *ret, size_t n)
{
        const char *name = fallback, *script = NULL;

        /* Drop the last word of a truncated line: it is not complete. */
        while (length > 0 && line[length - 1] != '\0')
                length--;
        if (length > 0 && line[0])
                name = base_name(line);
        if (strncmp(name, "python", 6) == 0 && length > 0)
                script = python_script(line, line + length);
        if (script && notebook && *notebook && strncmp(script, "ipykernel", 9) == 0)
                script = base_name(notebook);
        (void)text_copy(ret, n, script && *script ? script : name);
}

void name_of_program(char *ret, size_t n)
{
        const char *said = setting_text(SETTING_NAME);
        extern char *program_invocation_short_name;
        _cleanup_close_ int fd = -EBADF;
        char line[LINE_MAX_BYTES];
        ssize_t length = 0;

        if (said) {
                name_choose("", 0, NULL, said, ret, n);
                return;
        }
        fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
                length = read(fd, line, sizeof(line));
        /* Jupyter's server sets JPY_SESSION_NAME for its kernels (get_kernel_env() of its session
         * manager). */
        name_choose(line, length > 0 ? (size_t)length : 0, getenv("JPY_SESSION_NAME"),
                    program_invocation_short_name, ret, n);
}
