/* iodoor.c: a preloaded library with an ioctl() of its own. It passes every request on unchanged,
 * and prints at the end on stderr how many requests went to the kernel's resource manager. */
#include <stdarg.h>
#include <stdio.h>

#include "pass_on.h"

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

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
        void *argument;
        va_list list;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        if (is_for_rm(request))
                count(request, argument);
        return pass_on(fd, request, argument);
}

__attribute__((destructor)) static void say(void)
{
        (void)fprintf(stderr,
                      "{\"allocations\":%u,\"frees\":%u,\"controls\":%u,\"versions\":%u,"
                      "\"wrapped\":%u}\n",
                      requests[RM_ESCAPE_ALLOC], requests[RM_ESCAPE_FREE],
                      requests[RM_ESCAPE_CONTROL], requests[RM_ESCAPE_CHECK_VERSION], wrapped);
}
