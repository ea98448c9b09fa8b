/* doctor_line.h: the first line that another program prints. */
#pragma once

#include <stddef.h>

/* Runs a command with `preload` in LD_PRELOAD (NULL: as it is), and reads the first line that it
 * prints, to stdout or stderr; "": none. argv ends with NULL. Returns the exit status; 255: a
 * signal ended it; or -errno. */
int line_of(const char *const argv[], const char *preload, char *ret, size_t n);
