/* kept.c: owns the decision whose kept copy goes. Must never give up the only copy there is. */
#include "preload/kept.h"

#include <errno.h>

void kept_forget(struct arena *a, struct extent *e)
{
        arena_give(a, &e->host);
        e->known = false;
}

/* The lowest address first: choose_evict() begins at the other end, so it is missed last. False:
 * nothing is kept. Lock held. */
static bool drop_one(struct gpu *g, struct arena *a)
{
        struct heap_cursor c = {0};
        struct extent *e;

        while ((e = heap_walk(&g->heap, &c))) {
                if (e->busy || e->state != EXTENT_RESIDENT || !e->host.count)
                        continue;
                kept_forget(a, e);
                return true;
        }
        return false;
}

int kept_take(struct gpu *g, struct arena *a, struct extent *e)
{
        bool dropped = true;

        while (!e->host.count && arena_take(a, extent_pages_bytes(e->kept), &e->host) < 0) {
                lock_acquire(&core.lock);
                dropped = drop_one(g, a);
                lock_release(&core.lock);
                if (!dropped)
                        return -ENOMEM;
        }
        return 0;
}

void kept_trim(struct gpu *g, struct arena *a, uint64_t bytes)
{
        bool dropped;

        do {
                arena_trim(a, bytes);
                lock_acquire(&core.lock);
                dropped = arena_bytes(a) > bytes && drop_one(g, a);
                lock_release(&core.lock);
        } while (dropped);
}
