/* dl.c: decides where a call of dlsym() or dlopen() goes. Must work before anything is initialized,
 * in any constructor of any library, without allocating (dl_entry.S makes the jump).
 * Why: docs/decisions.md, "`dlopen` is intercepted to take RTLD_DEEPBIND out". */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/macros.h"
#include "preload/entry/doors.h"
#include "preload/process/front_calls.h"
#include "preload/process/libc_compat.h"

void *dlsym_route(void *handle, const char *name);
void *dlopen_route(const char *path, int flags);

/* True for cuMemAlloc, false for cudaMalloc, cublasCreate, curandGenerate. */
static bool is_driver_name(const char *name)
{
        return name && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/* True for functions of NCCL, NVML and the runtime library, which the library in front may replace.
 */
static bool is_front_name(const char *name)
{
        return name && (strncmp(name, "nccl", 4) == 0 || strncmp(name, "cuda", 4) == 0 ||
                        strncmp(name, "pnccl", 5) == 0 || strncmp(name, "nvml", 4) == 0);
}

/* Returns NULL, with an error for dlerror(), which some programs print without checking. */
static void *dlsym_missing(void *handle, const char *name)
{
        static const char why[] = ", which this release of sublet does not know";
        char text[128];

        if (strlen(name) + sizeof(why) > sizeof(text))
                return NULL;
        (void)strcpy(stpcpy(text, name), why);
        return compat_dlsym(handle, text);
}

/* The program asks a particular library for a driver function. The real answer comes first: our
 * function is returned only if the program would have got the driver's. */
static void *dlsym_caught(void *handle, const char *name)
{
        void *p = compat_dlsym(handle, name);

        if (!p || real_open() < 0)
                return p;
        if (rows_find_symbol(name) == DOOR_NONE)
                rows_count_unknown(name);
        if (rows_is_undecided(name))
                return dlsym_missing(handle, name);
        return front_replace(name, doors_wrap(p));
}

static void *dlsym_replaced(void *handle, const char *name)
{
        void *p = compat_dlsym(handle, name);

        return p ? front_replace(name, p) : NULL;
}

/* With RTLD_DEFAULT the C library finds our doors, because we are preloaded, but also functions
 * that have no door. A caller with RTLD_NEXT comes after us in the search order, and wants the
 * function of a library after itself. */
void *dlsym_route(void *handle, const char *name)
{
        if (unlikely(is_driver_name(name)) && handle != RTLD_NEXT &&
            (handle != RTLD_DEFAULT || rows_is_undecided(name)))
                return (void *)dlsym_caught;
        if (unlikely(front_is_there()) && handle != RTLD_NEXT && is_front_name(name))
                return (void *)dlsym_replaced;
        return compat_dlsym_address();
}

/* dl_entry.S has removed RTLD_DEEPBIND: with it a library would bind the C library's dlsym() and
 * the driver's functions before ours. */
void *dlopen_route(const char *path, int flags)
{
        return compat_dlopen_address();
}
