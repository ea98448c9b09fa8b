/* interpose_malloc.c: a malloc replacement that looks up the C library's malloc in its constructor.
 * An allocation inside that dlsym() has no malloc to use: it is refused and recorded. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "probe.h"

PROBE void *malloc(size_t size);
PROBE void *calloc(size_t count, size_t size);

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static bool looking, allocated_while_looking;

static void look(void)
{
        looking = true;
        next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
        next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        looking = false;
}

__attribute__((constructor)) static void start(void)
{
        look();
}

PROBE void *malloc(size_t size)
{
        if (looking) {
                allocated_while_looking = true;
                return NULL;
        }
        if (!next_malloc)
                look();
        return next_malloc(size);
}

PROBE void *calloc(size_t count, size_t size)
{
        if (looking) {
                allocated_while_looking = true;
                return NULL;
        }
        if (!next_calloc)
                look();
        return next_calloc(count, size);
}

PROBE int probe_malloc_ok(void)
{
        return next_malloc && next_calloc && !allocated_while_looking;
}
