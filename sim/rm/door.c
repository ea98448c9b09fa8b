/* door.c: the ioctl() that the simulated libcuda.so.1 exports, the control descriptor, and the
 * driver's version. Must never disturb a request that is not for the resource manager. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/rm/rm.h"

#define DEFAULT_VERSION "580.159.04"

static struct {
        _Atomic bool open;
        int fd;
        dev_t device;
        ino_t inode;
        char version[RM_VERSION_MAX];
        unsigned number[3];
} control;

/* The argument of this thread's last request. It is compared, never dereferenced. */
static __thread const void *seen;

/* ---- the driver's version ---- */

static int version_setup(void)
{
        const char *text = getenv("SIMCUDA_DRIVER");
        int end = 0;

        if (!text || !*text)
                text = DEFAULT_VERSION;
        if (strlen(text) >= sizeof(control.version) ||
            sscanf(text, "%3u.%3u%n.%3u%n", &control.number[0], &control.number[1], &end,
                   &control.number[2], &end) < 2 ||
            text[end]) {
                (void)fprintf(stderr, "simcuda: SIMCUDA_DRIVER is a version such as %s, not '%s'\n",
                              DEFAULT_VERSION, text);
                return -EINVAL;
        }
        strcpy(control.version, text);
        return 0;
}

const char *rm_version(void)
{
        return control.version;
}

bool rm_since(unsigned major, unsigned minor, unsigned patch)
{
        const unsigned wanted[3] = {major, minor, patch};

        for (int i = 0; i < 3; i++)
                if (control.number[i] != wanted[i])
                        return control.number[i] > wanted[i];
        return true;
}

struct rm_alloc_form rm_alloc_form(bool is_long)
{
#define FORM(type, params)                                                 \
        {                                                                  \
                sizeof(struct type), params, offsetof(struct type, status) \
        }
        static const struct rm_alloc_form forms[3][2] = {
                {FORM(rm_alloc_short_515, 0), FORM(rm_alloc_long_515, 0)},
                {FORM(rm_alloc_short_515, 0), FORM(rm_alloc_long_525, 0)},
                {FORM(rm_alloc_short_535, offsetof(struct rm_alloc_short_535, params_size)),
                 FORM(rm_alloc_long_535, offsetof(struct rm_alloc_long_535, params_size))},
        };

        return forms[rm_since(525, 0, 0) + rm_since(535, 0, 0)][is_long];
}

/* ---- the control descriptor ---- */

int rm_setup(void)
{
        struct stat st;
        int r = version_setup();

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
        r = rm_answer(_IOC_NR(request), argument, _IOC_SIZE(request));
        errno = r < 0 ? -r : saved;
        return r < 0 ? -1 : 0;
}

EXPORT int __ioctl(int fd, unsigned long request, ...) __THROW __attribute__((alias("ioctl")));
