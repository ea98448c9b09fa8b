/* program_name.c: owns the choice of a program's name by its command line. Must never pass on
 * control characters. */
#include "base/program_name.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"

const char *name_of_path(const char *path)
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
                        return name_of_path(word);
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

static bool is_shell(const char *name)
{
        static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ksh"};

        for (size_t i = 0; i < ARRAY_SIZE(shells); i++)
                if (strcmp(name, shells[i]) == 0)
                        return true;
        return false;
}

/* Returns the script in a shell's command line; NULL: none. */
static const char *shell_script(const char *word, const char *end)
{
        while ((word = next(word, end))) {
                const size_t n = strlen(word);

                if (word[0] != '-' && word[0] != '+')
                        return name_of_path(word);
                if (word[1] == '-') {
                        if (strcmp(word, "--rcfile") == 0 || strcmp(word, "--init-file") == 0)
                                word = next(word, end);
                } else if (strpbrk(word, "cs")) {
                        return NULL; /* the commands are the next word, or come from stdin */
                } else if (word[n - 1] == 'o' || word[n - 1] == 'O') {
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
                name = name_of_path(line);
        if (strncmp(name, "python", 6) == 0 && length > 0)
                script = python_script(line, line + length);
        else if (is_shell(name) && length > 0)
                script = shell_script(line, line + length);
        if (script && notebook && *notebook && strncmp(script, "ipykernel", 9) == 0)
                script = name_of_path(notebook);
        (void)text_copy(ret, n, script && *script ? script : name);
}

void name_of_words(char *const *words, char *ret, size_t n)
{
        char line[NAME_LINE_MAX];
        size_t used = 0;

        for (; *words && used + strlen(*words) < sizeof(line); words++) {
                (void)strcpy(line + used, *words);
                used += strlen(*words) + 1;
        }
        name_choose(line, used, NULL, "?", ret, n);
}
