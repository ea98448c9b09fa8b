/* folders.h: makes folders. Thread-safe. */
#pragma once

#include <sys/types.h>

/* Makes the folder, and those above it that are missing. 0 or -errno; then path is cut after the
 * folder that could not be made. */
int folders_make(char *path, mode_t mode);
