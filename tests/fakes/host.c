/* host.c: a fake of base/host.h for unit tests: the host has as much memory as a test says. */
#include "unit.h"

#include <errno.h>

#include "base/host.h"
#include "fakes/preload.h"

#define WEAK __attribute__((weak))

uint64_t host_room, host_total;
bool no_host_figures;

WEAK int host_memory_read(struct host_memory *ret)
{
        *ret = (struct host_memory){.total_bytes = host_total};
        return no_host_figures ? -ENOENT : 0;
}

WEAK uint64_t host_memory_room(const struct host_memory *m)
{
        return host_room;
}

WEAK uint64_t host_memory_share(const struct host_memory *m)
{
        return host_room;
}
