/* hooks_retry.c: driver calls of the program that run out of device memory. Must never keep room
 * that did not help. */
#include <errno.h>

#include "base/log.h"
#include "preload/hooks/hooks.h"
#include "preload/move/unevictable.h"
#include "preload/state/core.h"
#include "preload/stream/quiesce.h"

bool hooks_more_room(struct gpu *g, uint64_t *room)
{
        int r = -ENOMEM;

        if (!g || !g->attached)
                return false;
        lock_acquire(&core_lock);
        if (!quiesce_capturing())
                r = unevictable_ask_room(g, room);
        if (r < 0)
                unevictable_return_room(g, room);
        lock_release(&core_lock);
        log_debug("GPU %u: the driver ran out of memory; %s", g->index,
                  r == 0 ? "more is free now" : "no more can be had");
        return r == 0;
}
