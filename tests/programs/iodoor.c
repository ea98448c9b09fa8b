/* iodoor.c: a preloaded library with an ioctl() of its own. It passes every request on unchanged,
 * and prints at the end on stderr how many requests went to the kernel's resource manager. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda/rm_abi.h"

static _Atomic unsigned requests[256], wrapped;

static void count(unsigned long request, const void *argument)
{
        const struct rm_wrapped *w = argument;

        if (_IOC_NR(request) != RM_ESCAPE_WRAPPED) {
                requests[_IOC_NR(request)]++;
                return;
        }
        wrapped++;
        requests[w->escape & 0xff]++;
}

typedef int ioctl_fn(int fd, unsigned long request, ...);

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
        static _Atomic(ioctl_fn *) next;
        void *argument, *driver;
        va_list list;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        if (_IOC_TYPE(request) != RM_IOCTL_TYPE)
                return (int)syscall(SYS_ioctl, fd, request, argument);
        count(request, argument);
        if (!next) {
                driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
                next = (ioctl_fn *)dlsym(driver ? driver : RTLD_NEXT, "ioctl");
        }
        return next(fd, request, argument);
}

__attribute__((destructor)) static void say(void)
{
        (void)fprintf(stderr,
                      "{\"allocations\":%u,\"frees\":%u,\"controls\":%u,\"versions\":%u,"
                      "\"wrapped\":%u}\n",
                      requests[RM_ESCAPE_ALLOC], requests[RM_ESCAPE_FREE],
                      requests[RM_ESCAPE_CONTROL], requests[RM_ESCAPE_CHECK_VERSION], wrapped);
}
