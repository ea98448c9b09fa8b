/* interpose_getppid.c: a preloaded library that replaces functions and calls the next ones, as
 * libraries of other projects do. */
#include <dlfcn.h>
#include <unistd.h>

#include "probe.h"

PROBE pid_t getppid(void)
{
        pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");

        return next ? next() + PROBE_PPID_OFFSET : -1;
}

static int opens;

PROBE int probe_opens(void)
{
        return opens;
}

PROBE void *dlopen(const char *path, int flags)
{
        void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

        opens++;
        return next ? next(path, flags) : NULL;
}
