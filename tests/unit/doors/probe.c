/* probe.c: source of two libraries that define the same function; the first one calls the
 * second's. */
#include "probe.h"

#include <dlfcn.h>

int probe_which(void)
{
        return WHICH;
}

#if WHICH == 1
int probe_next(void)
{
        int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "probe_which");

        return next ? next() : -1;
}
#endif
