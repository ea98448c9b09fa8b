/* interpose_getppid.c: a preloaded library such as others write them. */
#include <dlfcn.h>
#include <unistd.h>

#include "probe.h"

PROBE pid_t getppid(void)
{
        pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");

        return next ? next() + PROBE_PPID_OFFSET : -1;
}
