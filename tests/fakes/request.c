/* request.c: a fake for unit tests: every request to the agent or the daemon is granted. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/state/daemon.h"
#include "preload/state/request.h"

#define WEAK __attribute__((weak))

unsigned request_kicks;

WEAK void request_kick(void)
{
        request_kicks++;
}

WEAK void request_report(struct gpu *g)
{
        g->usage_dirty = true;
}

WEAK void request_released(void)
{
        bell_ring(&core.changed);
}

WEAK int request_host(uint64_t more)
{
        if (core_host_mapped() + more > core.host.allowed)
                return -1;
        core.host.taking += more;
        return 0;
}

WEAK bool request_may_map(uint64_t more)
{
        return core_host_mapped() + more <= core.host.allowed;
}

WEAK int request_unevictable(struct gpu *g, uint64_t more)
{
        g->unevictable += more;
        return 0;
}

WEAK void request_return_unevictable(struct gpu *g, uint64_t bytes)
{
        g->unevictable -= bytes;
}

WEAK struct daemon_line daemon_line = {.link = LINK_UP};

WEAK bool daemon_is_up(void)
{
        return true;
}
