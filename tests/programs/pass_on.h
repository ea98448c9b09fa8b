/* pass_on.h: for an ioctl() of a test, which stands before the driver's. */
#pragma once

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda/rm_abi.h"

/* True if the request is for the kernel driver's resource manager. */
static inline bool is_for_rm(unsigned long request)
{
        return _IOC_TYPE(request) == RM_IOCTL_TYPE;
}

/* Makes the call that the driver would have made without us. */
static inline int pass_on(int fd, unsigned long request, void *argument)
{
        typedef int ioctl_fn(int fd, unsigned long request, ...);
        static _Atomic(ioctl_fn *) next;
        void *driver;

        if (!is_for_rm(request))
                return (int)syscall(SYS_ioctl, fd, request, argument);
        if (!next) {
                driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
                next = (ioctl_fn *)dlsym(driver ? driver : RTLD_NEXT, "ioctl");
        }
        return next(fd, request, argument);
}
