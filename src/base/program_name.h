/* program_name.h: the name that people know a program by. */
#pragma once

#include <stddef.h>

/* Choose a name from a command line as in /proc: `length` bytes, with a NUL after each word. The
 * name is that of the file, for Python that of the script or module, for a Jupyter kernel that of
 * the notebook. Without one of these it is `fallback`. It is clean (base/text.h), and cut between
 * two characters. notebook: NULL if it is not known. */
void name_choose(const char *line, size_t length, const char *notebook, const char *fallback,
                 char *ret, size_t n);
