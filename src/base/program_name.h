/* program_name.h: the name that people know a program by. */
#pragma once

#include <stddef.h>

#define NAME_LINE_MAX 4096 /* bytes of a command line that are read; the script comes early */

/* Returns the last part of a path; the whole path if it ends with '/'. */
const char *name_of_path(const char *path);

/* Chooses a name from a command line as in /proc: `length` bytes, with a NUL after each word. The
 * name is that of the file, for Python that of the script or module, for a shell that of its
 * script, for a Jupyter kernel that of the notebook. Without one of these it is `fallback`. It is
 * clean (base/text.h), and cut between two characters. notebook: NULL if it is not known. */
void name_choose(const char *line, size_t length, const char *notebook, const char *fallback,
                 char *ret, size_t n);

/* Chooses a name as name_choose() does, but from the words of a command that is to be started. A
 * NULL ends the words. */
void name_of_words(char *const *words, char *ret, size_t n);
