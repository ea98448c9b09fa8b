/* xdg.h: where a user's files are, by the XDG Base Directory Specification 0.8. Thread-safe as far
 * as getenv is; uses no glibc symbol past 2.17, because the preload library calls it. */
#pragma once

#include <stddef.h>

enum xdg { XDG_CONFIG, XDG_DATA, XDG_STATE, XDG_CACHE };

/* Writes the folder for this kind of files, which need not exist. 0: its variable names it; 1: it
 * is below HOME, because the variable holds no absolute path; -ENOENT: HOME holds none either;
 * -ENAMETOOLONG. */
int xdg_folder(enum xdg kind, char *ret, size_t size);
