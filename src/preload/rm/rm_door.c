/* rm_door.c: the wrapper of ioctl(), the call by which libcuda makes its channels. Must be
 * invisible to all other callers, at any time of the process, even in signal handlers. */
#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "base/macros.h"
#include "cuda/rm_abi.h"
#include "preload/rm/rm.h"

#define DOOR __attribute__((visibility("default")))

DOOR int ioctl(int fd, unsigned long request, ...);
DOOR int __ioctl(int fd, unsigned long request, ...);

static int pass(int fd, unsigned long request, void *argument)
{
        int r, saved;

        if (likely(_IOC_TYPE(request) != RM_IOCTL_TYPE) || !argument)
                return rm_forward(fd, request, argument);
        if (rm_holds_back(fd, request, argument, &r))
                return r;
        r = rm_forward(fd, request, argument);
        saved = errno;
        if (r == 0)
                rm_saw(fd, request, argument);
        errno = saved;
        return r;
}

#define IOCTL_DOOR(name)                             \
        int name(int fd, unsigned long request, ...) \
        {                                            \
                va_list list;                        \
                void *argument;                      \
                                                     \
                va_start(list, request);             \
                argument = va_arg(list, void *);     \
                va_end(list);                        \
                return pass(fd, request, argument);  \
        }

IOCTL_DOOR(ioctl)
IOCTL_DOOR(__ioctl)
