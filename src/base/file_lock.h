/* file_lock.h: a file that one process at a time holds, and that names it. The lock is flock(2)'s,
 * so it ends with the process. Not thread-safe. */
#pragma once

#define LOCK_HOLDER_MAX 32

/* Takes the lock of the file, which is made if it is missing. 0; -EALREADY: another process has it,
 * and ret_holder is its pid, or "unknown"; another -errno. */
int lock_take(const char *path, int *ret_fd, char ret_holder[static LOCK_HOLDER_MAX]);
/* Writes the pid of this process, which holds the lock, for messages of others. 0 or -errno. */
int lock_sign(int fd);
