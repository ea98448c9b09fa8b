/* cleanup.h: local variables that release their resource at the end of their scope.
 *
 * `_cleanup_close_ int fd = -EBADF;` closes fd on every way out of the scope. TAKE_FD and TAKE_PTR
 * return the value and leave the variable empty, so that nothing is released. No macro here
 * contains a return. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void cleanup_close(const int *fd)
{
        if (*fd >= 0) {
                int saved = errno;

                (void)close(*fd);
                errno = saved;
        }
}

static inline void cleanup_free(void *p)
{
        free(*(void **)p);
}

static inline void cleanup_fclose(FILE **f)
{
        if (*f)
                (void)fclose(*f);
}

#define _cleanup_close_  _cleanup_(cleanup_close)
#define _cleanup_free_   _cleanup_(cleanup_free)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose)

#define TAKE_FD(fd)             \
        ({                      \
                int _fd = (fd); \
                (fd) = -EBADF;  \
                _fd;            \
        })
#define TAKE_PTR(p)                   \
        ({                            \
                __auto_type _p = (p); \
                (p) = NULL;           \
                _p;                   \
        })
