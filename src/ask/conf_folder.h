/* conf_folder.h: puts files into the daemon's folder conf.d, which only the daemon's user and root
 * may read: they name pods and jobs. Used by the programs for clusters. */
#pragma once

#include <stddef.h>

/* Replaces a file of the folder by this text of n bytes, at once. fresh: the name of the new file
 * until it is whole. It begins with a dot, because the daemon reads no such files. 0 or -errno;
 * then the file is as it was. */
int folder_put(int folder, const char *fresh, const char *name, const char *text, size_t n);
