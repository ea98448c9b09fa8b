/* door.c: the ioctl() that the simulated libcuda.so.1 exports, and its control descriptor. Must
 * never disturb a request that is not for the resource manager. */
#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/rm/guard.h"
#include "sim/rm/rm.h"

static struct {
        _Atomic bool open;
        int fd;
        dev_t device;
        ino_t inode;
} control;

/* The argument of this thread's last request. It is compared, never dereferenced. */
static __thread const void *seen;

/* ---- the control descriptor ---- */

int rm_setup(void)
{
        struct stat st;
        int r = rm_version_setup();

        if (r < 0)
                return r;
        r = guard_start();
        if (r < 0) /* a limit or a sandbox may allow no thread */
                r = guard_by_caller();
        if (r < 0)
                return r;
        control.fd = memfd_create("nvidiactl", MFD_CLOEXEC);
        if (control.fd < 0 || fstat(control.fd, &st) < 0)
                return -errno;
        control.device = st.st_dev;
        control.inode = st.st_ino;
        atomic_store(&control.open, true);
        return 0;
}

void rm_abandon(void)
{
        atomic_store(&control.open, false);
}

/* True for the control descriptor and its duplicates. False for another file that got the number of
 * the closed control descriptor. */
static bool is_control(int fd)
{
        struct stat st;

        return atomic_load(&control.open) && fstat(fd, &st) == 0 && st.st_ino == control.inode &&
               st.st_dev == control.device;
}

int rm_descriptor(void)
{
        return is_control(control.fd) ? control.fd : -1;
}

int rm_call(unsigned escape, void *argument, size_t bytes)
{
        const struct rm_caller self = {.file = control.inode, .cards = UINT32_MAX};

        return rm_answer(&self, escape, argument, bytes);
}

const void *rm_seen(void)
{
        return seen;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
        int saved = errno, r;
        void *argument;
        va_list list;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        if (_IOC_TYPE(request) != RM_TYPE || !argument || !is_control(fd)) {
                errno = saved;
                return (int)syscall(SYS_ioctl, fd, request, argument);
        }
        seen = argument;
        r = rm_call(_IOC_NR(request), argument, _IOC_SIZE(request));
        errno = r < 0 ? -r : saved;
        return r < 0 ? -1 : 0;
}

EXPORT int __ioctl(int fd, unsigned long request, ...) __THROW __attribute__((alias("ioctl")));
