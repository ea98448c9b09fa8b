/* unshared.h: programs into which the loader does not load libsublet.so. */
#pragma once

#include <stdbool.h>

/* Call it right before execvp() of this command. If the program would not share the GPU, prints a
 * sentence with the reason to stderr, but not with SUBLET_QUIET=1. If it would not even start with
 * libsublet.so, takes the library out of LD_PRELOAD. Does nothing if the file cannot be read. */
void unshared_tell(const char *command);

/* True if the program in this file is built for the C library musl. */
bool unshared_is_musl(const char *path);
