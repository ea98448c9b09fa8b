/* node_library.h: puts the library on the node, where containers get it from. Not thread-safe. */
#pragma once

/* Copies the file `from` to `library`, whose folder it makes, and writes `preload_file`, which
 * names the library's place in a container. Files of these names are replaced, not overwritten:
 * running containers keep what they have. 0; or -errno, after a message. */
int library_bring(const char *from, const char *library, const char *preload_file);
