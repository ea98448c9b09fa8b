/* name.h: the program's name where SUBLET_NAME does not give one. */
#pragma once

#include <stddef.h>

/* From a command line as /proc shows it, length bytes with a NUL after each word: the file's name;
 * of Python, which would make all programs alike, that of its script or module; of a kernel of
 * Jupyter's that of its notebook (NULL: not known). What is not plain ASCII is shown as '?'.
 * fallback: where the command line says nothing. */
void name_choose(const char *line, size_t length, const char *notebook, const char *fallback,
                 char *ret, size_t n);

/* This program's: SUBLET_NAME, or as above. */
void name_of_program(char *ret, size_t n);
