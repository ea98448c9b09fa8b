/* request.c: a fake for unit tests: the agent and the daemon grant each request for which there is
 * room. */
#include "unit.h"

#include <errno.h>

#include "fakes/preload.h"
#include "preload/state/daemon.h"
#include "preload/state/request.h"

#define WEAK __attribute__((weak))

_Atomic unsigned request_kicks;

WEAK void request_kick(void)
{
        request_kicks++;
}

WEAK void request_report(struct gpu *g)
{
        g->usage_dirty = true;
}

unsigned request_releases;
WEAK void request_released(void)
{
        request_releases++;
        bell_ring(&core.changed);
}

uint64_t daemon_room = UINT64_MAX, daemon_host = UINT64_MAX;
WEAK void request_room(struct gpu *g)
{
        want_lock();
        g->room = daemon_room;
        g->room_host = daemon_host;
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

WEAK struct daemon_line daemon_line = {.link = LINK_UP};

uint64_t unevictable_room = UINT64_MAX;
unsigned unevictable_asks;
void (*while_it_asks)(void);

WEAK int request_unevictable(struct gpu *g, uint64_t more)
{
        want_lock();
        unevictable_asks++;
        if (while_it_asks)
                while_it_asks();
        if (g->unevictable + more > unevictable_room)
                return -ENOMEM;
        g->unevictable += more;
        return 0;
}

WEAK void request_return_unevictable(struct gpu *g, uint64_t bytes)
{
        want_lock();
        g->unevictable -= bytes;
}
